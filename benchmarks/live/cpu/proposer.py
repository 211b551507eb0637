# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Proposes ways to run a step on CPUs, ranked by replays.

The parts of the current step are measured, or at least its time, and costs are
fitted to them. The search schedules as many ways as time allows with XLA, and
replays them with these costs. It proposes those that should be faster than the
current step, the fastest first.

The most promising ways are tried first. One group of all-reduces pays gloo's
latency once, and separate all-reduces can each hide behind products;
`benchmarks.live` mostly adopted one of these. Strands and slices come last: few
programs can have them, and they use the groups found before.
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

# Numbers of groups of all-reduces to try; a size of 0 keeps each alone.
_NUM_GROUPS = (2, 4, 8)
_STRANDS = ("paired", "rotated")
_NUM_PIECES = (2, 4)


def likely_first(
  lowered: jax.stages.Lowered, best_group_bytes: Callable[[], int | None]
) -> Iterator[compiling.Way]:
  """Ways that differ in more than their order, the most promising first.

  After all ways of the program as written, its best groups are known; other
  forms use these.
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
# Digits of step time ratios; times that agree in these are equal.
_DIGITS = 2


@dataclasses.dataclass(frozen=True, kw_only=True)
class Foreseen:
  """A way with its predicted step time, relative to the current step.

  `digest` is of its schedule, `array_bytes` of its collectives.
  """

  way: compiling.Way
  ratio: float
  digest: str
  array_bytes: tuple[tuple[int, ...], ...]


class Foresight:
  """Predicts times of ways, relative to the current step, from its costs."""

  def __init__(self, as_it_is: hlo.Module, costs: replay.Costs):
    self._found: list[Foreseen] = []
    self._costs = costs
    self._step_s = replay.step_s(as_it_is, costs)
    self._digest = compiling.order_of(as_it_is)
    self.take(compiling.AS_XLA_DOES, as_it_is)

  def take(self, way: compiling.Way, module: hlo.Module) -> None:
    """Adds a way with collectives behind products; as written, also without."""
    ordered = compiling.ordered(module)
    self._add(dataclasses.replace(way, is_ordered=True), ordered or module)
    if ordered is not None and way.is_as_written:
      self._add(way, module)

  def best(self) -> Sequence[Foreseen]:
    """The fastest few; only one of those with equal arrays and times.

    An order also keeps the memory of collectives in flight from being reused,
    which replays ignore, so among equal ways the ordered one comes first.
    """
    different: dict[object, Foreseen] = {}
    for one in sorted(self._found, key=lambda one: round(one.ratio, _DIGITS)):
      ratio = round(one.ratio, _DIGITS)
      if ratio < 1 and one.digest != self._digest:
        different.setdefault((one.array_bytes, ratio), one)
    return list(different.values())[:_MOST_PROPOSALS]

  def best_group_bytes(self) -> int | None:
    """The group size of the fastest way so far."""
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
    """Yields the ways that should be faster than the step, best first."""
    as_it_is = compiling.schedule(lowered, compiling.AS_XLA_DOES)
    if not collectives.find(as_it_is):
      return "it has no collectives, and on CPUs nothing else is tuned"
    # All other ways have passes, so one check is enough.
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
    return None if best else "no other way is predicted to be faster"

  def compile(
    self, lowered: jax.stages.Lowered, payload: bytes
  ) -> jax.stages.Compiled:
    """Compiles a proposal; see `proposals.Proposer`."""
    return compiling.compiled(lowered, compiling.from_bytes(payload))

  def digest(self, compiled: jax.stages.Compiled) -> str:
    """A hash of the collectives, in execution order."""
    return compiling.digest(compiled)


def _costs(
  module: hlo.Module, measured: proposals_lib.Measured
) -> tuple[replay.Costs, bool]:
  """The host's costs, and whether they are good enough for predictions."""
  if measured.trace_dir is not None:
    try:
      return fit.costs(module, fit.usual(measured.trace_dir, module)), True
    except errors.TraceError as error:
      # If the loop gave up, it removed the trace and does not wait for costs.
      if measured.trace_dir.exists():
        logging.warning("lagom_xla.tune: no times of parts: %s", error)
  return fit.without_trace(module, measured.step_s), False
