# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Lone products and fusions of many sizes on this GPU, beside the model.

All are in one program, so that one trace has the times of all of them, each as
a kernel of its own beside nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
import pathlib
from typing import Any

import jax
import jax.numpy as jnp

from benchmarks.gpu import environment
from benchmarks.gpu import traced_step

_NUM_WARM_UPS = 3
_NUM_TRACED = 10
# (m, n, k): square ones from few tiles to many waves; the products of decoder
# layers of 4096 and 8192 with 4,096 tokens; thin ones, and one with a long k.
SHAPES: Sequence[tuple[int, int, int]] = (
  *((n, n, n) for n in (512, 1024, 2048, 3072, 4096, 6144, 8192)),
  *((4096, n, 4096) for n in (1024, 6144, 11008, 14336)),
  *((4096, n, 8192) for n in (1280, 7168, 28672)),
  *((128, 4096, 4096), (4096, 128, 4096), (4096, 4096, 128)),
  (512, 512, 65536),
)
# Elements of the arrays that fusions go through, from what stays in L2 on.
_WIDTH = 1024
_SIZES = (2**18, 2**20, 2**22, 2**24, 2**26, 2**28)


def measure(folder: pathlib.Path) -> dict[str, Any]:
  """Traces the program and compares its kernels."""
  environment.check()
  cases = {"products": products(SHAPES), "fusions": fusions(_SIZES)}
  for name, case in cases.items():
    _trace(*case, folder / "lone" / name)
  # All traces are there by now, whatever becomes of the comparison.
  from benchmarks.gpu import kernel_times

  cluster, found = environment.cluster_name(), {}
  for name in cases:
    figures = kernel_times.compared(folder / "lone" / name, cluster)
    found[name] = {
      key: figures[key] for key in ("by_kind", "kernels", "gap_us")
    }
  return found


def _trace(function: Any, args: tuple[Any, ...], trace: pathlib.Path) -> None:
  lowered = jax.jit(function).lower(*args)
  compiled = lowered.compile(
    compiler_options=dict(traced_step.NO_COMMAND_BUFFERS)
  )
  leaves, tree = jax.tree.flatten(args)
  keys = jax.random.split(jax.random.key(0), len(leaves))
  normal = jax.jit(jax.random.normal, static_argnums=(1, 2))
  # Zeros would draw less power.
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
  """A function of one product per shape, in bfloat16, and its arguments."""

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


def fusions(sizes: Sequence[int]) -> tuple[Any, tuple[Any, ...]]:
  """A function of fusions of each pattern and size, and its arguments.

  Each has an array of its own: XLA fuses what reads the same one.
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
