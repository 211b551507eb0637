# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Explains a step as it runs today, and with a plan.

    explaining.of_step(step)
    explaining.of_plan(before, after, configuration)
    explaining.of_run(step, configuration)

Names differ between compiles, and a plan may combine collectives that are
separate today. So all collectives of one kind from the same source lines are
compared. If XLA combined collectives from several lines, these lines are
compared together.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
import functools
import pathlib

from lagom_xla.apply import checked
from lagom_xla.costs import in_words
from lagom_xla.costs import lower_bound
from lagom_xla.costs import step as step_lib
from lagom_xla.explain import explanation as explanation_lib
from lagom_xla.explain import parts as parts_lib
from lagom_xla.explain import sentences
from lagom_xla.passes import collectives as collectives_lib
from lagom_xla.passes import dependencies
from lagom_xla.passes import provenance
from lagom_xla.passes import source_lines
from lagom_xla.search.xla import knobs

_ms = in_words.milliseconds
_NOTHING_TRIED = sentences.Commands()
# These compare as one kind: XLA may turn an all-reduce into a reduce-scatter.
_REDUCTIONS = ("all-reduce", "reduce-scatter")
# Most NCCL settings in a sentence.
_MOST_SETTINGS = 2
# Most collectives to explain per step, most exposed first, and most slowed
# kernels to name for a collective.
_MOST_EXPLAINED = 2048
_MOST_SLOWED = 3

_Line = tuple[str, str, int, bool]
# The key of collectives with neither a source line nor a named argument.
_NO_LINE: _Line = ("", "", 0, False)


def of_step(
  step: step_lib.Step,
  advice: tuple[explanation_lib.Advice, ...] = (),
  commands: sentences.Commands = _NOTHING_TRIED,
) -> explanation_lib.Explanation:
  """Explains a step as it runs today, as `of_plan`."""
  ran = _Ran(step, step.default, commands)
  return _explanation(step, _step(ran, {}), None, advice)


def of_plan(
  before: step_lib.Step,
  after: step_lib.Step,
  configuration: step_lib.Configuration,
  advice: tuple[explanation_lib.Advice, ...] = (),
  commands: sentences.Commands = _NOTHING_TRIED,
) -> explanation_lib.Explanation:
  """Explains a step as it runs today, and with a plan.

  Args:
    before: the step as it runs today.
    after: the step with the plan.
    configuration: the plan's NCCL settings for `after`.
    advice: advice on the program.
    commands: the commands that try what else is advised.
  """
  today = _Ran(before, before.default, commands)
  planned = _Ran(after, configuration, commands)
  with_plan: dict[str, explanation_lib.WithPlan] = {}
  for ours, theirs in _groups(_by_lines(today), _by_lines(planned)):
    compared = _compared(today, planned, (ours, theirs))
    with_plan |= dict.fromkeys((c.name for c in ours), compared)
  explained = _step(today, with_plan)
  return _explanation(before, explained, _step(planned, {}), advice)


def of_run(
  step: step_lib.Step, configuration: step_lib.Configuration
) -> explanation_lib.Step:
  """Explains a step under a configuration, for use in other reports."""
  return _step(_Ran(step, configuration), {})


def _explanation(
  step: step_lib.Step,
  before: explanation_lib.Step,
  after: explanation_lib.Step | None,
  advice: tuple[explanation_lib.Advice, ...],
) -> explanation_lib.Explanation:
  return explanation_lib.Explanation(
    module_name=step.analysis.module.name,
    cluster=step.cluster.name,
    made_with=checked.versions(),
    basis=step.basis,
    before=before,
    after=after,
    calls_that_may_communicate=tuple(
      dict.fromkeys(step.calls_that_may_communicate.values())
    ),
    advice=advice,
  )


class _Ran:
  """A step as it ran under NCCL settings.

  For each collective, it has the time that its done blocks the compute stream,
  and the kernels that it slows, largest loss first.
  """

  def __init__(
    self,
    step: step_lib.Step,
    configuration: step_lib.Configuration,
    commands: sentences.Commands = _NOTHING_TRIED,
  ):
    self.step, self.configuration = step, configuration
    self.commands = commands
    self.runs, replayed = parts_lib.replayed(step, configuration)
    self.step_us = replayed.step_time_us
    self.copy_wait_us = replayed.total_copy_wait_us
    self.lines = source_lines.SourceLines(step.analysis.module)
    self.arrays = provenance.of(step.analysis.module)
    self.homes = {c.name: c for c in step.analysis.sequences}
    # Collectives in branches that are not taken stay at 0.
    self.exposed_us = {c.name: 0.0 for c in step.analysis.collectives}
    for run in self.runs:
      for passage in run.passages:
        self.exposed_us[passage.name] += run.weight * passage.stall_us
    kernels = {k.name: k for k in step.analysis.kernels.values()}
    self.slows: dict[str, list[explanation_lib.Slowed]] = {}
    lost = replayed.slowdown_us.items()
    for (name, collective), us in sorted(lost, key=lambda item: -item[1]):
      kernel = kernels[name]
      home = self.homes[kernel.computation]
      source = self.lines.of_own(home.by_id[kernel.instruction_id])
      self.slows.setdefault(collective, []).append(
        explanation_lib.Slowed(kernel=name, source=str(source), us=us)
      )

  def slowed_us(self, name: str) -> float:
    """The time by which a collective slows kernels."""
    return sum(slowed.us for slowed in self.slows.get(name, ()))


_ByLines = Sequence[tuple[collectives_lib.Collective, frozenset[_Line]]]


def _by_lines(ran: _Ran) -> _ByLines:
  """The collectives of a step, with their source lines."""
  graph = functools.cache(lambda name: dependencies.of(ran.homes[name]))
  return [
    (c, frozenset(_lines(ran.lines, graph(c.computation), c)))
    for c in ran.step.analysis.collectives
  ]


def _lines(
  lines: source_lines.SourceLines,
  graph: dependencies.Graph,
  collective: collectives_lib.Collective,
) -> Iterator[_Line]:
  """A key for each array's source line, or for each argument without one."""
  kind = collective.kind
  if kind in _REDUCTIONS:
    kind = _REDUCTIONS[0]
  found = sentences.lines(lines, graph, collective)
  for line in found:
    if line.frames:
      # A cached module may have the paths of another checkout.
      frame = line.frames[0]
      file = "/".join(pathlib.PurePath(frame.file).parts[-2:])
      yield kind, file, frame.line, line.is_backward
    elif line.layer or len(found) == 1:
      yield kind, line.layer, 0, line.is_backward
  # An all-gather of an argument has no line, but the argument has a name.
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
  """Groups of collectives that share lines, directly or transitively."""
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
  today: _Ran, planned: _Ran, group: _Group
) -> explanation_lib.WithPlan:
  """The effect of a plan on the collectives from some lines."""
  ours, theirs = group
  both = ((today, ours), (planned, theirs))
  exposed_us, slowed_us = (
    [sum(of(ran, c.name) for c in some) for ran, some in both]
    for of in (lambda ran, name: ran.exposed_us[name], _Ran.slowed_us)
  )
  verbs, subject = ("becomes", "runs", "does not change"), "It"
  if len(ours) != 1:
    verbs = "become", "run", "do not change"
    subject = f"The {len(ours):,} collectives from these lines"
  become, run, same = verbs
  changes = ", ".join(_changes(today, planned, group))
  verb = run if changes.startswith(("beside", "with")) else become
  said = f"{verb} {changes}" if changes else same
  return explanation_lib.WithPlan(
    num_before=len(ours),
    names=tuple(c.name for c in theirs),
    exposed_before_us=exposed_us[0],
    exposed_after_us=exposed_us[1],
    slowed_before_us=slowed_us[0],
    slowed_after_us=slowed_us[1],
    sentence=(
      f"{subject} {said}. Kernels wait {_ms(exposed_us[0])} today and"
      f" {_ms(exposed_us[1])} with the plan, and are slowed by"
      f" {_ms(slowed_us[0])} today and {_ms(slowed_us[1])} with the plan."
    ),
  )


def _changes(today: _Ran, planned: _Ran, group: _Group) -> Iterator[str]:
  """The changes of a plan to the collectives from some lines, in words."""
  ours, theirs = group
  if not theirs:
    yield "part of other collectives, or go away"
    return
  sizes, runs = (
    [sorted(c.nccl_bytes for c in some) for some in group],
    [sum(c.executions for c in some) for some in group],
  )
  if sizes[0] != sizes[1] or runs[0] != runs[1]:
    of_runs = f" in {runs[1]:,} runs" * (runs[0] != runs[1])
    yield (
      f"{in_words.count(theirs, 'collective')} of at most"
      f" {in_words.megabytes(sizes[1][-1])}{of_runs}"
    )
  both = ((today, ours), (planned, theirs))
  before, after = (
    sum(len(ran.step.analysis.kernels_beside[c.start_id]) for c in some)
    for ran, some in both
  )
  if before != after:
    yield f"beside {in_words.count(after, 'kernel')} instead of {before:,}"
  own, new = ([*dict.fromkeys(_settings(*one))] for one in both)
  if own != new:
    yield f"with {in_words.some(new, _MOST_SETTINGS)}"


def _settings(
  ran: _Ran, some: Sequence[collectives_lib.Collective]
) -> Iterator[str]:
  """The NCCL settings of collectives, or what else runs them, in words."""
  for collective in some:
    if (by := ran.step.run_by(collective)) != "NCCL":
      yield in_words.run_by(by)
      continue
    setting = ran.configuration[ran.step.key_of[collective.name]]
    algorithm, _, rest = in_words.setting(setting).partition(", ")
    yield f"{algorithm} ({rest})"


def _step(
  ran: _Ran, with_plan: Mapping[str, explanation_lib.WithPlan]
) -> explanation_lib.Step:
  subjects = _subjects(ran)
  found = [
    _collective(ran, one, subjects.get(one.name), with_plan.get(one.name))
    for one in ran.step.analysis.collectives
  ]
  found.sort(key=lambda c: (-c.exposed_us, -c.slowed_us))
  reasons_us: dict[str, float] = {}
  for one in found:
    for part in one.parts:
      reasons_us[part.reason] = reasons_us.get(part.reason, 0.0) + part.us
  exposed_us = sum(one.exposed_us for one in found)
  explained_us = sum(s.parts.exposed_us for s in subjects.values())
  return explanation_lib.Step(
    step_us=ran.step_us,
    exposed_us=exposed_us,
    copy_wait_us=ran.copy_wait_us,
    lower_bound_us=lower_bound.us(ran.step),
    unexplained_us=max(exposed_us - explained_us, 0.0),
    reasons_us=dict(sorted(reasons_us.items(), key=lambda item: -item[1])),
    between_products_us=sum(
      map(sentences.between_products_us, subjects.values())
    ),
    in_process_us=sum(map(sentences.in_process_us, subjects.values())),
    collectives=tuple(found),
  )


def _subjects(ran: _Ran) -> Mapping[str, sentences.Subject]:
  """The most exposed collectives, with their places and parts."""
  step = ran.step
  exposed = [c for c in step.analysis.collectives if ran.exposed_us[c.name] > 0]
  exposed.sort(key=lambda c: -ran.exposed_us[c.name])
  by_home: dict[str, list[collectives_lib.Collective]] = {}
  for collective in exposed[:_MOST_EXPLAINED]:
    by_home.setdefault(collective.computation, []).append(collective)
  placed = {
    place.collective.name: place
    for name, home in ran.homes.items()
    if name in by_home
    for place in parts_lib.of_computation(dependencies.of(home), by_home[name])
  }
  taken_apart = parts_lib.of_runs(ran.runs, placed, step)
  is_latency_hidden = knobs.is_latency_hiding(step.analysis.module)
  return {
    name: sentences.Subject(
      step=step,
      place=place,
      parts=taken_apart[name],
      lines=ran.lines,
      setting=ran.configuration[step.key_of[name]],
      is_latency_hidden=is_latency_hidden,
      commands=ran.commands,
    )
    for name, place in placed.items()
  }


def _collective(
  ran: _Ran,
  collective: collectives_lib.Collective,
  subject: sentences.Subject | None,
  with_plan: explanation_lib.WithPlan | None,
) -> explanation_lib.Collective:
  name, key = collective.name, ran.step.key_of[collective.name]
  home = ran.homes[collective.computation]
  line = ran.lines.of(home, home.by_id[collective.start_id])
  frame = line.frames[0] if line.frames else None
  cost = ran.step.cost_of(collective, ran.configuration[key])
  exposed_us, is_sync = ran.exposed_us[name], collective.form == "sync"
  parts: tuple[explanation_lib.Part, ...] = ()
  if subject is not None:
    by_us = sorted(subject.parts.us.items(), key=lambda item: -item[1])
    parts = tuple(
      explanation_lib.Part(
        reason=reason, us=us, sentence=sentences.of_part(subject, reason)
      )
      for reason, us in by_us
    )
  return explanation_lib.Collective(
    name=name,
    what=sentences.what(collective),
    kind=collective.kind,
    form="sync" if is_sync else "async",
    computation=collective.computation,
    num_bytes=collective.nccl_bytes,
    num_ranks=key.num_ranks,
    num_nodes=key.num_nodes,
    num_arrays=collective.num_operands,
    moves=ran.arrays.moved(collective),
    executions=collective.executions,
    file=frame.file if frame else "",
    line=frame.line if frame else 0,
    layer=line.layer,
    is_backward=line.is_backward,
    run_by=ran.step.run_by(collective),
    num_sms=cost.num_channels,
    lone_us=cost.time_us * collective.executions,
    exposed_us=exposed_us,
    hideable_us=subject.parts.hideable_us if subject else None,
    unhideable_us=subject.parts.unhideable_us if subject else None,
    sync_because=sentences.why(subject) if subject and is_sync else "",
    why=sentences.of_parts(exposed_us, parts),
    parts=parts,
    slowed_us=ran.slowed_us(name),
    slows=tuple(ran.slows.get(name, ())[:_MOST_SLOWED]),
    with_plan=with_plan,
    advice=sentences.advice(subject) if subject else (),
  )
