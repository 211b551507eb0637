# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Foreseen ways of running a step: what each should take, and the best."""

from __future__ import annotations

from collections.abc import Sequence
import dataclasses

from lagom_xla.live.cpu import compiling
from lagom_xla.live.cpu import replay
from lagom_xla.live.cpu import way as way_lib
from lagom_xla.live.cpu import work
from lagom_xla.passes import collectives
from lagom_xla.passes import hlo

_MOST_PROPOSALS = 6
# Step times that agree in so many digits of their ratio are equal.
_DIGITS = 2


@dataclasses.dataclass(frozen=True, kw_only=True)
class Foreseen:
  """A way as it would be scheduled.

  Attributes:
    way: the way.
    ratio: its step time over that of the step as it is.
    digest: what it runs, in which order.
    collectives: bytes of their arrays, in their order.
  """

  way: way_lib.Way
  ratio: float
  digest: bytes
  collectives: tuple[tuple[int, ...], ...]

  @property
  def in_short(self) -> float:
    """The ratio, as far as it tells ways apart."""
    return round(self.ratio, _DIGITS)


class Foresight:
  """Foresees what ways take, beside the step as it is.

  Args:
    as_it_is: its module, scheduled.
    costs: that explain what it takes.

  Attributes:
    found: the ways so far.
  """

  def __init__(self, as_it_is: hlo.Module, costs: work.Costs):
    self.found: list[Foreseen] = []
    self._costs = costs
    self._step_s = replay.step_s(as_it_is, costs)
    self._digest = compiling.order_of(as_it_is)
    self.take(way_lib.AS_XLA_DOES, as_it_is)

  def take(self, way: way_lib.Way, module: hlo.Module) -> None:
    """Adds a way, and the same with collectives behind products before it.

    Where those find no product, the two are one.

    Args:
      way: the way, in XLA's order.
      module: the step in that way, scheduled.
    """
    ordered = compiling.ordered(module)
    behind = dataclasses.replace(way, is_ordered=True)
    self.found.append(self._foreseen(behind, ordered or module))
    if ordered is not None and way.is_as_written:
      self.found.append(self._foreseen(way, module))

  def best(self) -> Sequence[Foreseen]:
    """The quickest few; of those that send the same and take as long, one.

    An order also keeps memory of collectives in flight from being used again,
    which no replay sees: of equal ones the ordered comes first.
    """
    different: dict[object, Foreseen] = {}
    for one in sorted(self.found, key=lambda one: one.in_short):
      if one.in_short < 1 and one.digest != self._digest:
        different.setdefault((one.collectives, one.in_short), one)
    return list(different.values())[:_MOST_PROPOSALS]

  def best_group_bytes(self) -> int | None:
    """The groups of the quickest so far."""
    return min(self.found, key=lambda one: one.ratio).way.group_bytes

  def _foreseen(self, way: way_lib.Way, module: hlo.Module) -> Foreseen:
    return Foreseen(
      way=way,
      ratio=replay.step_s(module, self._costs) / self._step_s,
      digest=compiling.order_of(module),
      collectives=tuple(one.array_bytes for one in collectives.find(module)),
    )
