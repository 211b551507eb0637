# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Compares kernel times in traces of this GPU with the model.

The model is the shipped one, with this GPU's data sheet and no measurements of
this machine. Lone products of many sizes are in one program, and fusions in
another, so that one trace shows the times of all, each as a separate kernel
with nothing beside it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
import dataclasses
import pathlib
import statistics
from typing import Any

import jax
import jax.numpy as jnp

from benchmarks.gpu import part as part_lib
from lagom_xla import cluster as cluster_lib
from lagom_xla.costs import measured as measured_lib
from lagom_xla.costs import step as step_lib
from lagom_xla.profiling import costing
from lagom_xla.profiling import profile as profile_lib

NO_COMMAND_BUFFERS: Mapping[str, bool | str] = {
  "xla_gpu_enable_command_buffer": ""
}
_NUM_WARM_UPS = 3
_NUM_TRACED = 10
# (m, n, k): square ones, from few tiles to many waves; the products of decoder
# layers with widths 4096 and 8192 and 4,096 tokens; thin ones, and one with a
# long k.
SHAPES: Sequence[tuple[int, int, int]] = (
  *((n, n, n) for n in (512, 1024, 2048, 3072, 4096, 6144, 8192)),
  *((4096, n, 4096) for n in (1024, 6144, 11008, 14336)),
  *((4096, n, 8192) for n in (1280, 7168, 28672)),
  *((128, 4096, 4096), (4096, 128, 4096), (4096, 4096, 128)),
  (512, 512, 65536),
)
# Elements of the fusions' arrays; the smallest fit in L2.
_WIDTH = 1024
_SIZES = (2**18, 2**20, 2**22, 2**24, 2**26, 2**28)


def lone_kernels(task: part_lib.Task) -> dict[str, Any]:
  """Traces both programs and compares their kernels."""
  cases = {
    "products": products(SHAPES[:2] if task.is_brief else SHAPES),
    "fusions": _fusions(_SIZES[:1] if task.is_brief else _SIZES),
  }
  found = {}
  for name, case in cases.items():
    trace = task.path / "lone" / name
    _trace(*case, trace)
    figures = compared(trace, task.several(1))
    found[name] = {
      key: figures[key] for key in ("by_kind", "kernels", "gap_us")
    }
    task.keep(found)
  return found


def _trace(function: Any, args: tuple[Any, ...], trace: pathlib.Path) -> None:
  compiled = (
    jax.jit(function)
    .lower(*args)
    .compile(compiler_options=dict(NO_COMMAND_BUFFERS))
  )
  leaves, tree = jax.tree.flatten(args)
  keys = jax.random.split(jax.random.key(0), len(leaves))
  normal = jax.jit(jax.random.normal, static_argnums=(1, 2))
  # Not zeros, which would draw less power.
  values = tree.unflatten(
    normal(key, leaf.shape, leaf.dtype)
    for key, leaf in zip(keys, leaves, strict=True)
  )
  for _ in range(_NUM_WARM_UPS):
    jax.block_until_ready(compiled(*values))
  with jax.profiler.trace(str(trace)):
    for _ in range(_NUM_TRACED):
      jax.block_until_ready(compiled(*values))


def products(
  shapes: Sequence[tuple[int, int, int]],
) -> tuple[Any, tuple[Any, ...]]:
  """A function with one product per shape, in bfloat16, and its arguments."""

  def function(*pairs: Any) -> list[Any]:
    return [lhs @ rhs for lhs, rhs in pairs]

  args = tuple(
    (
      jax.ShapeDtypeStruct((m, k), jnp.bfloat16),
      jax.ShapeDtypeStruct((k, n), jnp.bfloat16),
    )
    for m, n, k in shapes
  )
  return function, args


def _fusions(sizes: Sequence[int]) -> tuple[Any, tuple[Any, ...]]:
  """A function with fusions of each pattern and size, and its arguments.

  Each has its own array, because XLA fuses operations that read the same one.
  """
  patterns = (
    lambda rows: rows * rows,  # Loops through it.
    lambda rows: jnp.tanh(rows.astype(jnp.float32)),  # Writes twice as much.
    lambda rows: rows.T + 1,  # Transposes.
    lambda rows: jnp.sum(rows, axis=1),  # Reduces rows.
    lambda rows: jnp.sum(rows, axis=0),  # Reduces columns.
  )

  def function(*arrays: Any) -> list[Any]:
    return [
      pattern(rows)
      for of_size in arrays
      for pattern, rows in zip(patterns, of_size, strict=True)
    ]

  args = tuple(
    tuple(
      jax.ShapeDtypeStruct((size // _WIDTH, _WIDTH), jnp.bfloat16)
      for _ in patterns
    )
    for size in sizes
  )
  return function, args


# The most kernels to list, the longest ones first.
_NUM_KERNELS = 40


def compared(trace: pathlib.Path, cluster_name: str) -> dict[str, Any]:
  """Predicted and measured kernel times and step time of a traced step."""
  cluster = cluster_lib.parse(cluster_name)
  profile = profile_lib.read(trace)
  costed = costing.of_profile(profile, cluster)
  with measured_lib.pricing(None):
    predicted = step_lib.Step(profile.analysis, cluster)
  with measured_lib.pricing(costed.measured):
    replayed = step_lib.Step(profile.analysis, cluster)
  return {
    "cluster": cluster.name,
    "step_us": {
      "measured": profile.step_time_us,
      "predicted": predicted.timeline(predicted.default).step_time_us,
      "replayed with measured kernels": replayed.timeline(
        replayed.default
      ).step_time_us,
    },
    "gap_us": {
      "measured": profile.gap_us,
      "predicted": statistics.median(
        predicted.kernel_cost(k).gap_us for k in profile.kernels.values()
      ),
    },
    "by_kind": [dataclasses.asdict(ratio) for ratio in costed.ratios],
    "kernels": _by_kernel(profile, predicted)[:_NUM_KERNELS],
    "not_run": len(costed.not_run),
  }


def _by_kernel(
  profile: profile_lib.Profile, predicted: step_lib.Step
) -> list[dict[str, Any]]:
  """A row for each kernel that ran alone, the longest per step first."""
  rows = []
  for name, times_us in profile.lone_us.items():
    kernel = profile.kernels[name]
    cost = predicted.kernel_cost(kernel)
    rows.append(
      {
        "name": name,
        "kind": kernel.category,
        "pattern": kernel.pattern,
        "shape": kernel.matrix_shape,
        "element_type": kernel.element_type,
        "num_bytes": kernel.num_bytes,
        "executions": kernel.executions,
        "num_blocks": cost.num_blocks,
        "measured_us": statistics.median(times_us),
        "predicted_us": cost.run_us,
      }
    )
  return sorted(rows, key=lambda row: -row["measured_us"] * row["executions"])
