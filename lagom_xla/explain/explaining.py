# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""The explaining of a step, as it runs today and with a plan.

explaining.of_step(step)
explaining.of_plan(before, after, configuration)
explaining.of_run(step, configuration)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from lagom_xla.costs import lower_bound
from lagom_xla.costs import step as step_lib
from lagom_xla.explain import advice
from lagom_xla.explain import alike
from lagom_xla.explain import arrays
from lagom_xla.explain import explanation as explanation_lib
from lagom_xla.explain import parts as parts_lib
from lagom_xla.explain import places
from lagom_xla.explain import sentences
from lagom_xla.explain import slowed as slowed_lib
from lagom_xla.explain import subject as subject_lib
from lagom_xla.explain import sync
from lagom_xla.explain import walk
from lagom_xla.explain import words
from lagom_xla.passes import collectives as collectives_lib
from lagom_xla.passes import dependencies
from lagom_xla.passes import source_lines
from lagom_xla.plan import made_for
from lagom_xla.xla_schedule import latency_hiding

# The most exposed collectives of a step are explained, so many at most; of the
# kernels that a collective slows, so many are named.
_MOST_EXPLAINED = 2048
_MOST_SLOWED = 3


def of_step(step: step_lib.Step) -> explanation_lib.Explanation:
  """Explains a step as it runs today."""
  ran = _ran(step, step.default)
  return _explanation(ran, _step(ran, {}), None)


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
  compared = alike.with_plan(today, planned)
  return _explanation(today, _step(today, compared), _step(planned, {}))


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
  ran: alike.Ran,
  before: explanation_lib.Step,
  after: explanation_lib.Step | None,
) -> explanation_lib.Explanation:
  step = ran.step
  return explanation_lib.Explanation(
    module_name=step.analysis.module.name,
    cluster=step.cluster.name,
    made_with=made_for.versions(),
    basis=step.basis,
    before=before,
    after=after,
  )


def _ran(
  step: step_lib.Step, configuration: step_lib.Configuration
) -> alike.Ran:
  runs = walk.walk(step, configuration)
  # Those of branches that are not taken do not run.
  exposed_us = dict.fromkeys((c.name for c in step.analysis.collectives), 0.0)
  for run in runs:
    for passage in run.passages:
      us = run.weight * passage.stall_us
      exposed_us[passage.name] += us
  return alike.Ran(
    step=step,
    configuration=configuration,
    runs=runs,
    exposed_us=exposed_us,
    replayed=step.timeline(configuration),
  )


def _step(
  ran: alike.Ran, with_plan: Mapping[str, explanation_lib.WithPlan]
) -> explanation_lib.Step:
  lines = source_lines.SourceLines(ran.step.analysis.module)
  subjects = _subjects(ran, lines)
  computations = {c.name: c for c in ran.step.analysis.sequences}
  slows = slowed_lib.by_collective(ran, lines)
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
  ran: alike.Ran, lines: source_lines.SourceLines
) -> Mapping[str, subject_lib.Subject]:
  """The collectives that are exposed most, placed and taken apart."""
  step = ran.step
  exposed = [c for c in step.analysis.collectives if ran.exposed_us[c.name] > 0]
  exposed.sort(key=lambda c: -ran.exposed_us[c.name])
  by_home: dict[str, list[collectives_lib.Collective]] = {}
  for collective in exposed[:_MOST_EXPLAINED]:
    by_home.setdefault(collective.computation, []).append(collective)
  placed: dict[str, places.Place] = {}
  for computation in step.analysis.sequences:
    if some := by_home.get(computation.name):
      graph = dependencies.of(computation)
      placed |= dict(places.of_computation(graph, some))
  by_name = {c.name: c for c in exposed}
  taken_apart = parts_lib.of_runs(
    ran.runs,
    placed,
    is_sync=lambda name: by_name[name].form == "sync",
    apart_us=lambda name: arrays.lone_us(step, by_name[name]),
  )
  is_latency_hidden = latency_hiding.made(step.analysis.module)
  return {
    name: subject_lib.Subject(
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
  ran: alike.Ran,
  collective: collectives_lib.Collective,
  line: source_lines.SourceLine,
  subject: subject_lib.Subject | None,
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
    what=words.what(collective),
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
      sync.why(subject) if subject and collective.form == "sync" else ""
    ),
    why=sentences.of_parts(exposed_us, parts),
    parts=parts,
    slowed_us=sum(slowed.us for slowed in slows),
    slows=tuple(slows[:_MOST_SLOWED]),
    with_plan=with_plan,
    advice=() if subject is None else advice.of(subject),
  )


def _parts(
  subject: subject_lib.Subject,
) -> tuple[explanation_lib.Part, ...]:
  """What is exposed of a collective by reason, the largest part first."""
  ranked = sorted(subject.parts.us.items(), key=lambda item: -item[1])
  return tuple(
    explanation_lib.Part(
      reason=reason, us=us, sentence=sentences.of_part(subject, reason)
    )
    for reason, us in ranked
  )
