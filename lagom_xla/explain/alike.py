# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Collectives from the same source lines, as they run today and with a plan.

Names differ from compile to compile, and a plan may combine collectives that
are now apart. So what is compared are all collectives of one kind that come
from the same lines, those that are combined with others together with these.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
import dataclasses

from lagom_xla.costs import collective as collective_lib
from lagom_xla.costs import in_words
from lagom_xla.costs import step as step_lib
from lagom_xla.costs.replay import timeline
from lagom_xla.explain import arrays
from lagom_xla.explain import explanation as explanation_lib
from lagom_xla.explain import walk
from lagom_xla.explain import words
from lagom_xla.passes import collectives as collectives_lib
from lagom_xla.passes import dependencies
from lagom_xla.passes import source_lines

_ms = in_words.milliseconds
# One may become the other, as XLA makes a reduce-scatter of an all-reduce.
_REDUCTIONS = ("all-reduce", "reduce-scatter")
# NCCL settings that a sentence names.
_MOST_SETTINGS = 2

_Line = tuple[str, str, int, bool]
# The key of collectives with neither a source line nor a named argument.
_NO_LINE: _Line = ("", "", 0, False)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Ran:
  """A step as it ran.

  Attributes:
    step: the step.
    configuration: the NCCL setting of each of its tuning keys.
    runs: of its computations, in order.
    exposed_us: collective -> how long its done held the compute stream.
    replayed: its timeline.
  """

  step: step_lib.Step
  configuration: step_lib.Configuration
  runs: Sequence[walk.Run]
  exposed_us: Mapping[str, float]
  replayed: timeline.Timeline


def with_plan(
  before: Ran, after: Ran
) -> Mapping[str, explanation_lib.WithPlan]:
  """What a plan makes of each collective that runs today, by its name."""
  found: dict[str, explanation_lib.WithPlan] = {}
  for ours, theirs in _groups(_lines(before.step), _lines(after.step)):
    compared = _compared(before, after, ours, theirs)
    found |= dict.fromkeys((c.name for c in ours), compared)
  return found


_ByLines = Sequence[tuple[collectives_lib.Collective, frozenset[_Line]]]


def _lines(step: step_lib.Step) -> _ByLines:
  """The source lines of each collective."""
  lines = source_lines.SourceLines(step.analysis.module)
  computations = {c.name: c for c in step.analysis.sequences}
  known: dict[str, dependencies.Graph] = {}
  found = []
  for collective in step.analysis.collectives:
    name = collective.computation
    if name not in known:
      known[name] = dependencies.of(computations[name])
    own = frozenset(_keys(lines, known[name], collective))
    found.append((collective, own))
  return found


def _keys(
  lines: source_lines.SourceLines,
  graph: dependencies.Graph,
  collective: collectives_lib.Collective,
) -> Iterator[_Line]:
  """A key for each line that an array is from; for each argument without."""
  kind = collective.kind
  if kind in _REDUCTIONS:
    kind = _REDUCTIONS[0]
  found = arrays.lines(lines, graph, collective)
  for line in found:
    if line.frames:
      frame = line.frames[0]
      yield kind, frame.file, frame.line, line.is_backward
    elif line.layer or len(found) == 1:
      yield kind, line.layer, 0, line.is_backward
  # JAX names arguments, and a gather of one has no line of its own.
  computation = graph.computation
  start = computation.by_id[collective.start_id]
  if not lines.of_own(start).frames or len(found) > 1:
    for operand in computation.operands(start):
      if operand.opcode == "parameter" and operand.metadata.op_name:
        yield kind, operand.metadata.op_name, 0, False


_Group = tuple[
  list[collectives_lib.Collective], list[collectives_lib.Collective]
]


def _groups(ours: _ByLines, theirs: _ByLines) -> Iterable[_Group]:
  """Collectives that have lines in common, directly or by way of others."""
  in_common: dependencies.DisjointSets[_Line] = dependencies.DisjointSets()
  for _, lines in (*ours, *theirs):
    first, *others = lines or [_NO_LINE]
    for other in others:
      in_common.join(other, first)
  groups: dict[_Line, _Group] = {}
  for index, by_lines in enumerate((ours, theirs)):
    for collective, lines in by_lines:
      first = in_common.find(next(iter(lines), _NO_LINE))
      groups.setdefault(first, ([], []))[index].append(collective)
  return groups.values()


def _compared(
  before: Ran,
  after: Ran,
  ours: Sequence[collectives_lib.Collective],
  theirs: Sequence[collectives_lib.Collective],
) -> explanation_lib.WithPlan:
  waits_us, waits_after_us = (
    _exposed_us(before, ours),
    _exposed_us(after, theirs),
  )
  slows_us, slows_after_us = _slowed_us(before, ours), _slowed_us(after, theirs)
  changes = _changes(before, after, ours, theirs)
  if len(ours) == 1:
    said = f"It becomes {changes}" if changes else "It stays as it is"
  else:
    many = f"The {len(ours):,} collectives from its lines"
    said = f"{many} become {changes}" if changes else f"{many} stay as they are"
  return explanation_lib.WithPlan(
    num_before=len(ours),
    names=tuple(c.name for c in theirs),
    exposed_before_us=waits_us,
    exposed_after_us=waits_after_us,
    slowed_before_us=slows_us,
    slowed_after_us=slows_after_us,
    sentence=(
      f"{said}: exposed {_ms(waits_us)} today, {_ms(waits_after_us)} with the"
      f" plan; kernels lose {_ms(slows_us)} today, {_ms(slows_after_us)} with"
      " it."
    ),
  )


def _exposed_us(ran: Ran, some: Iterable[collectives_lib.Collective]) -> float:
  return sum(ran.exposed_us.get(c.name, 0.0) for c in some)


def _slowed_us(ran: Ran, some: Iterable[collectives_lib.Collective]) -> float:
  names = {c.name for c in some}
  lost = ran.replayed.slowdown_us.items()
  return sum(us for (_, name), us in lost if name in names)


def _changes(
  before: Ran,
  after: Ran,
  ours: Sequence[collectives_lib.Collective],
  theirs: Sequence[collectives_lib.Collective],
) -> str:
  """How they differ, in words; "" where they do not."""
  if not theirs:
    return "part of others, or none"
  said = []
  old_sizes, sizes = _sizes(ours), _sizes(theirs)
  old_runs, runs = _runs(ours), _runs(theirs)
  if old_sizes != sizes or old_runs != runs:
    many = in_words.count(theirs, "collective")
    of_runs = f" in {runs:,} runs" if old_runs != runs else ""
    said.append(f"{many} of at most {in_words.megabytes(sizes[-1])}{of_runs}")
  old_beside, beside = _num_beside(before, ours), _num_beside(after, theirs)
  if old_beside != beside:
    said.append(
      f"beside {in_words.count(beside, 'kernel')} instead of {old_beside:,}"
    )
  new = _settings(after, theirs)
  if new != _settings(before, ours):
    said.append(f"with {words.some(new, _MOST_SETTINGS)}")
  return ", ".join(said)


def _sizes(some: Iterable[collectives_lib.Collective]) -> list[int]:
  return sorted(c.nccl_bytes for c in some)


def _runs(some: Iterable[collectives_lib.Collective]) -> int:
  return sum(c.executions for c in some)


def _num_beside(ran: Ran, some: Iterable[collectives_lib.Collective]) -> int:
  beside = ran.step.analysis.kernels_beside
  return sum(len(beside[c.start_id]) for c in some)


def _settings(
  ran: Ran, some: Iterable[collectives_lib.Collective]
) -> list[str]:
  """What NCCL runs them with, in words, each once."""
  settings = (ran.configuration[ran.step.key_of[c.name]] for c in some)
  return list(dict.fromkeys(map(_setting, settings)))


def _setting(setting: collective_lib.Setting) -> str:
  name, _, rest = in_words.setting(setting).partition(", ")
  return f"{name} ({rest})"
