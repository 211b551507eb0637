# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Sentences on an exposed collective: why it is, with names and lines."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
import dataclasses

from lagom_xla.costs import collective as collective_lib
from lagom_xla.costs import in_words
from lagom_xla.costs import step as step_lib
from lagom_xla.explain import explanation as explanation_lib
from lagom_xla.explain import parts as parts_lib
from lagom_xla.passes import collectives as collectives_lib
from lagom_xla.passes import dependencies
from lagom_xla.passes import hlo
from lagom_xla.passes import kernels as kernels_lib
from lagom_xla.passes import source_lines

# Scopes that tell which part of a layer something is.
_NUM_SCOPES = 2

# Reasons as a table has them.
REASONS: Mapping[parts_lib.Reason, str] = {
  "slowed": "slowed by kernels beside it",
  "queue": "behind another on the stream",
  "sync": "sync, not async",
  "started_late": "started later than it could",
  "awaited_early": "awaited before its first use",
  "combined": "combined with others",
  "operand_late": "operand late",
  "consumer_early": "consumer early",
  "stream_busy": "kernels hide others already",
  "too_long": "slower than all that can hide it",
  "no_slack": "no slack in the program",
}


def what(collective: collectives_lib.Collective, platform: str = "GPU") -> str:
  """What a collective does."""
  kind, num_bytes = collective.kind, collective.nccl_bytes
  if not collective.group_size:
    return f"{kind} of {in_words.megabytes(num_bytes)}"
  return in_words.tuning_key(kind, num_bytes, collective.group_size, platform)


def place(line: source_lines.SourceLine) -> str:
  """A source line with the innermost scopes around it."""
  at = str(line.frames[0]) if line.frames else ""
  layer = "/".join(line.layer.split("/")[-_NUM_SCOPES:])
  return ", ".join(filter(None, (at, layer)))


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Subject:
  """A collective that is exposed, in a step.

  `is_latency_hidden` is whether XLA's latency-hiding scheduler made that.
  """

  step: step_lib.Step
  place: parts_lib.Place
  parts: parts_lib.Parts
  lines: source_lines.SourceLines
  setting: collective_lib.Setting
  is_latency_hidden: bool

  @property
  def collective(self) -> collectives_lib.Collective:
    """Itself."""
    return self.place.collective

  @property
  def key(self) -> collective_lib.TuningKey:
    """Its tuning key."""
    return self.step.key_of[self.collective.name]

  @property
  def lone_us(self) -> float:
    """One run of it alone."""
    return self.step.predict(self.key, self.setting).time_us

  @property
  def maker(self) -> hlo.Instruction | None:
    """The instruction that makes its last operand; None if none here does."""
    return self._at(self.place.span.ready)

  @property
  def user(self) -> hlo.Instruction | None:
    """The instruction that needs its result first; None if none here does."""
    return self._at(self.place.span.used)

  def kernel(
    self, instruction: hlo.Instruction | None
  ) -> kernels_lib.Kernel | None:
    """The kernel that an instruction launches, if it does."""
    kernels = self.step.analysis.kernels
    return None if instruction is None else kernels.get(instruction.id)

  def named(self, instruction: hlo.Instruction) -> str:
    """An instruction's name, with its source line if it has one."""
    at = place(self.lines.of_own(instruction))
    return f"{instruction.name} ({at})" if at else instruction.name

  def _at(self, position: int) -> hlo.Instruction | None:
    instructions = self.place.computation.instructions
    is_here = 0 <= position < len(instructions)
    return instructions[position] if is_here else None


# Combined arrays that a sentence names.
_MOST_NAMED = 2


def lines(
  module_lines: source_lines.SourceLines,
  graph: dependencies.Graph,
  collective: collectives_lib.Collective,
) -> Sequence[source_lines.SourceLine]:
  """The source line of each array.

  It is that of the first instruction that has one: what takes the array out of
  the collective's result, then what makes it, then what uses it.
  """
  computation = graph.computation
  start = computation.by_id[collective.start_id]
  num = collective.num_operands
  if num < 2 or len(start.operand_ids) != num:
    return [module_lines.of(computation, start)]
  done_id = collective.done_id
  parts = parts_lib.part_ids(
    graph, collective.start_id if done_id is None else done_id, num
  )
  found = []
  for operand_id, ids in zip(start.operand_ids, parts, strict=True):
    users = [user for id_ in ids for user in graph.users[id_]]
    near = (*ids, operand_id, *users)
    own = (module_lines.of_own(computation.by_id[id_]) for id_ in near)
    found.append(next(filter(None, own), source_lines.SourceLine()))
  return found


def _combined(subject: Subject) -> str:
  """Which arrays XLA combined, and which is late and which needed early."""
  computation = subject.place.computation
  start = computation.by_id[subject.collective.start_id]
  spans = subject.place.arrays
  names = [
    computation.instructions[span.ready].name
    if span.ready >= 0
    else computation.by_id[operand_id].name
    for span, operand_id in zip(spans, start.operand_ids, strict=True)
  ]
  found = lines(subject.lines, subject.place.graph, subject.collective)
  named = [
    f"{name} ({place(line)})" if line else name
    for name, line in zip(names, found, strict=True)
  ]
  last = max(range(len(spans)), key=lambda i: spans[i].ready)
  first = min(range(len(spans)), key=lambda i: spans[i].used)
  return (
    f"XLA combined {in_words.count(names, 'array')}:"
    f" {in_words.some(named, _MOST_NAMED)}; it waits for {names[last]}, the"
    f" last to be there, and {names[first]} is needed first"
  )


def why(subject: Subject) -> str:
  """Why a sync collective is sync, as far as its schedule shows."""
  if not subject.is_latency_hidden:
    return "XLA's latency-hiding scheduler did not make this schedule"
  if subject.parts.hideable_us <= 0:
    return "no kernel of its computation could run beside it"
  computation = subject.place.computation
  others = [
    other.name
    for other in subject.step.analysis.collectives
    if other.form == "async"
    and other.computation == computation.name
    and computation.position[other.start_id]
    < subject.place.start
    < parts_lib.done_at(computation, other)
  ]
  if others:
    return (
      f"{in_words.some(others)} {'is' if len(others) == 1 else 'are'} in flight"
      " there, and XLA's scheduler keeps one collective in flight by default"
    )
  if "sync" not in subject.parts.us:
    return (
      "in this order no kernel that is independent of it comes between what"
      " makes its operands and what needs its result"
    )
  return (
    "XLA's scheduler put no kernel between its start and its done, by its own"
    " costs"
  )


_ms = in_words.milliseconds
# Parts that a sentence has room for, and the least share that is worth it.
_MOST_PARTS = 2
_LEAST_SHARE = 0.1


def of_parts(exposed_us: float, parts: tuple[explanation_lib.Part, ...]) -> str:
  """The first parts of some, the largest first, in a sentence; "" for none."""
  if exposed_us <= 0 or not parts:
    return ""
  shown = [
    part for part in parts[:_MOST_PARTS] if part.us >= _LEAST_SHARE * exposed_us
  ] or list(parts[:1])
  said = "; ".join(f"{_ms(p.us)}: {p.sentence}" for p in shown)
  rest_us = exposed_us - sum(part.us for part in shown)
  more = f"; {_ms(rest_us)} for other reasons" if rest_us > 0.5 else ""
  return f"{said}{more}."


def of_part(subject: Subject, reason: parts_lib.Reason) -> str:
  """What a part of its exposed time is due to, without a full stop."""
  maker, user = subject.maker, subject.user
  home = subject.collective.computation
  end, used = f"the end of {home}", subject.named(user) if user else ""
  since = f"from the beginning of {home}"
  if maker is not None:
    since = f"after {subject.named(maker)}"
  match reason:
    case "slowed":
      return "kernels beside it take memory bandwidth from it"
    case "queue":
      return (
        f"{_most(subject.parts.ahead_us)} was ahead of it on the communication"
        " stream"
      )
    case "sync":
      return f"it is sync: {why(subject)}"
    case "started_late":
      return f"its operands are there {since}, and XLA starts it later"
    case "awaited_early":
      return f"XLA waits for it earlier than {used or end} needs it"
    case "combined":
      return _combined(subject)
    case "operand_late":
      return (
        f"its operand comes late, {since}; independent kernels before that"
        " could have hidden it"
      )
    case "consumer_early":
      return (
        f"it is needed early, {f'by {used}' if used else f'at {end}'};"
        " independent kernels after that could have hidden it"
      )
    case "stream_busy":
      return (
        "the kernels that could hide it hide others, such as"
        f" {_most(subject.parts.beside_us)}"
      )
    case "too_long":
      lone_us = subject.lone_us * subject.collective.executions
      return (
        f"it takes {_ms(lone_us)}, and all kernels that are independent of it"
        f" {_ms(subject.parts.hideable_us)}"
      )
    case "no_slack":
      return (
        "no slack: all kernels of its computation either come before it or"
        " wait for it"
      )


def _most(others_us: Mapping[str, float]) -> str:
  """The other collective that most is due to."""
  if not others_us:
    return "another"
  name = max(others_us, key=lambda other: others_us[other])
  more = len(others_us) - 1
  return f"{name} (and {more:,} more)" if more else name
