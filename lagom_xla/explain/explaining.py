# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""The explaining of a step, as it runs today and with a plan.

explaining.of_step(step)
explaining.of_plan(before, after, configuration)
explaining.of_run(step, configuration)

With a plan, names differ from compile to compile, and collectives may be
combined that are now apart. So what is compared are all collectives of one kind
that come from the same source lines, those that are combined with others
together with these.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
import dataclasses
import functools
import pathlib

from lagom_xla.apply import checked
from lagom_xla.costs import in_words
from lagom_xla.costs import lower_bound
from lagom_xla.costs import step as step_lib
from lagom_xla.costs.replay import timeline
from lagom_xla.explain import advice
from lagom_xla.explain import explanation as explanation_lib
from lagom_xla.explain import parts as parts_lib
from lagom_xla.explain import sentences
from lagom_xla.explain import walk
from lagom_xla.passes import collectives as collectives_lib
from lagom_xla.passes import dependencies
from lagom_xla.passes import hlo
from lagom_xla.passes import source_lines
from lagom_xla.search.xla import knobs

_ms = in_words.milliseconds
# One may become the other, as XLA makes a reduce-scatter of an all-reduce.
_REDUCTIONS = ("all-reduce", "reduce-scatter")
# NCCL settings that a sentence names.
_MOST_SETTINGS = 2
# The most exposed collectives of a step are explained, so many at most; of the
# kernels that a collective slows, so many are named.
_MOST_EXPLAINED = 2048
_MOST_SLOWED = 3

_Line = tuple[str, str, int, bool]
# The key of collectives with neither a source line nor a named argument.
_NO_LINE: _Line = ("", "", 0, False)


def of_step(step: step_lib.Step) -> explanation_lib.Explanation:
  """Explains a step as it runs today."""
  return _explanation(step, of_run(step, step.default), None)


def of_plan(
  before: step_lib.Step,
  after: step_lib.Step,
  configuration: step_lib.Configuration,
) -> explanation_lib.Explanation:
  """Explains a step as it runs today, and what a plan makes of it.

  Args:
    before: the step without the plan.
    after: the step with it.
    configuration: the NCCL setting of each tuning key of the latter.
  """
  today, planned = _ran(before, before.default), _ran(after, configuration)
  with_plan: dict[str, explanation_lib.WithPlan] = {}
  for ours, theirs in _groups(_by_lines(today), _by_lines(planned)):
    compared = _compared(_alike(today, ours), _alike(planned, theirs))
    with_plan |= dict.fromkeys((c.name for c in ours), compared)
  return _explanation(before, _step(today, with_plan), _step(planned, {}))


def of_run(
  step: step_lib.Step, configuration: step_lib.Configuration
) -> explanation_lib.Step:
  """Explains a step under a configuration, for other reports to tell from.

  Args:
    step: what runs.
    configuration: the NCCL setting of each of its tuning keys.
  """
  return _step(_ran(step, configuration), {})


def _explanation(
  step: step_lib.Step,
  before: explanation_lib.Step,
  after: explanation_lib.Step | None,
) -> explanation_lib.Explanation:
  return explanation_lib.Explanation(
    module_name=step.analysis.module.name,
    cluster=step.cluster.name,
    made_with=checked.versions(),
    basis=step.basis,
    before=before,
    after=after,
  )


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Ran:
  """A step as it ran.

  Attributes:
    step: the step.
    configuration: the NCCL setting of each of its tuning keys.
    lines: of its module.
    homes: the computations that collectives stand in, by name.
    runs: of its computations, in order.
    exposed_us: collective -> how long its done held the compute stream.
    replayed: its timeline.
  """

  step: step_lib.Step
  configuration: step_lib.Configuration
  lines: source_lines.SourceLines
  homes: Mapping[str, hlo.Computation]
  runs: Sequence[walk.Run]
  exposed_us: Mapping[str, float]
  replayed: timeline.Timeline


def _ran(step: step_lib.Step, configuration: step_lib.Configuration) -> _Ran:
  runs, replayed = walk.walk(step, configuration)
  # Those of branches that are not taken do not run.
  exposed_us = dict.fromkeys((c.name for c in step.analysis.collectives), 0.0)
  for run in runs:
    for passage in run.passages:
      exposed_us[passage.name] += run.weight * passage.stall_us
  return _Ran(
    step=step,
    configuration=configuration,
    lines=source_lines.SourceLines(step.analysis.module),
    homes={c.name: c for c in step.analysis.sequences},
    runs=runs,
    exposed_us=exposed_us,
    replayed=replayed,
  )


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
  """A key for each line that an array is from; for each argument without."""
  kind = collective.kind
  if kind in _REDUCTIONS:
    kind = _REDUCTIONS[0]
  found = sentences.lines(lines, graph, collective)
  for line in found:
    if line.frames:
      # A module from the cache names files where another checkout has them.
      frame = line.frames[0]
      file = "/".join(pathlib.PurePath(frame.file).parts[-2:])
      yield kind, file, frame.line, line.is_backward
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


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Alike:
  """Collectives from the same lines, taken together.

  Attributes:
    names: theirs.
    exposed_us: what is exposed of them.
    slowed_us: what kernels lose to them.
    sizes: bytes of each, in order of size.
    runs: of all.
    num_beside: kernels between their starts and dones.
    settings: what NCCL runs them with, in words, each once.
  """

  names: tuple[str, ...]
  exposed_us: float
  slowed_us: float
  sizes: list[int]
  runs: int
  num_beside: int
  settings: list[str]


def _alike(ran: _Ran, some: Sequence[collectives_lib.Collective]) -> _Alike:
  names = tuple(c.name for c in some)
  those = frozenset(names)
  beside = ran.step.analysis.kernels_beside
  settings = {}
  for name in names:
    setting = in_words.setting(ran.configuration[ran.step.key_of[name]])
    algorithm, _, rest = setting.partition(", ")
    settings[f"{algorithm} ({rest})"] = None
  return _Alike(
    names=names,
    exposed_us=sum(ran.exposed_us[name] for name in names),
    slowed_us=sum(
      us for (_, name), us in ran.replayed.slowdown_us.items() if name in those
    ),
    sizes=sorted(c.nccl_bytes for c in some),
    runs=sum(c.executions for c in some),
    num_beside=sum(len(beside[c.start_id]) for c in some),
    settings=list(settings),
  )


def _compared(before: _Alike, after: _Alike) -> explanation_lib.WithPlan:
  changes = _changes(before, after)
  if len(before.names) == 1:
    said = f"It becomes {changes}" if changes else "It stays as it is"
  else:
    many = f"The {len(before.names):,} collectives from its lines"
    said = f"{many} become {changes}" if changes else f"{many} stay as they are"
  return explanation_lib.WithPlan(
    num_before=len(before.names),
    names=after.names,
    exposed_before_us=before.exposed_us,
    exposed_after_us=after.exposed_us,
    slowed_before_us=before.slowed_us,
    slowed_after_us=after.slowed_us,
    sentence=(
      f"{said}: exposed {_ms(before.exposed_us)} today,"
      f" {_ms(after.exposed_us)} with the plan; kernels lose"
      f" {_ms(before.slowed_us)} today, {_ms(after.slowed_us)} with it."
    ),
  )


def _changes(before: _Alike, after: _Alike) -> str:
  """How they differ, in words; "" where they do not."""
  if not after.names:
    return "part of others, or none"
  said = []
  if (before.sizes, before.runs) != (after.sizes, after.runs):
    many = in_words.count(after.names, "collective")
    of_runs = f" in {after.runs:,} runs" * (before.runs != after.runs)
    most = in_words.megabytes(after.sizes[-1])
    said.append(f"{many} of at most {most}{of_runs}")
  if before.num_beside != after.num_beside:
    beside = in_words.count(after.num_beside, "kernel")
    said.append(f"beside {beside} instead of {before.num_beside:,}")
  if before.settings != after.settings:
    said.append(f"with {in_words.some(after.settings, _MOST_SETTINGS)}")
  return ", ".join(said)


def _step(
  ran: _Ran, with_plan: Mapping[str, explanation_lib.WithPlan]
) -> explanation_lib.Step:
  subjects = _subjects(ran)
  slows = _slows(ran)
  found = [
    _collective(
      ran,
      collective,
      subjects.get(collective.name),
      slows.get(collective.name, ()),
      with_plan.get(collective.name),
    )
    for collective in ran.step.analysis.collectives
  ]
  found.sort(key=lambda c: (-c.exposed_us, -c.slowed_us))
  reasons_us: dict[str, float] = {}
  for one in found:
    for part in one.parts:
      reasons_us[part.reason] = reasons_us.get(part.reason, 0.0) + part.us
  exposed_us = sum(one.exposed_us for one in found)
  explained_us = sum(s.parts.exposed_us for s in subjects.values())
  return explanation_lib.Step(
    step_us=ran.replayed.step_time_us,
    exposed_us=exposed_us,
    lower_bound_us=lower_bound.us(ran.step),
    unexplained_us=max(exposed_us - explained_us, 0.0),
    reasons_us=dict(sorted(reasons_us.items(), key=lambda item: -item[1])),
    collectives=tuple(found),
  )


def _subjects(ran: _Ran) -> Mapping[str, sentences.Subject]:
  """The collectives that are exposed most, placed and taken apart."""
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
    )
    for name, place in placed.items()
  }


def _slows(ran: _Ran) -> Mapping[str, list[explanation_lib.Slowed]]:
  """The kernels that each collective slows, those that lose most first."""
  kernels = {
    instruction.name: instruction
    for computation in ran.step.analysis.sequences
    for instruction in computation.instructions
    if instruction.id in ran.step.analysis.kernels
  }
  found: dict[str, list[explanation_lib.Slowed]] = {}
  lost = ran.replayed.slowdown_us.items()
  for (kernel, collective), us in sorted(lost, key=lambda item: -item[1]):
    source = str(ran.lines.of_own(kernels[kernel]))
    slowed = explanation_lib.Slowed(kernel=kernel, source=source, us=us)
    found.setdefault(collective, []).append(slowed)
  return found


def _collective(
  ran: _Ran,
  collective: collectives_lib.Collective,
  subject: sentences.Subject | None,
  slows: Sequence[explanation_lib.Slowed],
  with_plan: explanation_lib.WithPlan | None,
) -> explanation_lib.Collective:
  name, key = collective.name, ran.step.key_of[collective.name]
  home = ran.homes[collective.computation]
  line = ran.lines.of(home, home.by_id[collective.start_id])
  lone_us = ran.step.predict(key, ran.configuration[key]).time_us
  exposed_us = ran.exposed_us[name]
  parts: tuple[explanation_lib.Part, ...] = ()
  if subject is not None:
    parts = tuple(
      explanation_lib.Part(
        reason=reason, us=us, sentence=sentences.of_part(subject, reason)
      )
      for reason, us in sorted(
        subject.parts.us.items(), key=lambda item: -item[1]
      )
    )
  return explanation_lib.Collective(
    name=name,
    what=sentences.what(collective),
    kind=collective.kind,
    form="sync" if collective.form == "sync" else "async",
    computation=collective.computation,
    num_bytes=collective.nccl_bytes,
    num_ranks=key.num_ranks,
    num_nodes=key.num_nodes,
    num_arrays=collective.num_operands,
    executions=collective.executions,
    file=line.frames[0].file if line.frames else "",
    line=line.frames[0].line if line.frames else 0,
    layer=line.layer,
    is_backward=line.is_backward,
    lone_us=lone_us * collective.executions,
    exposed_us=exposed_us,
    hideable_us=None if subject is None else subject.parts.hideable_us,
    unhideable_us=None if subject is None else subject.parts.unhideable_us,
    sync_because=(
      sentences.why(subject) if subject and collective.form == "sync" else ""
    ),
    why=sentences.of_parts(exposed_us, parts),
    parts=parts,
    slowed_us=sum(slowed.us for slowed in slows),
    slows=tuple(slows[:_MOST_SLOWED]),
    with_plan=with_plan,
    advice=() if subject is None else advice.of(subject),
  )
