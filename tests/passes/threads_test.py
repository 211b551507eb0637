# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Threads of fusions are those that XLA launches for them."""

from __future__ import annotations

from collections.abc import Sequence
import pathlib
import re

import jax
import jax.numpy as jnp
import numpy as np

from lagom_xla.passes import hlo
from lagom_xla.passes import memory_access


def _num_launched(folder: pathlib.Path) -> dict[str, int]:
  """The threads of each kernel, as XLA dumps how it launches them."""
  (dumped,) = folder.glob("*.thunk_sequence.txt")
  launches = re.findall(
    r" (\S+) grid: \[(\d+), 1, 1\] threads: \[(\d+), 1, 1\]",
    dumped.read_text(encoding="utf-8"),
  )
  return {
    name: int(blocks) * int(of_block) for name, blocks, of_block in launches
  }


def test_concatenations_have_as_many_threads_as_xla_launches(
  h100s: Sequence[jax.Device], tmp_path: pathlib.Path
):
  """Of arrays that fill the GPU; XLA does not vectorize smaller ones."""
  mesh = jax.sharding.Mesh(np.array(h100s), ("x",))
  whole = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec())

  @jax.jit
  def concatenated(x: jax.Array) -> tuple[jax.Array, ...]:
    parts = [
      # What each operand has along the dimension: of 1024, 1023 and 1022, the
      # greatest divisor that four shares is four, one and two.
      [2 * x, 3 * x],
      [4 * x, 5 * x[:, 1:]],
      [6 * x, 7 * x[:, 2:]],
      [i * x for i in range(8, 20)],
    ]
    return tuple(jnp.concatenate(part, axis=1) for part in parts)

  x = jax.ShapeDtypeStruct((1024, 1024), jnp.float32, sharding=whole)
  compiled = concatenated.lower(x).compile(
    compiler_options={
      "xla_dump_to": str(tmp_path),
      "xla_dump_hlo_as_text": True,
    }
  )
  module = hlo.load(compiled)
  launched = _num_launched(tmp_path)
  elements = 1024 * 1024
  assert set(launched.values()) == {
    elements // 4,
    elements,
    elements // 2,
    12 * elements,
  }
  for fusion in module.entry.instructions:
    if fusion.opcode == "fusion":
      (fused,) = (module.computations[c] for c in fusion.called_computation_ids)
      assert (
        memory_access.threads_of_fusion(fused, fusion.fusion_kind)
        == launched[fusion.name.replace(".", "_")]
      )
