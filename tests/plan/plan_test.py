# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Plans are read back as they were written, and follow their schema."""

from __future__ import annotations

import dataclasses
import json
import string
import typing

from hypothesis import given
from hypothesis import settings
from hypothesis import strategies as st
import jsonschema
import pytest

from lagom_xla import cluster as cluster_lib
from lagom_xla import errors
from lagom_xla import plan as plan_lib
from lagom_xla.compile import config
from lagom_xla.costs import collective as collective_lib
from lagom_xla.costs import nccl
from lagom_xla.passes.program import form as form_lib
from sample_plan import PLAN

_CLUSTERS = [
  cluster_lib.parse(name) for name in ("1x8xh100", "lagom_b", "4x4xgb200")
]
_names = st.text(string.ascii_lowercase + "_", min_size=1)
_lines = st.text(string.printable[:94], min_size=1)
_counts = st.integers(1, 2**31 - 1)
_times_us = st.floats(0, 1e9)
_gains_us = st.floats(-1e9, 1e9)
_ranges = st.builds(plan_lib.Range, low_us=_gains_us, high_us=_gains_us)
_calls = st.builds(
  collective_lib.Call, num_bytes=st.integers(1, 2**63 - 1), num_arrays=_counts
)
_option_values = st.one_of(
  st.booleans(),
  st.integers(),
  st.floats(allow_nan=False, allow_infinity=False),
  st.text(),
)
_groups = st.lists(st.lists(_lines, min_size=1).map(tuple)).map(tuple)
_settings = st.builds(
  nccl.Setting,
  algorithm=st.sampled_from(["ring", "tree", "nvls", "nvlstree", "pat"]),
  protocol=st.sampled_from(["ll", "ll128", "simple"]),
  num_channels=_counts,
  chunk_bytes=_counts,
)
plans = st.builds(
  plan_lib.Plan,
  module_name=_lines,
  module_fingerprint=_lines,
  cluster=st.sampled_from(_CLUSTERS),
  jax_version=_lines,
  jaxlib_version=_lines,
  xla=st.builds(
    config.XlaConfig,
    program=st.builds(
      form_lib.Form,
      strands=st.sampled_from(typing.get_args(form_lib.Strands)),
      slices=st.dictionaries(_lines, st.integers(2, 64)),
    ),
    options=st.dictionaries(_names, _option_values),
    combine_groups=st.none() | _groups,
    scheduler_profile=st.none() | st.text(),
    orders=st.dictionaries(_lines, st.lists(_lines).map(tuple)),
  ),
  nccl_env=st.dictionaries(_names.map(str.upper), st.text()),
  nccl_settings=st.lists(
    st.builds(
      plan_lib.NcclSetting,
      key=st.builds(
        collective_lib.TuningKey, _names, _counts, _counts, _counts
      ),
      calls=st.lists(
        _calls, max_size=3, unique_by=lambda call: call.num_bytes
      ).map(tuple),
      setting=_settings,
      default=_settings,
      gain_us=_gains_us,
      worst_gain_us=_gains_us,
      worst_if=_lines,
    ),
    max_size=4,
    unique_by=lambda entry: entry.key.kind,
  ).map(tuple),
  prediction=st.builds(
    plan_lib.Prediction,
    default_us=_times_us,
    xla_us=_times_us,
    nccl_env_us=_times_us,
    nccl_settings_us=_times_us,
    default_range_us=_ranges,
    xla_gain_us=_ranges,
    nccl_env_gain_us=_ranges,
    nccl_settings_gain_us=_ranges,
  ),
)


@settings(deadline=None)
@given(plans)
def test_a_plan_survives_json(plan):
  text = json.dumps(plan.to_dict())
  assert plan_lib.from_dict(json.loads(text), where="a plan") == plan


_SCHEMA = jsonschema.Draft202012Validator(plan_lib.schema())


@settings(deadline=None)
@given(plans)
def test_a_plan_follows_its_schema(plan):
  _SCHEMA.validate(json.loads(json.dumps(plan.to_dict())))


@pytest.mark.parametrize(
  "damage",
  [
    {"format_version": 4},
    {"more": 1},
    {"module_name": 7},
    {"xla": {"options": {}, "combine_groups": None}},
    {"nccl_env": {"NCCL_MAX_CTAS": 8}},
    {"nccl_settings": 3},
    {"cluster": {**_CLUSTERS[0].to_dict(), "num_nodes": 0}},
    {"prediction": {}},
  ],
  ids=lambda damage: next(iter(damage)),
)
def test_what_the_schema_refuses_is_not_read_either(damage):
  raw = {**PLAN.to_dict(), **damage}
  assert not _SCHEMA.is_valid(raw)
  with pytest.raises(errors.PlanError):
    plan_lib.from_dict(raw, where="a plan")


def test_a_plan_that_sets_nothing_is_the_default():
  nothing = dataclasses.replace(
    PLAN, xla=config.DEFAULT, nccl_env={}, nccl_settings=()
  )
  assert nothing.is_default
  assert not PLAN.is_default
  for xla in (
    config.XlaConfig(program=form_lib.Form(strands="rotated")),
    config.XlaConfig(program=form_lib.Form(keyed=True)),
    config.XlaConfig(options={"a": 1}),
    config.XlaConfig(combine_groups=()),
    config.XlaConfig(scheduler_profile=""),
    config.XlaConfig(orders={"body": ("a", "b")}),
  ):
    assert not dataclasses.replace(nothing, xla=xla).is_default


def test_a_plan_is_loaded_from_its_folder_or_its_file(tmp_path):
  path = tmp_path / "plan.json"
  path.write_text(json.dumps(PLAN.to_dict()))
  assert plan_lib.load(tmp_path) == PLAN
  assert plan_lib.load(str(path)) == PLAN
