# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Proposer of ways to run a step on CPUs, ranked by their replays.

Of the step as it runs, the parts are measured, or at least its time. Every way
is scheduled by XLA and replayed with the costs that explain that; those that
should take less than the step as it is are proposed, the quickest first.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
import dataclasses
import math
import threading

from absl import logging
import jax

from lagom_xla import errors
from lagom_xla.live import proposals as proposals_lib
from lagom_xla.live.cpu import compiling
from lagom_xla.live.cpu import fit
from lagom_xla.live.cpu import grouping
from lagom_xla.live.cpu import replay
from lagom_xla.live.cpu import trace
from lagom_xla.live.cpu import way as way_lib
from lagom_xla.live.cpu import work
from lagom_xla.passes import collectives
from lagom_xla.passes import hlo

_MOST_PROPOSALS = 6
# Into how many groups the all-reduces go, beside each alone.
_NUM_GROUPS = (1, 2, 4, 8)
_STRANDS = ("paired", "rotated")
_NUM_PIECES = (2, 4)
# Step times that agree in so many digits of their ratio are equal.
_DIGITS = 2


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Foreseen:
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


class CpuProposer(proposals_lib.Proposer):
  """Proposes groups, orders, strands and slices; see `proposals.Proposer`."""

  def proposals(
    self,
    lowered: jax.stages.Lowered,
    measured: proposals_lib.Measured,
    stop: threading.Event,
  ) -> Generator[proposals_lib.Proposal, None, str | None]:
    """Yields the ways that should take less than the step does, best first.

    Raises:
      DonationLostError: the step donates, and this JAX would forget that.
    """
    as_it_is = compiling.schedule(lowered, way_lib.AS_XLA_DOES)
    if not collectives.find(as_it_is):
      return "it has no collectives, and on CPUs nothing else is tuned"
    # All other ways have passes, so what holds for one holds for all.
    compiling.check_donation(lowered, way_lib.Way(is_ordered=True))
    costs, is_predicted = _costs(as_it_is, measured)
    step_s = replay.step_s(as_it_is, costs)
    found: list[_Foreseen] = []
    for way in _ways(lowered, found):
      if stop.is_set():
        return None
      try:
        module = compiling.schedule(lowered, way)
      except errors.LagomError as error:
        logging.debug("%s: %s", way_lib.in_words(way), errors.first_line(error))
      else:
        ratio = replay.step_s(module, costs) / step_s
        sent = tuple(one.array_bytes for one in collectives.find(module))
        found.append(
          _Foreseen(
            way=way,
            ratio=ratio,
            digest=compiling.order_of(module),
            collectives=sent,
          )
        )
    best = _best(found, compiling.order_of(as_it_is))
    for one in best:
      yield proposals_lib.Proposal(
        name=way_lib.in_words(one.way),
        payload=way_lib.to_bytes(one.way),
        predicted_ratio=one.ratio if is_predicted else None,
      )
    return None if best else "no other way is foreseen to take less"

  def compile(
    self, lowered: jax.stages.Lowered, payload: bytes
  ) -> jax.stages.Compiled:
    """Compiles a proposal; see `proposals.Proposer`."""
    return compiling.compiled(lowered, way_lib.from_bytes(payload))

  def digest(self, compiled: jax.stages.Compiled) -> bytes:
    """A hash of the collectives, in the order in which they run."""
    return compiling.digest(compiled)


def _costs(
  module: hlo.Module, measured: proposals_lib.Measured
) -> tuple[work.Costs, bool]:
  """The host's costs, and whether they are good enough to predict by."""
  if measured.trace_dir is not None:
    try:
      return fit.costs(module, trace.usual(measured.trace_dir, module)), True
    except errors.TraceError as error:
      # Where the loop has given up, it is gone, and nobody waits for the costs.
      if measured.trace_dir.exists():
        logging.warning("lagom_xla.tune: no times of parts: %s", error)
  return fit.without_trace(module, measured.step_s), False


def _ways(
  lowered: jax.stages.Lowered, found: Sequence[_Foreseen]
) -> Iterator[way_lib.Way]:
  """Ways that a step could run in.

  Args:
    lowered: the step.
    found: those so far, which grows between the ways: the best groups of the
      program as it is written are those that other forms have.
  """
  yield way_lib.Way(is_ordered=True)
  for group_bytes in _group_sizes(lowered):
    yield way_lib.Way(group_bytes=group_bytes, is_ordered=True)
    yield way_lib.Way(group_bytes=group_bytes)
  best = min(found, key=lambda one: one.ratio, default=None)
  sizes = {None, best.way.group_bytes if best else None}
  for group_bytes in sizes:
    for strands in _STRANDS:
      yield way_lib.Way(
        strands=strands, is_ordered=True, group_bytes=group_bytes
      )
    for num_pieces in _NUM_PIECES:
      yield way_lib.Way(
        num_pieces=num_pieces, is_ordered=True, group_bytes=group_bytes
      )


def _group_sizes(lowered: jax.stages.Lowered) -> list[int]:
  """Sizes that give all-reduces other groups, in bytes."""
  candidates = grouping.all_reduces(compiling.before_grouping(lowered))
  if len(candidates) < 2:
    return []
  total = sum(candidate.num_bytes for candidate in candidates)
  sizes = [0, *(math.ceil(total / number) for number in _NUM_GROUPS)]
  by_groups = {grouping.groups(candidates, size): size for size in sizes}
  return list(by_groups.values())


def _best(found: Sequence[_Foreseen], as_it_is: bytes) -> Sequence[_Foreseen]:
  """The quickest few; of those that send the same and take as long, one.

  An order also keeps memory of collectives in flight from being used again,
  which no replay sees: of equal ones the ordered comes first.
  """
  different: dict[object, _Foreseen] = {}
  for one in sorted(found, key=lambda one: one.in_short):
    if one.in_short < 1 and one.digest != as_it_is:
      different.setdefault((one.collectives, one.in_short), one)
  return list(different.values())[:_MOST_PROPOSALS]
