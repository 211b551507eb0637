# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""The drawing of a recorded step: its slices as columns, its labels once each.

Times are kept to a nanosecond. A step of very many slices has its shortest ones
joined, as no screen shows them, so that its page stays small.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from lagom_xla.costs.replay import recorder
from lagom_xla.costs.replay import timeline as timeline_lib
from lagom_xla.report.page import story as story_lib
from lagom_xla.report.wording import instructions as instructions_lib

_DIGITS = 3
# Slices of a step that are kept; where there are more, those are joined that
# are shorter than a share of the step, doubled until no more are left.
_MOST_SLICES = 16_000
_LEAST_SHARE = 1e-6

Instructions = Mapping[str, instructions_lib.Instruction]


def picture(
  name: str,
  recorded: recorder.Recording,
  replayed: timeline_lib.Timeline,
  instructions: Instructions,
) -> story_lib.Picture:
  """A step, drawn.

  Args:
    name: "before" or "after".
    recorded: what ran when.
    replayed: the timeline of the same.
    instructions: the step's, by name.
  """
  labels = _Labels(instructions)
  streams = tuple(
    _stream(stream, ran, labels)
    for stream, ran in _joined(recorded).items()
    if ran
  )
  return story_lib.Picture(
    name=name,
    step_us=replayed.step_time_us,
    kernel_us=replayed.kernel_us,
    slowdown_us=replayed.total_slowdown_us + replayed.total_copy_slowdown_us,
    wait_us=replayed.total_exposed_us + replayed.total_copy_wait_us,
    labels=tuple(labels.found),
    streams=streams,
    detail_us=_costliest_trip(recorded),
  )


def label(name: str, instructions: Instructions) -> story_lib.Label:
  """An instruction in words."""
  known = instructions.get(name)
  if known is None:
    return story_lib.Label(name=name, what="", source="")
  return story_lib.Label(name=name, what=known.what, source=str(known.source))


class _Labels:
  """Words of instructions, each kept once."""

  def __init__(self, instructions: Instructions):
    self.found: list[story_lib.Label] = []
    self._index: dict[str, int] = {}
    self._instructions = instructions

  def __getitem__(self, name: str) -> int:
    if not name:
      return -1
    if name not in self._index:
      self._index[name] = len(self.found)
      self.found.append(label(name, self._instructions))
    return self._index[name]


def _stream(
  name: str, ran: Sequence[recorder.Slice], labels: _Labels
) -> story_lib.Stream:
  return story_lib.Stream(
    name=name,
    begin_us=tuple(round(s.begin_us, _DIGITS) for s in ran),
    end_us=tuple(round(s.end_us, _DIGITS) for s in ran),
    kind=tuple(s.kind for s in ran),
    label=tuple(labels[s.name] for s in ran),
    lone_us=tuple(round(s.lone_us, _DIGITS) for s in ran),
    wait_us=tuple(round(_wait_us(s), _DIGITS) for s in ran),
    num=tuple(max(s.num_trips, 1) for s in ran),
    beside=tuple(_beside(s, labels) for s in ran),
  )


def _wait_us(ran: recorder.Slice) -> float:
  return ran.time_us if ran.kind == "wait" else ran.wait_us


def _beside(
  ran: recorder.Slice, labels: _Labels
) -> tuple[tuple[int, float], ...]:
  if ran.kind in ("folded", "several"):
    lost_us = sum(us for _, us in ran.lost_us)
    return ((-1, round(lost_us, _DIGITS)),)
  return tuple((labels[name], round(us, _DIGITS)) for name, us in ran.lost_us)


def _joined(
  recorded: recorder.Recording,
) -> Mapping[str, Sequence[recorder.Slice]]:
  """The slices of each stream, the shortest joined where they are too many."""
  slices: dict[str, Sequence[recorder.Slice]] = {
    name: [ran for ran in recorded.slices if ran.stream == name]
    for name in recorded.streams
  }
  least_us = _LEAST_SHARE * recorded.step_time_us
  joined = slices
  while sum(map(len, joined.values())) > _MOST_SLICES:
    joined = {name: list(_join(ran, least_us)) for name, ran in slices.items()}
    least_us *= 2
  return joined


def _join(
  slices: Sequence[recorder.Slice], least_us: float
) -> Iterator[recorder.Slice]:
  """Slices, those joined that are shorter than a time and follow each other."""
  short: list[recorder.Slice] = []
  for ran in slices:
    is_short = ran.time_us < least_us and ran.kind != "folded"
    gap_us = ran.begin_us - short[-1].end_us if short else 0.0
    is_full = short and short[-1].end_us - short[0].begin_us >= least_us
    if short and (not is_short or is_full or gap_us >= least_us):
      yield _several(short)
      short = []
    if is_short:
      short.append(ran)
    else:
      yield ran
  if short:
    yield _several(short)


def _several(slices: Sequence[recorder.Slice]) -> recorder.Slice:
  if len(slices) == 1:
    return slices[0]
  lost_us = sum(us for ran in slices for _, us in ran.lost_us)
  return recorder.Slice(
    stream=slices[0].stream,
    kind="several",
    name="",
    begin_us=slices[0].begin_us,
    end_us=slices[-1].end_us,
    lone_us=sum(ran.lone_us for ran in slices),
    lost_us=(("", lost_us),),
    wait_us=sum(map(_wait_us, slices)),
    num_trips=len(slices),
  )


def _costliest_trip(
  recorded: recorder.Recording,
) -> tuple[float, float] | None:
  """The last trip before the fold that loses most; the longest if none does."""
  folds = [
    ran
    for ran in recorded.slices
    if ran.kind == "folded" and ran.stream == recorder.COMPUTE
  ]
  if not folds:
    return None
  fold = max(
    folds, key=lambda f: (f.wait_us + sum(us for _, us in f.lost_us), f.time_us)
  )
  return fold.begin_us - fold.time_us / fold.num_trips, fold.begin_us
