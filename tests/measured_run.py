# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""A simulated run, whose kernels and collectives take what is known."""

from __future__ import annotations

from lagom_xla import cluster as cluster_lib
from lagom_xla.passes import hlo
from lagom_xla.profiling import profile as profile_lib
from lagom_xla.profiling import xspace
import simulated_run
import xspace_text

H100S = cluster_lib.parse("1x8xh100")
OWN_US = 50.0


def lone_us(name: str) -> float:
  return 20.0 + len(name)


def process_of(
  module: hlo.Module, *, without: str | None = None
) -> xspace_text.Process:
  run = simulated_run.Run(
    module=module,
    lone_us=lone_us,
    own_us=lambda _: OWN_US,
    late_us=[0.0] * 7 + [400.0],
  )
  ranks = [[k for k in rank if k.op != without] for rank in run.steps(3)]
  return xspace_text.Process(devices=ranks, module=module)


def profile_of(
  module: hlo.Module, *, without: str | None = None
) -> profile_lib.Profile:
  process = process_of(module, without=without)
  trace = xspace.of_bytes({"host": xspace_text.serialized(process)})
  return profile_lib.of_trace(trace)
