# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""A plan with one of each setting for a launcher."""

from __future__ import annotations

from lagom_xla import cluster as cluster_lib
from lagom_xla import plan as plan_lib
from lagom_xla.compile import config as config_lib
from lagom_xla.costs import collective as collective_lib
from lagom_xla.costs import nccl
from lagom_xla.search.xla import knobs

GATHER = knobs.OPTIONS["all-gather"]
GATHERED_BYTES = 16 * 2**20

_SETTING = nccl.Setting(
  algorithm="ring", protocol="simple", num_channels=4, chunk_bytes=131072
)
PLAN = plan_lib.Plan(
  module_name="jit_step",
  module_fingerprint="0123456789abcdef",
  cluster=cluster_lib.parse("1x8xh100"),
  xla=config_lib.XlaConfig(options={GATHER: 128 * 2**20}),
  nccl_env={"NCCL_MAX_CTAS": "8"},
  nccl_settings=(
    plan_lib.NcclSetting(
      key=collective_lib.TuningKey("all-gather", 8, 1, GATHERED_BYTES),
      calls=(collective_lib.Call(num_bytes=GATHERED_BYTES, num_arrays=1),),
      setting=_SETTING,
      default=_SETTING,
      gain_us=1.0,
      worst_gain_us=0.5,
      worst_if="matmuls take 10 % more time than predicted",
    ),
  ),
  prediction=plan_lib.Prediction(
    default_us=4.0,
    xla_us=3.0,
    nccl_env_us=2.0,
    nccl_settings_us=1.0,
    default_range_us=plan_lib.Range(low_us=3.5, high_us=4.5),
    xla_gain_us=plan_lib.Range(low_us=0.5, high_us=1.5),
    nccl_env_gain_us=plan_lib.Range(low_us=1.5, high_us=2.5),
    nccl_settings_gain_us=plan_lib.Range(low_us=2.5, high_us=3.5),
  ),
)
