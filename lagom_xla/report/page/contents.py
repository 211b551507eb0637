# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""The contents of a report page: of an inspection, or of a tuning.

A step is drawn from its recorded replay: slices as columns, each label once,
times rounded to a nanosecond. If a step has too many slices, the shortest are
joined to keep the page small; they are too short for any screen. Waits and
their reasons are those of `lagom-xla explain`.
"""

from __future__ import annotations

import bisect
from collections.abc import Iterator, Mapping, Sequence
import dataclasses
import itertools
import re
import shlex

from lagom_xla.apply import checked
from lagom_xla.costs import contention
from lagom_xla.costs import in_words
from lagom_xla.costs import lower_bound
from lagom_xla.costs import step as step_lib
from lagom_xla.costs import uncertainty
from lagom_xla.costs.replay import recorder
from lagom_xla.costs.replay import timeline as timeline_lib
from lagom_xla.explain import explaining
from lagom_xla.explain import explanation as explanation_lib
from lagom_xla.report import instructions as instructions_lib
from lagom_xla.report import notes
from lagom_xla.report import results
from lagom_xla.report import settings
from lagom_xla.report.page import report
from lagom_xla.tuner import tuning as tuning_lib

_DIGITS = 3
# Most slices of a step. If there are more, slices shorter than a share of the
# step are joined; the share doubles until few enough are left.
_MOST_SLICES = 16_000
_LEAST_SHARE = 1e-6

Instructions = Mapping[str, instructions_lib.Instruction]


def picture(
  name: str,
  recorded: recorder.Recording,
  replayed: timeline_lib.Timeline,
  instructions: Instructions,
) -> report.Picture:
  """The picture of a step, named "before" or "after"."""
  recorded = _unfolded(recorded)
  streams = _joined(recorded)
  names = dict.fromkeys(
    name
    for ran in itertools.chain(*streams.values())
    for name in (ran.name, *(other for other, _ in _beside(ran)))
    if name
  )
  index = {"": -1} | {name: i for i, name in enumerate(names)}
  return report.Picture(
    name=name,
    step_us=replayed.step_time_us,
    kernel_us=replayed.kernel_us,
    slowdown_us=replayed.total_slowdown_us + replayed.total_copy_slowdown_us,
    wait_us=replayed.total_exposed_us + replayed.total_copy_wait_us,
    labels=tuple(_label(name, instructions) for name in names),
    streams=tuple(
      report.Stream(
        name=stream,
        begin_us=tuple(round(s.begin_us, _DIGITS) for s in ran),
        end_us=tuple(round(s.end_us, _DIGITS) for s in ran),
        kind=tuple(s.kind for s in ran),
        label=tuple(index[s.name] for s in ran),
        lone_us=tuple(round(s.lone_us, _DIGITS) for s in ran),
        wait_us=tuple(round(s.wait_us, _DIGITS) for s in ran),
        num=tuple(max(s.num_trips, 1) for s in ran),
        beside=tuple(
          tuple((index[n], round(us, _DIGITS)) for n, us in _beside(s))
          for s in ran
        ),
      )
      for stream, ran in streams.items()
      if ran
    ),
    detail_us=_costliest_trip(recorded),
  )


def _label(name: str, instructions: Instructions) -> report.Label:
  """An instruction in words."""
  known = instructions.get(name)
  return report.Label(
    name=name,
    what=known.what if known else "",
    moves=known.moves if known else "",
    source=str(known.source) if known else "",
  )


def _lost_us(ran: recorder.Slice) -> float:
  return sum(us for _, us in ran.lost_us)


def _beside(ran: recorder.Slice) -> Sequence[tuple[str, float]]:
  """A slice's loss to each collective or copy; a sum for joined slices."""
  if ran.kind in ("folded", "several"):
    return [("", _lost_us(ran))]
  return ran.lost_us


def _unfolded(recorded: recorder.Recording) -> recorder.Recording:
  """A recording in which a fold of one trip is the trip before it again."""
  streams = {name: list[recorder.Slice]() for name in recorded.streams}
  for ran in sorted(recorded.slices, key=lambda s: s.end_us):
    before = streams[ran.stream]
    if ran.num_trips != 1:
      before.append(ran)
      continue
    trip_us = ran.time_us
    begin_us = ran.begin_us - trip_us
    first = bisect.bisect_right(
      before, begin_us + 10**-_DIGITS, key=lambda s: s.end_us
    )
    before += [
      dataclasses.replace(
        s,
        begin_us=max(s.begin_us, begin_us) + trip_us,
        end_us=s.end_us + trip_us,
      )
      for s in before[first:]
    ]
  return dataclasses.replace(
    recorded, slices=tuple(itertools.chain(*streams.values()))
  )


def _joined(
  recorded: recorder.Recording,
) -> Mapping[str, Sequence[recorder.Slice]]:
  """Each stream's slices; the shortest are joined if there are too many."""
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
  """Slices with runs of consecutive ones shorter than `least_us` joined."""
  short: list[recorder.Slice] = []
  for ran in slices:
    is_short = ran.time_us < least_us and ran.kind != "folded"
    if short and not (
      is_short
      and ran.begin_us - short[-1].end_us < least_us
      and short[-1].end_us - short[0].begin_us < least_us
    ):
      yield _several(short)
      short = []
    if is_short:
      short.append(ran)
    else:
      yield ran
  if short:
    yield _several(short)


def _several(slices: Sequence[recorder.Slice]) -> recorder.Slice:
  first, *others = slices
  if not others:
    return first
  return recorder.Slice(
    stream=first.stream,
    kind="several",
    name="",
    begin_us=first.begin_us,
    end_us=others[-1].end_us,
    lone_us=sum(ran.lone_us for ran in slices),
    lost_us=(("", sum(map(_lost_us, slices))),),
    wait_us=sum(ran.wait_us for ran in slices),
    num_trips=len(slices),
  )


def _costliest_trip(
  recorded: recorder.Recording,
) -> tuple[float, float] | None:
  """Begin and end of the trip before the fold with the largest losses.

  Without losses, it is the trip before the longest fold.
  """
  folds = [
    ran
    for ran in recorded.slices
    if ran.kind == "folded" and ran.stream == recorder.COMPUTE
  ]
  if not folds:
    return None
  fold = max(folds, key=lambda f: (f.wait_us + _lost_us(f), f.time_us))
  return fold.begin_us - fold.time_us / fold.num_trips, fold.begin_us


# Most collectives to examine, and most rows on a page.
_MOST_LOOKED_AT = 256
_MOST = 12
# Losses of a smaller share of the step are not explained.
_LEAST_EXPLAINED = 5e-4

# Differences that alike collectives may have in their slowdowns: figures, and
# numbers in names.
_FIGURES = re.compile(r"[\d.,]+")


def losses(
  step: step_lib.Step,
  configuration: step_lib.Configuration,
  instructions: Instructions,
) -> tuple[report.Collective, ...]:
  """The collectives with the highest cost: waits plus slowdowns of kernels.

  Alike collectives share a row, which describes the costliest of them.
  """
  explained = explaining.of_run(step, configuration)
  least_us = _LEAST_EXPLAINED * explained.step_us
  ranked = sorted(
    explained.collectives, key=lambda loss: -(loss.exposed_us + loss.slowed_us)
  )
  alike: dict[object, list[explanation_lib.Collective]] = {}
  firsts: dict[object, report.Collective] = {}
  for loss in ranked[:_MOST_LOOKED_AT]:
    label = _label(loss.name, instructions)
    slowed = why_slows = reason = ""
    if loss.slowed_us >= least_us and loss.slows:
      slowed = loss.slows[0].kernel
      why_slows = _why_slows(step, configuration, loss)
    if loss.exposed_us >= least_us and loss.parts:
      reason = loss.parts[0].reason
    kinds = tuple(array.kind for array in loss.moves)
    why = _FIGURES.sub("", why_slows)
    key = (label.what, kinds, label.source, reason, why)
    alike.setdefault(key, []).append(loss)
    first = report.Collective(
      label=label,
      num_others=0,
      executions=loss.executions,
      lone_us=loss.lone_us,
      wait_us=loss.exposed_us,
      slows_us=loss.slowed_us,
      why_waits=loss.why if reason else "",
      slowed=slowed,
      why_slows=why_slows,
    )
    firsts.setdefault(key, first)
  rows = [_together(firsts[key], some) for key, some in alike.items()]
  rows.sort(key=lambda loss: loss.wait_us + loss.slows_us, reverse=True)
  return tuple(rows[:_MOST])


def _why_slows(
  step: step_lib.Step,
  configuration: step_lib.Configuration,
  one: explanation_lib.Collective,
) -> str:
  """Why a collective slows the kernel that it slows most."""
  name, key = one.slows[0].kernel, step.key_of[one.name]
  num_channels = step.predict(key, configuration[key]).num_channels
  kernel = next(k for k in step.analysis.kernels.values() if k.name == name)
  cost, gpu = step.kernel_cost(kernel), step.cluster.gpu
  alone, beside = (
    contention.num_waves(cost, gpu, taken) for taken in (0, num_channels)
  )
  if not num_channels:
    return f"It takes no SM but shares memory bandwidth and L2 with {name}."
  takes = f"It takes {num_channels} of {gpu.num_sms} SMs"
  if beside > alone:
    return f"{takes}: {name} needs {beside:,} waves instead of {alone:,}."
  return f"{takes}, which {name} can spare; both share memory bandwidth and L2."


def _together(
  first: report.Collective, alike: Sequence[explanation_lib.Collective]
) -> report.Collective:
  """A collective's row, with the summed times of all alike collectives."""
  if len(alike) == 1:
    return first
  why = first.why_waits and f"For {first.label.name}, {first.why_waits}"
  return dataclasses.replace(
    first,
    num_others=len(alike) - 1,
    executions=sum(one.executions for one in alike),
    lone_us=sum(one.lone_us for one in alike),
    wait_us=sum(one.exposed_us for one in alike),
    slows_us=sum(one.slowed_us for one in alike),
    why_waits=why,
  )


def of_inspection(
  step: step_lib.Step,
  *,
  measured_us: float | None = None,
  advice: Sequence[explanation_lib.Advice] = (),
  following: Sequence[tuple[str, str]] = (),
) -> report.Report:
  """The report of a step as it runs today.

  Args:
    step: the step.
    measured_us: the median step time in a profile, if there is one.
    advice: advice on the program.
    following: the next commands, and what they do.
  """
  drawn, collectives = _drawn("before", step, step.default)
  before = uncertainty.times(step, step.default)
  return report.Report(
    module_name=step.analysis.module.name,
    cluster=step.cluster.name,
    made_with=checked.versions(),
    basis=step.basis,
    before=report.Estimate.of(uncertainty.step_time(before)),
    measured_us=measured_us,
    after=None,
    gain=None,
    lower_bound_us=lower_bound.us(step),
    notes=(*map(str, advice), *notes.step_notes(step)),
    pictures=(drawn,),
    collectives_before=collectives,
    collectives_after=(),
    settings=(),
    tried=(),
    commands=tuple(
      report.Command(words=f"{what}:".capitalize(), text=text)
      for text, what in following
    ),
  )


def of_tuning(
  tuning: tuning_lib.Tuning, *, folder: str, measured_us: float | None = None
) -> report.Report:
  """The report of a tuning whose plan is in `folder`."""
  default, kept = tuning.search.default, tuning.kept
  estimate = report.Estimate.of
  before = of_inspection(default.runs, measured_us=measured_us)
  after, collectives_after = _drawn("after", kept.runs, kept.settings)
  return dataclasses.replace(
    before,
    before=estimate(uncertainty.step_time(default.default_times)),
    after=estimate(uncertainty.step_time(kept.tuned_times)),
    gain=estimate(uncertainty.gain(default.default_times, kept.tuned_times)),
    lower_bound_us=tuning.lower_bound_us,
    notes=(
      *map(str, tuning.advice),
      *notes.tuning_notes(tuning),
      *_notes(tuning),
    ),
    pictures=(*before.pictures, after),
    collectives_after=collectives_after,
    settings=tuple(_settings(tuning)),
    tried=tuple(
      report.Tried(
        name=settings.config_in_words(candidate.config, tuning.search.arms),
        us=row.step_time_us,
        tuned_us=row.tuned_step_time_us,
        verdict=row.verdict,
      )
      for candidate, row in zip(
        tuning.candidates, results.candidates(tuning.search), strict=True
      )
    ),
    commands=tuple(_commands(tuning, folder)),
  )


def _drawn(
  name: str, step: step_lib.Step, configuration: step_lib.Configuration
) -> tuple[report.Picture, tuple[report.Collective, ...]]:
  recorded = recorder.record(step.program, step.costs(configuration))
  instructions = instructions_lib.of_step(step)
  return (
    picture(name, recorded, step.timeline(configuration), instructions),
    losses(step, configuration, instructions),
  )


def _notes(tuning: tuning_lib.Tuning) -> Iterator[str]:
  """Notes on facts that the terminal report shows outside its notes."""
  if tuning.stopped is not None:
    yield (
      f"The search was stopped by {tuning.stopped.reason}: the plan is the best"
      f" of {in_words.count(tuning.candidates, 'candidate')}, and its parts"
      " were not verified."
    )
  size, known = settings.peak_memory(tuning)
  if tuning.peak_bytes_before is not None:
    known = f"{size}, {known}"
  yield f"Peak memory: {known}."


def _settings(tuning: tuning_lib.Tuning) -> Iterator[report.Setting]:
  """All settings of a plan; the joint effect follows each group.

  A single setting's effect is not repeated.
  """
  for group in settings.groups(tuning):
    for one in group.settings:
      yield report.Setting(
        name=one.name, value=one.value, sentence=one.sentence
      )
    first, *others = group.settings
    if others or group.change not in first.sentence:
      yield report.Setting(
        name=group.name, value="together", sentence=f"The step: {group.change}."
      )


def _commands(
  tuning: tuning_lib.Tuning, folder: str
) -> Iterator[report.Command]:
  plan, place = tuning.plan, shlex.quote(folder)
  name = notes.program_name()
  if plan.is_default:
    yield report.Command(
      words="There is nothing to set: no configuration beats today's. What to"
      " change in the program:",
      text=f"{name} explain {place}",
    )
    return
  yield report.Command(
    words="In the script that starts each process, on every node, before"
    " Python:",
    text=f"source {place}/env.sh",
  )
  if plan.needs_process:
    yield report.Command(
      words="Around the step, because part of the plan works only in the"
      " process:",
      text=f"train_step = lagom_xla.tune(plan={folder!r})(train_step)",
    )
  yield report.Command(
    words="Before a long job, check that each setting still has an effect"
    " (TARGET is what you tuned):",
    text=f"{name} verify {place} TARGET --cluster={plan.cluster.name}",
  )
