# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""The bytes of a kernel: what it reads and writes, each once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
import dataclasses

import jax
import jax.numpy as jnp
import pytest

import compiled_kernels
from lagom_xla.passes import hlo
from lagom_xla.passes import kernels


@pytest.fixture(scope="module")
def analyzed(
  h100s: Sequence[jax.Device], scheduled: Callable[..., hlo.Module]
) -> compiled_kernels.Analyze:
  """Compiles a function of bf16 arrays and analyzes its module."""
  return compiled_kernels.analyzing(h100s, scheduled)


def test_a_loop_reads_and_writes_only_its_slice(
  analyzed: compiled_kernels.Analyze,
) -> None:
  steps, rows, width = 6, 256, 512

  def keep_all(weights: jax.Array, x: jax.Array) -> object:
    return jax.lax.scan(
      lambda h, w: (jnp.sin(h) + w.astype(jnp.float32), h), x, weights
    )

  def f32(weights: jax.Array, x: jax.Array) -> object:
    return keep_all(weights, x.astype(jnp.float32))

  analysis = analyzed(f32, (steps, rows, width), (rows, width))
  inside = [
    kernel
    for kernel in analysis.kernels.values()
    if kernel.executions == steps and kernel.result_elements > 1
  ]
  elements = rows * width
  assert {k.result_elements for k in inside} == {elements}
  # h and a slice of the weights: read, with sin(h) + w written. It reads the
  # loop's counter, too.
  computed = [k.num_bytes for k in inside if k.pattern != "memcpy"]
  assert computed == [elements * (4 + 2 + 4) + 4]
  # h, kept: read once and written once. From JAX 0.11 on XLA starts that beside
  # kernels, and before it is one of them.
  kept = [k.num_bytes for k in inside if k.pattern == "memcpy"]
  for copy in analysis.copies.values():
    assert copy.executions == steps
    kept.append(2 * copy.num_bytes)
  assert kept == [elements * (4 + 4)]


@pytest.mark.parametrize(
  ("operation", "num_bytes", "result_elements"),
  [
    ("f32[4,16] dynamic-slice(x, i, i), dynamic_slice_sizes={4,16}", 512, 64),
    ("f32[4,16] slice(x), slice={[0:4],[0:16]}", 512, 64),
    ("f32[64,16] dynamic-update-slice(x, u, i, i)", 512, 64),
    ("f32[64,16] negate(x)", 8192, 1024),
    ("f32[64,16] copy(x)", 8192, 1024),
  ],
)
def test_bytes_of_an_instruction_by_itself(
  operation: str, num_bytes: int, result_elements: int
) -> None:
  kernel = compiled_kernels.handwritten(f"""
    x = f32[64,16] parameter(0)
    u = f32[4,16] parameter(1)
    i = s32[] parameter(2)
    ROOT out = {operation}
  """)
  assert (kernel.num_bytes, kernel.result_elements) == (
    num_bytes,
    result_elements,
  )


def test_an_operand_read_in_whole_and_in_part_counts_once() -> None:
  kernel = compiled_kernels.handwritten(
    """
      x = f32[64,16] parameter(0)
      ROOT out = (f32[4,16], f32[64,16]) fusion(x), kind=kLoop, calls=f
    """,
    computations="""
      f {
        x = f32[64,16] parameter(0)
        flat = f32[1024] bitcast(x)
        back = f32[64,16] bitcast(flat)
        part = f32[4,16] slice(back), slice={[0:4],[0:16]}
        whole = f32[64,16] negate(x)
        ROOT out = (f32[4,16], f32[64,16]) tuple(part, whole)
      }
    """,
  )
  assert kernel.num_bytes == 4 * (1024 + 64 + 1024)
  assert kernel.result_elements == 1024


def _summing(name: str, *, inside: str) -> kernels.Kernel:
  return compiled_kernels.handwritten(
    f"""
      {name} = f32[64,16] parameter(0)
      ROOT {name}.out = f32[64] fusion({name}), kind=kInput, calls=f
    """,
    computations=f"""
      r {{
        a = f32[] parameter(0)
        b = f32[] parameter(1)
        ROOT c = f32[] add(a, b)
      }}
      f {{
        {name}.x = f32[64,16] parameter(0)
        zero = f32[] constant(0)
        y = f32[64,16] {inside}({name}.x)
        ROOT z = f32[64] reduce(y, zero), dimensions={{1}}, to_apply=r
      }}
    """,
  )


def test_a_fusion_is_the_same_kernel_by_any_name() -> None:
  one, other = (_summing(name, inside="negate") for name in ("one", "other"))

  assert (one.name, other.name) == ("one.out", "other.out")
  assert dataclasses.replace(one, name="other.out") == other


def test_fusions_of_one_form_that_do_other_things_are_other_kernels() -> None:
  computed = _summing("one", inside="negate")
  moved = _summing("one", inside="bitcast")

  assert computed.num_element_operations > moved.num_element_operations


def test_an_async_fusion_moves_what_the_fusion_moves() -> None:
  fusion = """
    f {
      x = f32[64,16] parameter(0)
      part = f32[4,16] slice(x), slice={[0:4],[0:16]}
      ROOT out = f32[4,16] negate(part)
    }
  """
  plain = compiled_kernels.handwritten(
    """
      x = f32[64,16] parameter(0)
      ROOT out = f32[4,16] fusion(x), kind=kLoop, calls=f
    """,
    computations=fusion,
  )
  asynchronous = compiled_kernels.handwritten(
    """
      x = f32[64,16] parameter(0)
      begin = ((f32[64,16]), f32[4,16]) fusion-start(x), kind=kLoop, calls=f
      ROOT out = f32[4,16] fusion-done(begin)
    """,
    computations=fusion,
  )
  assert plain.num_bytes == asynchronous.num_bytes == 2 * 4 * 64
  assert plain.category == asynchronous.category == "fusion"


def test_a_fusion_reads_only_what_its_results_depend_on() -> None:
  kernel = compiled_kernels.handwritten(
    """
      x = bf16[64,16] parameter(0)
      ROOT out = f32[4,16] fusion(x), kind=kLoop, calls=f
    """,
    computations="""
      f {
        x = bf16[64,16] parameter(0)
        wide = f32[64,16] convert(x)
        ROOT part = f32[4,16] slice(wide), slice={[0:4],[0:16]}
      }
    """,
  )
  assert kernel.num_bytes == 4 * 16 * (2 + 4)
  assert kernel.num_element_operations == 4 * 16
