# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Rank of a job whose ranks share a GPU: an all-reduce beside kernels.

    python -m benchmarks.gpu.rank ADDRESS RANK JOB

ADDRESS is that of the job's coordinator, and JOB a `Job` in JSON. Both ranks
run the same collectives; the kernels beside them are large on the first rank
alone, which is the one that is traced, so that no kernel of the other one takes
SMs. Three programs are traced: the kernels alone, the all-reduce beside next to
nothing, and both.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import pathlib
import sys
import time
from typing import Any

import jax
import jax.numpy as jnp

from benchmarks.gpu import traced_step

_NUM_WARM_UPS = 2
_NUM_TRACED = 5
_MESH_AXIS = "ranks"
# What the other rank multiplies and goes through, so that XLA has a kernel to
# run beside its all-reduce, too, and keeps it on a stream of its own.
_SMALL = 128
# XLA would have the ranks tune each other's kernels, whose programs differ.
OPTIONS = {
  **traced_step.NO_COMMAND_BUFFERS,
  "xla_gpu_shard_autotuning": False,
  "xla_gpu_enable_latency_hiding_scheduler": True,
}
PROGRAMS = ("kernels", "collective", "both")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Job:
  """What ranks run.

  Attributes:
    folder: where the first rank leaves traces and times.
    num_bytes: of the all-reduce.
    width: of the kernels' matrices.
    num_layers: products, and fusions, beside the all-reduce.
  """

  folder: str
  num_bytes: int
  width: int
  num_layers: int


def run(address: str, rank: int, job: Job) -> None:
  """Runs the three programs, and leaves what was found in the folder."""
  jax.distributed.initialize(address, 2, rank, local_device_ids=[0])
  mesh = jax.make_mesh(
    (2,), (_MESH_AXIS,), axis_types=(jax.sharding.AxisType.Auto,)
  )
  is_first = rank == 0
  small = _kernels_of(_SMALL, 1)
  large = _kernels_of(job.width, job.num_layers) if is_first else small
  summed = _shared(mesh, job.num_bytes // 4)
  folder, step_us = pathlib.Path(job.folder), {}
  for name in PROGRAMS:
    operands = small if name == "collective" else large
    arrays = () if name == "kernels" else (summed,)
    if name == "kernels" and not is_first:
      continue
    compiled = _compiled(mesh, arrays, operands)
    trace = str(folder / name) if is_first else None
    step_us[name] = _traced(compiled, (arrays, operands), trace)
  if is_first:
    (folder / "step_us.json").write_text(json.dumps(step_us))


def _kernels_of(width: int, num_layers: int) -> list[tuple[Any, Any]]:
  """Matrices, on this rank's own device: a pair for each layer."""
  keys = jax.random.split(jax.random.key(0), 2 * num_layers)
  device = jax.local_devices()[0]
  matrices = [
    jax.device_put(jax.random.normal(key, (width, width), jnp.bfloat16), device)
    for key in keys
  ]
  return list(zip(matrices[::2], matrices[1::2], strict=True))


def _shared(mesh: Any, num_elements: int) -> Any:
  """An array with a part on each rank, each of so many elements."""
  place = jax.sharding.NamedSharding(
    mesh, jax.sharding.PartitionSpec(_MESH_AXIS)
  )
  part = jax.device_put(
    jnp.ones((1, num_elements), jnp.float32), jax.local_devices()[0]
  )
  return jax.make_array_from_single_device_arrays(
    (2, num_elements), place, [part]
  )


def both_of(mesh: Any) -> Any:
  """The jitted all-reduce of an array beside kernels on the rank's operands."""

  def both(arrays: Any, operands: Any) -> Any:
    (x,) = arrays
    return jax.lax.psum(x, _MESH_AXIS), run_kernels(operands)

  spec = jax.sharding.PartitionSpec(_MESH_AXIS)
  return jax.jit(
    jax.shard_map(
      both,
      mesh=mesh,
      in_specs=(spec, spec),
      out_specs=(jax.sharding.PartitionSpec(), spec),
    )
  )


def _compiled(mesh: Any, arrays: Any, operands: Any) -> Any:
  """The program of this rank, with its operands as the rank's own shards."""
  options = OPTIONS if jax.default_backend() == "gpu" else {}
  if not arrays:
    lowered = jax.jit(lambda _, operands: run_kernels(operands)).lower(
      arrays, operands
    )
    return lowered.compile(compiler_options=options)
  place = jax.sharding.NamedSharding(
    mesh, jax.sharding.PartitionSpec(_MESH_AXIS)
  )
  shards = jax.tree.map(lambda x: _as_shard(x, place), operands)
  lowered = both_of(mesh).lower(arrays, shards)
  compiled = lowered.compile(compiler_options=options)
  return lambda arrays, _: compiled(arrays, shards)


def _as_shard(x: Any, place: Any) -> Any:
  """An array of this rank's as a part of one that all ranks have a part of."""
  shape = (2 * x.shape[0], *x.shape[1:])
  return jax.make_array_from_single_device_arrays(shape, place, [x])


def run_kernels(operands: Any) -> list[Any]:
  """A product and a fusion that goes through memory, for each pair."""
  found = []
  for lhs, rhs in operands:
    found += [lhs @ rhs, jnp.tanh(lhs) * 2 + 1]
  return found


def _traced(compiled: Any, args: Any, trace: str | None) -> list[float]:
  """Runs a program, traced where a folder is given; returns times in us."""
  for _ in range(_NUM_WARM_UPS):
    jax.block_until_ready(compiled(*args))
  profiled: Any = contextlib.nullcontext()
  if trace is not None:
    profiled = jax.profiler.trace(trace)
  times_us = []
  with profiled:
    for _ in range(_NUM_TRACED):
      begin_s = time.perf_counter()
      jax.block_until_ready(compiled(*args))
      times_us.append((time.perf_counter() - begin_s) * 1e6)
  return times_us


if __name__ == "__main__":
  run(sys.argv[1], int(sys.argv[2]), Job(**json.loads(sys.argv[3])))
