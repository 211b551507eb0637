# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Whole copies of traced steps: the memcpys that were measured.

XLA emits a fusion that does no more than copy an array, in the order in which
it lies, as a memcpy (GetCopyFusion of its codegen/fusions.cc, which XLA had
when the traced steps were compiled). Slices, which are memcpys from JAX 0.10.2
on, were kernels then. So these say what a memcpy takes: the launch is the
median of those of a few bytes, the share of the memory's rate that of the
longest one. On H100 that is one of 537 MB; on A100 it is one of 1.8 MB, which
L2 holds.

Printed is each copy of more, alone and beside collectives.

  python -m benchmarks.kernels.whole_copies --data=FOLDER
"""

from __future__ import annotations

import argparse
import collections
from collections.abc import Iterator, Mapping
import pathlib
import statistics

from benchmarks.kernels import lone_kernels
from benchmarks.steps import traced_step
from lagom_xla import cluster as cluster_lib
from lagom_xla.costs import fusion
from lagom_xla.passes import collectives
from lagom_xla.passes import hlo
from lagom_xla.profiling import events as events_lib

# What runs beside a collective for less of its time counts as lone: the only
# long copy on H100 does for 8 %.
_LEAST_SHARE = 0.1
_TINY_BYTES = 65536


def fit(folder: pathlib.Path, gpu: cluster_lib.Gpu) -> fusion.Pattern:
  """A memcpy's launch and share of the memory's rate, from one step's trace."""
  by_size = collections.defaultdict(list)
  for num_bytes, run in _runs(folder):
    if run.share < _LEAST_SHARE:
      by_size[num_bytes].append(run.time_us)
  launch_us = statistics.median(
    time_us
    for num_bytes, times_us in by_size.items()
    if num_bytes < _TINY_BYTES
    for time_us in times_us
  )
  largest = max(by_size)
  least_us = 2 * largest / (1e3 * gpu.hbm_gbps)
  share = least_us / (statistics.median(by_size[largest]) - launch_us)
  return fusion.Pattern(
    launch_us=round(launch_us, 2), memory_share=round(share, 3)
  )


def _runs(
  folder: pathlib.Path, *, ranks: slice = slice(1)
) -> Iterator[tuple[int, events_lib.KernelRun]]:
  """The runs of whole copies on some ranks, with the bytes that are copied."""
  module = traced_step.read_module(folder)
  size_of = _sizes_bytes(module)
  collective_names = {c.name for c in collectives.find(module)}
  by_rank = list(traced_step.by_rank(folder, module).values())
  for steps in by_rank[ranks]:
    for run in lone_kernels.runs(steps, collective_names):
      if run.name in size_of:
        yield size_of[run.name], run


def _sizes_bytes(module: hlo.Module) -> Mapping[str, int]:
  """Bytes of the arrays that fusions copy whole, by the fusion's name."""
  return {
    instruction.name: hlo.shape_bytes(instruction.shape)
    for computation in module.computations.values()
    for instruction in computation.instructions
    if instruction.opcode == "fusion"
    and _only_copies(module.computations[instruction.called_computation_ids[0]])
  }


def _only_copies(fused: hlo.Computation) -> bool:
  if fused.root.opcode != "copy":
    return False
  (source,) = fused.operands(fused.root)
  before, after = source.shape.layout, fused.root.shape.layout
  return (
    source.opcode == "parameter"
    and before.minor_to_major == after.minor_to_major
  )


def main() -> None:
  """Prints the long copies of every step and rank."""
  parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
  parser.add_argument("--data", type=pathlib.Path, required=True)
  for folder in traced_step.folders(parser.parse_args().data):
    found = collections.defaultdict(list)
    for num_bytes, run in _runs(folder, ranks=slice(None)):
      if num_bytes >= _TINY_BYTES:
        where = "alone" if run.share < _LEAST_SHARE else "beside collectives"
        found[num_bytes, where].append(run.time_us)
    for (num_bytes, where), times_us in sorted(found.items()):
      print(
        f"{folder.name}: {len(times_us)} copies of {num_bytes} bytes {where}:"
        f" {min(times_us):.1f} to {max(times_us):.1f} us"
      )


if __name__ == "__main__":
  main()
