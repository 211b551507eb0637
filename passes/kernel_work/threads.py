# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Threads that XLA launches for a fusion that goes through memory in order.

A thread computes four neighbouring elements, or one where XLA cannot vectorize
(xla/service/gpu/hlo_fusion_analysis.cc and gpu_fusible.cc): in an update in
place, beside operations that are calls, and in a loop over a concatenation of
more than ten operands. Where a concatenation has an emitter of its own
(emitters/concatenate.cc in xla/backends/gpu/codegen), a thread computes
neighbouring elements of every operand, as many of four as divide what each has
along the dimension; XLA of 2024 gave it one. Few bytes per thread keep little
of the memory's bandwidth in flight, so such kernels are bound by how fast
threads come and go.
"""

from __future__ import annotations

import math

from lagom_xla.passes import hlo

_ELEMENTS_PER_THREAD = 4
_MAX_OPERANDS_VECTORIZED = 10
# So it was in the XLA of 2024 that compiled the traced steps. jaxlib 0.10.2
# gives a thread four elements beside these, too (grids that it dumps for A100,
# H100 and B200; on B200 eight of bfloat16). Counted so, lone kernels of the
# H100 trace would be 15.0 % off in the median for 14.7, and its step as before.
_CALLS = frozenset(["atan2", "cosine", "power", "sine", "tan"])
# Emitters of their own, whose threads go on to further elements.
_TILED = frozenset(["reduce", "reduce-window", "scatter", "sort", "transpose"])


def of_fusion(fused: hlo.Computation, fusion_kind: str) -> int:
  """Threads of a fusion; 0 where they loop over elements.

  Args:
    fused: the computation that it runs.
    fusion_kind: "kLoop", "kInput" or another.
  """
  updates = updated_in_place(fused)
  if updates:
    return max(hlo.num_elements(fused.operands(u)[1].shape) for u in updates)
  opcodes = fused.opcodes
  if (
    fusion_kind == "kInput"
    and "concatenate" in opcodes
    and not (_TILED & opcodes)
  ):
    return max(_of_concatenation(fused, i) for i in _concatenations(fused))
  if fusion_kind != "kLoop":
    return 0
  elements = hlo.num_elements(fused.root.shape)
  if _CALLS & opcodes or any(
    len(i.operand_ids) > _MAX_OPERANDS_VECTORIZED
    for i in _concatenations(fused)
  ):
    return elements
  return math.ceil(elements / _ELEMENTS_PER_THREAD)


def _concatenations(fused: hlo.Computation) -> list[hlo.Instruction]:
  return [i for i in fused.instructions if i.opcode == "concatenate"]


def _of_concatenation(
  fused: hlo.Computation, concatenation: hlo.Instruction
) -> int:
  operands = fused.operands(concatenation)
  (dim,) = concatenation.dimensions
  sizes = [operand.shape.dimensions[dim] for operand in operands]
  largest = max(hlo.num_elements(operand.shape) for operand in operands)
  return math.ceil(largest / math.gcd(_ELEMENTS_PER_THREAD, *sizes))


def updated_in_place(fused: hlo.Computation) -> list[hlo.Instruction]:
  """The dynamic-update-slices that are a fusion's results, if all are.

  Only these are done in place; others are computed whole.
  """
  roots = [fused.root]
  if fused.root.opcode == "tuple":
    roots = fused.operands(fused.root)
  found = [fused.behind(root, ("bitcast",)) for root in roots]
  if all(i.opcode == "dynamic-update-slice" for i in found):
    return found
  return []
