# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Profiles of a simulated run, in which every name has a time of its own."""

from __future__ import annotations

from collections.abc import Sequence
import zlib

from lagom_xla.passes import hlo
from lagom_xla.profiling import profile as profile_lib
from lagom_xla.profiling import xspace
import simulated_run
import xspace_text

NUM_STEPS = 3
SECOND_NS = 10**9


def lone_us(name: str) -> float:
  return 5.0 + zlib.crc32(name.encode()) % 40


def own_us(name: str) -> float:
  return 30.0 + zlib.crc32(name.encode()) % 50


def run_of(module: hlo.Module, late_us: Sequence[float]) -> simulated_run.Run:
  return simulated_run.Run(
    module=module, lone_us=lone_us, own_us=own_us, late_us=late_us
  )


def profile_of(
  module: hlo.Module,
  ranks: Sequence[Sequence[xspace_text.Kernel]],
  starts_ns: Sequence[int | None] | None = None,
) -> profile_lib.Profile:
  """The profile of ranks, a process each or all in one."""
  if starts_ns is None:
    process = xspace_text.Process(devices=ranks, module=module)
    serialized = {"host": xspace_text.serialized(process)}
  else:
    serialized = {
      f"host{index}": xspace_text.serialized(
        xspace_text.Process(
          devices=[kernels],
          module=module,
          start_ns=start_ns,
          # Processes number their programs by themselves.
          program_id=17 + index,
        )
      )
      for index, (kernels, start_ns) in enumerate(
        zip(ranks, starts_ns, strict=True)
      )
    }
  return profile_lib.of_trace(xspace.of_bytes(serialized))
