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

from lagom_xla.costs import collective as collective_lib
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
from lagom_xla.passes import source_lines
from lagom_xla.plan import made_for
from lagom_xla.search.xla import knobs

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
  found = sentences.lines(lines, graph, collective)
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
    said.append(f"with {in_words.some(new, _MOST_SETTINGS)}")
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


def by_collective(
  ran: Ran, lines: source_lines.SourceLines
) -> Mapping[str, list[explanation_lib.Slowed]]:
  """The kernels that each collective slows, those that lose most first."""
  sources = {}
  for computation in ran.step.analysis.sequences:
    for instruction in computation.instructions:
      if instruction.id in ran.step.analysis.kernels:
        sources[instruction.name] = instruction
  ranked = sorted(ran.replayed.slowdown_us.items(), key=lambda item: -item[1])
  found: dict[str, list[explanation_lib.Slowed]] = {}
  for (kernel, collective), us in ranked:
    source = str(lines.of_own(sources[kernel]))
    slowed = explanation_lib.Slowed(kernel=kernel, source=source, us=us)
    found.setdefault(collective, []).append(slowed)
  return found


# The most exposed collectives of a step are explained, so many at most; of the
# kernels that a collective slows, so many are named.
_MOST_EXPLAINED = 2048
_MOST_SLOWED = 3


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
  compared = with_plan(today, planned)
  return _explanation(before, _step(today, compared), _step(planned, {}))


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
    made_with=made_for.versions(),
    basis=step.basis,
    before=before,
    after=after,
  )


def _ran(step: step_lib.Step, configuration: step_lib.Configuration) -> Ran:
  runs = walk.walk(step, configuration)
  # Those of branches that are not taken do not run.
  exposed_us = dict.fromkeys((c.name for c in step.analysis.collectives), 0.0)
  for run in runs:
    for passage in run.passages:
      us = run.weight * passage.stall_us
      exposed_us[passage.name] += us
  return Ran(
    step=step,
    configuration=configuration,
    runs=runs,
    exposed_us=exposed_us,
    replayed=step.timeline(configuration),
  )


def _step(
  ran: Ran, with_plan: Mapping[str, explanation_lib.WithPlan]
) -> explanation_lib.Step:
  lines = source_lines.SourceLines(ran.step.analysis.module)
  subjects = _subjects(ran, lines)
  computations = {c.name: c for c in ran.step.analysis.sequences}
  slows = by_collective(ran, lines)
  found = []
  for collective in ran.step.analysis.collectives:
    home = computations[collective.computation]
    found.append(
      _collective(
        ran,
        collective,
        lines.of(home, home.by_id[collective.start_id]),
        subjects.get(collective.name),
        slows.get(collective.name, ()),
        with_plan.get(collective.name),
      )
    )
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


def _subjects(
  ran: Ran, lines: source_lines.SourceLines
) -> Mapping[str, sentences.Subject]:
  """The collectives that are exposed most, placed and taken apart."""
  step = ran.step
  exposed = [c for c in step.analysis.collectives if ran.exposed_us[c.name] > 0]
  exposed.sort(key=lambda c: -ran.exposed_us[c.name])
  by_home: dict[str, list[collectives_lib.Collective]] = {}
  for collective in exposed[:_MOST_EXPLAINED]:
    by_home.setdefault(collective.computation, []).append(collective)
  placed: dict[str, parts_lib.Place] = {}
  for computation in step.analysis.sequences:
    if some := by_home.get(computation.name):
      graph = dependencies.of(computation)
      placed |= dict(parts_lib.of_computation(graph, some))
  by_name = {c.name: c for c in exposed}
  taken_apart = parts_lib.of_runs(
    ran.runs,
    placed,
    is_sync=lambda name: by_name[name].form == "sync",
    apart_us=lambda name: sentences.lone_us(step, by_name[name]),
  )
  is_latency_hidden = knobs.is_latency_hiding(step.analysis.module)
  return {
    name: sentences.Subject(
      step=step,
      collective=by_name[name],
      place=place,
      parts=taken_apart[name],
      lines=lines,
      setting=ran.configuration[step.key_of[name]],
      is_latency_hidden=is_latency_hidden,
    )
    for name, place in placed.items()
  }


def _collective(
  ran: Ran,
  collective: collectives_lib.Collective,
  line: source_lines.SourceLine,
  subject: sentences.Subject | None,
  slows: Sequence[explanation_lib.Slowed],
  with_plan: explanation_lib.WithPlan | None,
) -> explanation_lib.Collective:
  name = collective.name
  key = ran.step.key_of[name]
  lone_us = ran.step.predict(key, ran.configuration[key]).time_us
  exposed_us = ran.exposed_us[name]
  parts = () if subject is None else _parts(subject)
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


def _parts(
  subject: sentences.Subject,
) -> tuple[explanation_lib.Part, ...]:
  """What is exposed of a collective by reason, the largest part first."""
  ranked = sorted(subject.parts.us.items(), key=lambda item: -item[1])
  return tuple(
    explanation_lib.Part(
      reason=reason, us=us, sentence=sentences.of_part(subject, reason)
    )
    for reason, us in ranked
  )
