# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Small collectives of a traced step, as rows of a fit.

A collective of a step waits for its last rank, and shares memory with kernels.
So its shortest run counts, and only of an all-reduce so small that no memory
matters: what is left are launch and hops, which nccl-tests on one node does not
show below what its thread takes for launches.
"""

from __future__ import annotations

from collections.abc import Sequence
import pathlib

from benchmarks.collectives import measured_call
from benchmarks.collectives import set_apart
from benchmarks.steps import trace as step_trace
from lagom_xla.costs import collective as collective_lib
from lagom_xla.costs import wire
from lagom_xla.passes import collectives as collectives_lib

_MOST_BYTES = 256 * 1024


class Row(measured_call.MeasuredCall):
  """One all-reduce of a step, with the time of its shortest run."""

  def predict_us(
    self,
    paths: wire.Paths | None = None,
    apart: set_apart.SetApart | None = None,
  ) -> float:
    """The model's time; nothing is set apart of it."""
    del apart
    return self.wire_us(paths)


def read(folder: pathlib.Path) -> Sequence[Row]:
  """The small all-reduces of the step in `folder`, which is pax_a100."""
  module = step_trace.module(folder)
  shortest_us: dict[str, float] = {}
  for step in step_trace.steady_steps(folder, module):
    for event in step:
      least_us = min(event.time_us, shortest_us.get(event.name, event.time_us))
      shortest_us[event.name] = least_us
  cluster = step_trace.cluster(folder, module)
  rows = []
  for collective in collectives_lib.find(module):
    key = collective_lib.tuning_key(collective, cluster)
    if key.kind == "all-reduce" and key.num_bytes <= _MOST_BYTES:
      row = Row(
        cluster=cluster,
        key=key,
        setting=collective_lib.default_setting(key, cluster),
        time_us=shortest_us[collective.name],
      )
      rows.append(row)
  return rows
