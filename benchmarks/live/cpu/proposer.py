# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Proposer of ways to run a step on CPUs, ranked by their replays.

Of the step as it runs, the parts are measured, or at least its time. Every way
that the search has time for is scheduled by XLA and replayed with the costs
that explain that; those that should take less than the step as it is are
proposed, the quickest first.

Those are looked at first that most probably gain most. One group of all-reduces
pays gloo's latency once, and all-reduces one by one can each hide behind
products: what `benchmarks.live` adopted was mostly one of these. Strands and
slices come last. Few programs can have them, and they take other groups as well
as they find them.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
import dataclasses
import math
import threading

from absl import logging
import jax

from benchmarks.live.cpu import compiling
from benchmarks.live.cpu import fit
from benchmarks.live.cpu import replay
from lagom_xla import errors
from lagom_xla.live import proposals as proposals_lib
from lagom_xla.passes import collectives
from lagom_xla.passes import hlo

# Into how many groups the all-reduces go; and each alone, by a size of 0.
_NUM_GROUPS = (2, 4, 8)
_STRANDS = ("paired", "rotated")
_NUM_PIECES = (2, 4)


def likely_first(
  lowered: jax.stages.Lowered, best_group_bytes: Callable[[], int | None]
) -> Iterator[compiling.Way]:
  """Ways that differ in more than their order.

  The best groups of the program as it is written are known once all of these
  were looked at; other forms have them, too.
  """
  for group_bytes in _group_sizes(lowered):
    yield compiling.Way(group_bytes=group_bytes)
  for group_bytes in dict.fromkeys((best_group_bytes(), None)):
    for strands in _STRANDS:
      yield compiling.Way(strands=strands, group_bytes=group_bytes)
    for num_pieces in _NUM_PIECES:
      yield compiling.Way(num_pieces=num_pieces, group_bytes=group_bytes)


def _group_sizes(lowered: jax.stages.Lowered) -> list[int]:
  """Sizes that give all-reduces other groups, in bytes."""
  candidates = compiling.all_reduces(compiling.before_grouping(lowered))
  if len(candidates) < 2:
    return []
  total = sum(candidate.num_bytes for candidate in candidates)
  sizes = [total, 0, *(math.ceil(total / number) for number in _NUM_GROUPS)]
  by_groups: dict[object, int] = {}
  for size in sizes:
    by_groups.setdefault(compiling.groups(candidates, size), size)
  return list(by_groups.values())


_MOST_PROPOSALS = 6
# Step times that agree in so many digits of their ratio are equal.
_DIGITS = 2


@dataclasses.dataclass(frozen=True, kw_only=True)
class Foreseen:
  """A way as it would be scheduled, and its step time over the step's own.

  It runs what has a digest, in this order, and sends arrays of so many bytes.
  """

  way: compiling.Way
  ratio: float
  digest: str
  array_bytes: tuple[tuple[int, ...], ...]


class Foresight:
  """Foresees what ways take, beside the step as it is, by its costs."""

  def __init__(self, as_it_is: hlo.Module, costs: replay.Costs):
    self._found: list[Foreseen] = []
    self._costs = costs
    self._step_s = replay.step_s(as_it_is, costs)
    self._digest = compiling.order_of(as_it_is)
    self.take(compiling.AS_XLA_DOES, as_it_is)

  def take(self, way: compiling.Way, module: hlo.Module) -> None:
    """Adds a way, and the same with collectives behind products before it.

    Where those find no product, the two are one.
    """
    ordered = compiling.ordered(module)
    self._add(dataclasses.replace(way, is_ordered=True), ordered or module)
    if ordered is not None and way.is_as_written:
      self._add(way, module)

  def best(self) -> Sequence[Foreseen]:
    """The quickest few; of those that send the same and take as long, one.

    An order also keeps memory of collectives in flight from being used again,
    which no replay sees: of equal ones the ordered comes first.
    """
    different: dict[object, Foreseen] = {}
    for one in sorted(self._found, key=lambda one: round(one.ratio, _DIGITS)):
      ratio = round(one.ratio, _DIGITS)
      if ratio < 1 and one.digest != self._digest:
        different.setdefault((one.array_bytes, ratio), one)
    return list(different.values())[:_MOST_PROPOSALS]

  def best_group_bytes(self) -> int | None:
    """The groups of the quickest so far."""
    return min(self._found, key=lambda one: one.ratio).way.group_bytes

  def _add(self, way: compiling.Way, module: hlo.Module) -> None:
    self._found.append(
      Foreseen(
        way=way,
        ratio=replay.step_s(module, self._costs) / self._step_s,
        digest=compiling.order_of(module),
        array_bytes=tuple(one.array_bytes for one in collectives.find(module)),
      )
    )


class CpuProposer(proposals_lib.Proposer):
  """Proposes groups, orders, strands and slices; see `proposals.Proposer`."""

  def proposals(
    self,
    lowered: jax.stages.Lowered,
    measured: proposals_lib.Measured,
    stop: threading.Event,
  ) -> Generator[proposals_lib.Proposal, None, str | None]:
    """Yields the ways that should take less than the step does, best first."""
    as_it_is = compiling.schedule(lowered, compiling.AS_XLA_DOES)
    if not collectives.find(as_it_is):
      return "it has no collectives, and on CPUs nothing else is tuned"
    # All other ways have passes, so what holds for one holds for all.
    compiling.check_donation(lowered, compiling.Way(is_ordered=True))
    costs, is_predicted = _costs(as_it_is, measured)
    foresight = Foresight(as_it_is, costs)
    for way in likely_first(lowered, foresight.best_group_bytes):
      if stop.is_set():
        return None
      try:
        foresight.take(way, compiling.schedule(lowered, way))
      except errors.LagomError as error:
        logging.debug(
          "%s: %s", compiling.in_words(way), errors.first_line(error)
        )
    best = foresight.best()
    for one in best:
      yield proposals_lib.Proposal(
        name=compiling.in_words(one.way),
        payload=compiling.to_bytes(one.way),
        predicted_ratio=one.ratio if is_predicted else None,
      )
    return None if best else "no other way is foreseen to take less"

  def compile(
    self, lowered: jax.stages.Lowered, payload: bytes
  ) -> jax.stages.Compiled:
    """Compiles a proposal; see `proposals.Proposer`."""
    return compiling.compiled(lowered, compiling.from_bytes(payload))

  def digest(self, compiled: jax.stages.Compiled) -> str:
    """A hash of the collectives, in the order in which they run."""
    return compiling.digest(compiled)


def _costs(
  module: hlo.Module, measured: proposals_lib.Measured
) -> tuple[replay.Costs, bool]:
  """The host's costs, and whether they are good enough to predict by."""
  if measured.trace_dir is not None:
    try:
      return fit.costs(module, fit.usual(measured.trace_dir, module)), True
    except errors.TraceError as error:
      # Where the loop has given up, it is gone, and nobody waits for the costs.
      if measured.trace_dir.exists():
        logging.warning("lagom_xla.tune: no times of parts: %s", error)
  return fit.without_trace(module, measured.step_s), False
