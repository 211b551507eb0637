# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Cuts of values: a dimension, and how the pieces lie along it.

A dimension consists of `parts` blocks of one size, and piece j holds the j-th
piece of every block. A gathered sequence has a part per device, so that its
piece j is what gathering piece j of every device's own tokens gives. A single
part is cut in pieces that lie one after the other.
"""

from __future__ import annotations

from collections.abc import Sequence
import dataclasses
import math


@dataclasses.dataclass(frozen=True, slots=True)
class Cut:
  """How a value is cut in pieces.

  Attributes:
    dim: the dimension.
    parts: blocks of one size that the dimension consists of, each of which is
      cut in as many pieces.
  """

  dim: int
  parts: int = 1

  def max_pieces(self, shape: Sequence[int]) -> int:
    """The number that numbers of pieces must divide; 0 if there is none."""
    if self.dim >= len(shape):
      return 0
    size, remainder = divmod(shape[self.dim], self.parts)
    return 0 if remainder else size


# Of a list of values; None of those that every piece needs whole.
Cuts = tuple[Cut | None, ...]


def reshaped(
  cut: Cut, shape: Sequence[int], new_shape: Sequence[int]
) -> Cut | None:
  """The same pieces in another shape of the same elements.

  In row-major order a cut is known by how many blocks there are in all.

  Args:
    cut: of a value of the first shape.
    shape: sizes.
    new_shape: sizes with the same product.

  Returns:
    None where the pieces are no pieces of one dimension there.
  """
  num_blocks = math.prod(shape[: cut.dim]) * cut.parts
  before = 1
  for dim, size in enumerate(new_shape):
    if before <= num_blocks < before * size:
      found = Cut(dim, num_blocks // before)
      fits = num_blocks % before == 0 and found.max_pieces(new_shape)
      return found if fits else None
    before *= size
  return None
