# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""The contents of a report page: of an inspection, or of a tuning.

A step is drawn from its recorded replay: its slices as columns, its labels once
each, times to a nanosecond. A step of very many slices has its shortest ones
joined, as no screen shows them, so that its page stays small. Waits and their
reasons are those of `lagom-xla explain`. What an XLA option of a plan replaces
is what XLA runs with today, XLA_FLAGS included, as the installed jaxlib tells.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
import dataclasses
import re
import shlex

from lagom_xla import plan as plan_lib
from lagom_xla.apply import checked
from lagom_xla.compile import config as config_lib
from lagom_xla.compile import rewriting
from lagom_xla.costs import contention
from lagom_xla.costs import in_words
from lagom_xla.costs import lower_bound
from lagom_xla.costs import step as step_lib
from lagom_xla.costs import uncertainty
from lagom_xla.costs.replay import recorder
from lagom_xla.costs.replay import timeline as timeline_lib
from lagom_xla.explain import explaining
from lagom_xla.explain import explanation as explanation_lib
from lagom_xla.explain import parts as parts_lib
from lagom_xla.explain import sentences
from lagom_xla.passes.schedule import orders as orders_lib
from lagom_xla.report import instructions as instructions_lib
from lagom_xla.report import notes
from lagom_xla.report import tried
from lagom_xla.report.page import report
from lagom_xla.search.xla import arms as arms_lib
from lagom_xla.tuner import tuning as tuning_lib
from lagom_xla.verify import effects as effects_lib
from lagom_xla.verify import nccl_effects

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
) -> report.Picture:
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
  return report.Picture(
    name=name,
    step_us=replayed.step_time_us,
    kernel_us=replayed.kernel_us,
    slowdown_us=replayed.total_slowdown_us + replayed.total_copy_slowdown_us,
    wait_us=replayed.total_exposed_us + replayed.total_copy_wait_us,
    labels=tuple(labels.found),
    streams=streams,
    detail_us=_costliest_trip(recorded),
  )


def label_of(name: str, instructions: Instructions) -> report.Label:
  """An instruction in words."""
  known = instructions.get(name)
  if known is None:
    return report.Label(name=name, what="", source="")
  return report.Label(name=name, what=known.what, source=str(known.source))


class _Labels:
  """Words of instructions, each kept once."""

  def __init__(self, instructions: Instructions):
    self.found: list[report.Label] = []
    self._index: dict[str, int] = {}
    self._instructions = instructions

  def __getitem__(self, name: str) -> int:
    if not name:
      return -1
    if name not in self._index:
      self._index[name] = len(self.found)
      self.found.append(label_of(name, self._instructions))
    return self._index[name]


def _stream(
  name: str, ran: Sequence[recorder.Slice], labels: _Labels
) -> report.Stream:
  return report.Stream(
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


# Collectives that are looked at, and rows that a page has for them.
_MOST_LOOKED_AT = 256
_MOST = 12
# Losses of a smaller share of the step are not explained.
_LEAST_EXPLAINED = 5e-4

# What may differ in the kernels that alike collectives slow: figures, and
# numbers in names.
_FIGURES = re.compile(r"[\d.,]+")


def losses(
  step: step_lib.Step,
  configuration: step_lib.Configuration,
  instructions: Instructions,
) -> tuple[report.Collective, ...]:
  """The collectives that cost a step most, waits and slowed kernels together.

  Args:
    step: the step.
    configuration: the NCCL settings that it runs with.
    instructions: the step's, by name.
  """
  explained = explaining.of_run(step, configuration)
  least_us = _LEAST_EXPLAINED * explained.step_us

  def num_channels(name: str) -> int:
    key = step.key_of[name]
    return step.predict(key, configuration[key]).num_channels

  ranked = sorted(explained.collectives, key=_cost_us, reverse=True)
  groups: dict[tuple[str, ...], list[explanation_lib.Collective]] = {}
  for one in ranked[:_MOST_LOOKED_AT]:
    label = label_of(one.name, instructions)
    key = (
      *(label.what, label.source),
      _mostly(one, least_us),
      _FIGURES.sub("", _slowed(step, one, num_channels(one.name), least_us)[1]),
    )
    groups.setdefault(key, []).append(one)
  found = [
    _collective(
      step, alike, num_channels(alike[0].name), instructions, least_us
    )
    for alike in groups.values()
  ]
  found.sort(key=lambda one: one.wait_us + one.slows_us, reverse=True)
  return tuple(found[:_MOST])


def _cost_us(one: explanation_lib.Collective) -> float:
  return one.exposed_us + one.slowed_us


def _mostly(one: explanation_lib.Collective, least_us: float) -> str:
  """The reason that most of its wait is due to; "" where that is too short."""
  if one.exposed_us < least_us or not one.parts:
    return ""
  return one.parts[0].reason


def _collective(
  step: step_lib.Step,
  alike: Sequence[explanation_lib.Collective],
  num_channels: int,
  instructions: Instructions,
  least_us: float,
) -> report.Collective:
  """Collectives that are alike, in the words of the one that costs most."""
  first, *others = alike
  slowed, why_slows = _slowed(step, first, num_channels, least_us)
  wait_us = sum(one.exposed_us for one in alike)
  is_told = bool(_mostly(first, least_us))
  return report.Collective(
    label=label_of(first.name, instructions),
    num_others=len(others),
    executions=sum(one.executions for one in alike),
    lone_us=sum(one.lone_us for one in alike),
    wait_us=wait_us,
    slows_us=sum(one.slowed_us for one in alike),
    why_waits=sentences.of_parts(wait_us, _parts(alike)) if is_told else "",
    slowed=slowed,
    why_slows=why_slows,
  )


def _parts(
  alike: Sequence[explanation_lib.Collective],
) -> tuple[explanation_lib.Part, ...]:
  """The parts of all, each in the words of the first that has it."""
  if len(alike) == 1:
    return alike[0].parts
  found: dict[parts_lib.Reason, explanation_lib.Part] = {}
  for one in alike:
    for part in one.parts:
      first = found.get(part.reason)
      us, words = 0.0, f"as in {one.name}, {part.sentence}"
      if first is not None:
        us, words = first.us, first.sentence
      found[part.reason] = dataclasses.replace(
        part, us=us + part.us, sentence=words
      )
  return tuple(sorted(found.values(), key=lambda part: -part.us))


def _slowed(
  step: step_lib.Step,
  one: explanation_lib.Collective,
  num_channels: int,
  least_us: float,
) -> tuple[str, str]:
  """The kernel that loses most to a collective, and why; "" for too little."""
  if one.slowed_us < least_us or not one.slows:
    return "", ""
  name = one.slows[0].kernel
  return name, _why_slows(step, name, num_channels)


def _why_slows(step: step_lib.Step, name: str, num_channels: int) -> str:
  """Why a kernel is slower beside a collective of so many channels."""
  kernel = next(k for k in step.analysis.kernels.values() if k.name == name)
  cost, gpu = step.kernel_cost(kernel), step.cluster.gpu
  alone = contention.num_waves(cost, gpu, 0)
  beside = contention.num_waves(cost, gpu, num_channels)
  takes = f"It takes {num_channels} of {gpu.num_sms} SMs"
  if beside > alone:
    return f"{takes}: {name} runs in {beside:,} waves instead of {alone:,}."
  return f"{takes}, which {name} can spare; they share memory bandwidth and L2."


_ms = in_words.milliseconds


def settings(tuning: tuning_lib.Tuning) -> tuple[report.Setting, ...]:
  """All settings of a tuning's plan."""
  return tuple(_all(tuning))


def config_in_words(config: config_lib.XlaConfig) -> str:
  """What a config sets, in a line."""
  parts = [
    f"{name.removeprefix('xla_gpu_')}={in_words.option(name, str(value))}"
    for name, value in config.options.items()
  ]
  parts += [value for _, value in _beyond_options(config)]
  return ", ".join(parts) or "as it runs today"


def _all(tuning: tuning_lib.Tuning) -> Iterator[report.Setting]:
  plan = tuning.plan
  effects = {effect.knob: effect for effect in tuning.effects}
  seen = {knob: _seen(effect) for knob, effect in effects.items()}
  for name, value in plan.xla.options.items():
    yield report.Setting(
      name=name,
      value=in_words.option(name, str(value)),
      sentence=_sentence(_replaces(name, effects.get(name)), seen.get(name)),
    )
  for name, value in _beyond_options(plan.xla):
    acts = "acts where the step is wrapped in lagom_xla.tune(plan=...)"
    yield report.Setting(
      name=name, value=value, sentence=_sentence(acts, seen.get(name))
    )
  if not plan.xla.is_default:
    yield _xla_together(tuning)
  for name, value in plan.nccl_env.items():
    instead = "instead of NCCL's own, where no tuner plugin can be loaded"
    yield report.Setting(
      name=name, value=value, sentence=_sentence(instead, seen.get(name))
    )
  for entry in plan.nccl_settings:
    yield _nccl(tuning, entry)


def _replaces(name: str, effect: effects_lib.Effect | None) -> str:
  value = effect.replaces if effect else effects_lib.replaced_value(name)
  return f"instead of {in_words.option(name, value)}"


def _seen(effect: effects_lib.Effect) -> str:
  """What an effect was seen to be, and the step without and with it."""
  if effect.without_us is None or effect.with_us is None:
    return effect.evidence
  return (
    f"{effect.evidence}; the step takes {_ms(effect.without_us)} without it and"
    f" {_ms(effect.with_us)} with it"
  )


def _xla_together(tuning: tuning_lib.Tuning) -> report.Setting:
  """What all of the above does: options act in pairs, so only that adds up."""
  return report.Setting(
    name="all of these for XLA",
    value="together",
    sentence=(
      "With nothing else set the step takes"
      f" {_ms(tried.xla_us(tuning))} with them and"
      f" {_ms(tuning.timeline_before.step_time_us)} without."
    ),
  )


def _sentence(*parts: str | None) -> str:
  """Parts as one sentence."""
  text = "; ".join(part for part in parts if part)
  return f"{text[:1].upper()}{text[1:]}."


def _beyond_options(
  config: config_lib.XlaConfig,
) -> Iterator[tuple[str, str]]:
  if not config.program.is_as_written:
    yield "form of the program", rewriting.in_words(config.program)
  if config.combine_groups is not None:
    yield (
      "combine groups",
      f"{in_words.count(config.combine_groups, 'group')} of ours",
    )
  if config.scheduler_profile is not None:
    yield "scheduler profile", "costs with contention, for XLA's scheduler"
  if config.orders:
    yield "order", orders_lib.in_words(config.orders)


def _nccl(
  tuning: tuning_lib.Tuning, entry: plan_lib.NcclSetting
) -> report.Setting:
  """A NCCL setting: its collectives' time alone and the step, with and without.

  Alone they may well take longer: they leave SMs and memory to kernels.
  """
  step, key = tuning.kept.runs, entry.key
  lone_us = [
    step.executions[key] * step.predict(key, setting).time_us
    for setting in (entry.default, entry.setting)
  ]
  old, new = (
    nccl_effects.setting_in_words(entry, setting)
    for setting in (entry.default, entry.setting)
  )
  gained_us = entry.gain_us
  step_us = tuning.timeline_after.step_time_us
  sentence = (
    f"instead of {old}; these collectives take"
    f" {_ms(lone_us[0])} per step alone without it and"
    f" {_ms(lone_us[1])} with it, and the step"
    f" {_ms(step_us + gained_us)} without it and"
    f" {_ms(step_us)} with it, a gain of {_ms(gained_us)}"
    f" (of which {_ms(entry.worst_gain_us)} are left"
    f" {in_words.supposing(entry.worst_if)})"
  )
  return report.Setting(
    name=in_words.tuning_key(key.kind, key.num_bytes, key.num_ranks),
    value=new,
    sentence=_sentence(sentence),
  )


_estimate = report.Estimate.of
_PictureOf = tuple[report.Picture, tuple[report.Collective, ...]]


def of_inspection(
  step: step_lib.Step, *, measured_us: float | None = None
) -> report.Story:
  """What a page tells of a step as it runs today.

  Args:
    step: the step.
    measured_us: what it takes by a profile, if there is one.
  """
  drawn, collectives = _drawn("before", step, step.default)
  before = uncertainty.times(step, step.default)
  return report.Story(
    module_name=step.analysis.module.name,
    cluster=step.cluster.name,
    made_with=checked.versions(),
    basis=step.basis,
    before=_estimate(uncertainty.step_time(before)),
    measured_us=measured_us,
    after=None,
    gain=None,
    lower_bound_us=lower_bound.us(step),
    notes=tuple(notes.step_notes(step)),
    pictures=(drawn,),
    collectives_before=collectives,
    collectives_after=(),
    settings=(),
    tried=(),
    commands=(),
  )


def of_tuning(
  tuning: tuning_lib.Tuning, *, folder: str, measured_us: float | None = None
) -> report.Story:
  """What a page tells of a tuning.

  Args:
    tuning: what was found.
    folder: where its plan is.
    measured_us: what the step takes by a profile, if there is one.
  """
  default, kept = tuning.search.default, tuning.kept
  step = default.runs
  before, collectives_before = _drawn("before", step, step.default)
  after, collectives_after = _drawn("after", kept.runs, kept.settings)
  return report.Story(
    module_name=tuning.plan.module_name,
    cluster=tuning.plan.cluster.name,
    made_with=checked.versions(),
    basis=step.basis,
    before=_estimate(uncertainty.step_time(default.default_times)),
    measured_us=measured_us,
    after=_estimate(uncertainty.step_time(kept.tuned_times)),
    gain=_estimate(uncertainty.gain(default.default_times, kept.tuned_times)),
    lower_bound_us=tuning.lower_bound_us,
    notes=(*notes.step_notes(step), *_notes_on_plan(tuning)),
    pictures=(before, after),
    collectives_before=collectives_before,
    collectives_after=collectives_after,
    settings=settings(tuning),
    tried=tuple(_tried(tuning)),
    commands=tuple(_commands(tuning, folder)),
  )


def _drawn(
  name: str, step: step_lib.Step, configuration: step_lib.Configuration
) -> _PictureOf:
  replayed = step.timeline(configuration)
  recorded = recorder.record(step.program, step.costs(configuration))
  instructions = instructions_lib.of_step(step)
  return (
    picture(name, recorded, replayed, instructions),
    losses(step, configuration, instructions),
  )


def _notes_on_plan(tuning: tuning_lib.Tuning) -> Iterator[str]:
  if rests_on := arms_lib.rests_on(tuning.plan.xla.options):
    yield rests_on
  if tuning.stopped is not None:
    yield (
      f"The search was stopped by {tuning.stopped.reason}: the plan is the best"
      f" of {in_words.count(tuning.candidates, 'candidate')}, and whether its"
      " parts act was not checked."
    )
  before, after = tuning.peak_bytes_before, tuning.peak_bytes_after
  if before is not None and after is not None:
    yield (
      "Peak memory per GPU, by XLA's buffer assignment:"
      f" {in_words.gigabytes(before)} before, {in_words.gigabytes(after)}"
      f" after, of {in_words.gigabytes(tuning.plan.cluster.gpu.hbm_bytes)}."
    )
  if predicted := tuning.search.num_predicted:
    yield f"Schedules predicted without compiling them: {predicted:,}."
  if replayed := tuning.num_trials:
    yield f"NCCL configurations replayed: {replayed:,}."


def _tried(tuning: tuning_lib.Tuning) -> Iterator[report.Tried]:
  found = tried.candidates(tuning.search)
  for candidate, one in zip(tuning.candidates, found, strict=True):
    verdict = one.obstacle or "kept"
    if one.failure is not None:
      verdict = tried.refusal(one.failure)
    yield report.Tried(
      name=config_in_words(candidate.config),
      us=one.step_time_us,
      tuned_us=one.tuned_step_time_us,
      verdict=verdict,
    )


def _commands(
  tuning: tuning_lib.Tuning, folder: str
) -> Iterator[report.Command]:
  plan = tuning.plan
  if plan.is_default:
    yield report.Command(
      words="Nothing is to be set: what runs today is the best that was found.",
      text="",
    )
    return
  place = shlex.quote(folder)
  yield report.Command(
    words="In the script that starts each process, on every node, before it"
    " starts Python:",
    text=f"source {place}/env.sh",
  )
  if plan.needs_process:
    yield report.Command(
      words="Around the step, as a part of the plan acts in the process only:",
      text=f"train_step = lagom_xla.tune(plan={folder!r})(train_step)",
    )
  yield report.Command(
    words="Before a job of some length, to see that each setting still acts"
    " (TARGET is what was tuned):",
    text=f"lagom-xla verify {place} TARGET --cluster={plan.cluster.name}",
  )
