# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""The effect of a knob: the differences between schedules without and with it.

XLA silently accepts options that do nothing in this version or for this module.
So each knob is checked in the module that XLA made. NCCL's settings and
variables change no schedule: a setting acts if NCCL asks the tuner about one of
its calls and would choose something else by itself.
"""

from __future__ import annotations

import collections
from collections.abc import Iterator, Mapping
import dataclasses
import os
from typing import Any

from lagom_xla import errors
from lagom_xla import plan as plan_lib
from lagom_xla.costs import collective as collective_lib
from lagom_xla.costs import in_words
from lagom_xla.costs import nccl
from lagom_xla.costs import step as step_lib
from lagom_xla.costs.nccl import environment as nccl_environment
from lagom_xla.costs.replay import timeline as timeline_lib
from lagom_xla.flags import debug_options
from lagom_xla.flags import environment
from lagom_xla.flags import nccl_channels
from lagom_xla.passes import collectives as collectives_lib
from lagom_xla.passes import overlap as overlap_lib
from lagom_xla.passes import source_lines
from lagom_xla.passes.program import form
from lagom_xla.passes.schedule import digest
from lagom_xla.passes.schedule import memory
from lagom_xla.passes.schedule import orders as orders_lib
from lagom_xla.search.nccl import channel_cap
from lagom_xla.search.xla import pruning

_ms = in_words.milliseconds


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Effect:
  """The effect of one knob.

  Attributes:
    knob: an XLA option, an environment variable, or a tuning key in words.
    value: its value.
    acted: whether the step differs with it: its schedule or, for a NCCL
      setting, NCCL's choice for one of its calls. Also true for knobs that act
      after scheduling, which no schedule can show.
    evidence: the difference, in a sentence.
    replaces: the value without the plan; "" if there is none.
    without_us: predicted step time in microseconds without it but with the rest
      of the plan; None if not predicted.
    with_us: the same with it.
  """

  knob: str
  value: str
  acted: bool
  evidence: str
  replaces: str = ""
  without_us: float | None = None
  with_us: float | None = None

  @property
  def is_as_today(self) -> bool:
    """Whether it has this value without the plan, too."""
    return self.value == self.replaces

  @property
  def gain_us(self) -> float | None:
    """How much longer the step takes without it; None if not predicted.

    A value as today gains nothing: the rest of the plan only makes it needed.
    """
    if self.is_as_today:
      return 0.0
    if self.without_us is None or self.with_us is None:
      return None
    return self.without_us - self.with_us


# Evidence that no schedule shows begins with this.
_UNSEEN = "not in the schedule"


def of_difference(
  knob: str,
  value: str,
  without: overlap_lib.Analysis,
  with_it: overlap_lib.Analysis,
) -> Effect:
  """The effect of a knob, from the schedules without and with it."""
  seen = "; ".join(_differences(without, with_it))
  modules = [it.module for it in (without, with_it)]
  prints = {(plan_lib.fingerprint(m), digest.of(m.proto)) for m in modules}
  if not seen and len(prints) > 1:
    seen = (
      "collectives overlap the same number of kernels, but different or"
      " reordered ones"
    )
  unseen = "no effect: the schedule is the same without it"
  later = pruning.AFTER_THE_SCHEDULE.get(knob)
  if later:
    unseen = f"{_UNSEEN}: after scheduling, it sets {later}"
  return Effect(
    knob=knob,
    value=value,
    acted=bool(seen or later),
    evidence=seen or unseen,
  )


def timed(
  effect: Effect,
  without: timeline_lib.Timeline,
  with_it: timeline_lib.Timeline,
  **changes: Any,
) -> Effect:
  """An effect with both predicted step times, and with other changes."""
  return dataclasses.replace(
    effect,
    without_us=without.step_time_us,
    with_us=with_it.step_time_us,
    **changes,
  )


def _differences(
  without: overlap_lib.Analysis, with_it: overlap_lib.Analysis
) -> Iterator[str]:
  both = (without, with_it)
  old, new = (len(memory.recomputed(a.module)) for a in both)
  if old != new:
    yield (
      "memory is short: XLA rematerializes"
      f" {in_words.count(new, 'instruction')} instead of {old:,}"
    )
  kinds = sorted({c.kind for analysis in both for c in analysis.collectives})
  are_same = True
  for kind in kinds:
    old, new = (
      sorted(c.nccl_bytes for c in analysis.collectives if c.kind == kind)
      for analysis in both
    )
    if old != new:
      are_same = False
      yield f"{in_words.count(old, kind)} became {len(new)}{_largest(old, new)}"
  old, new = (sum(c.is_pipelined for c in a.collectives) for a in both)
  if old != new:
    words = "more" if new > old else "fewer"
    collectives = "collective" if abs(new - old) == 1 else "collectives"
    yield (
      f"{abs(new - old):,} {words} {collectives} pipelined over loop iterations"
    )
  old, new = (
    max((c.executions for c in a.collectives), default=0) for a in both
  )
  if old != new:
    yield f"loop bodies run {in_words.count(new, 'time')} instead of {old:,}"
  old, new = (len(analysis.kernels) for analysis in both)
  if old != new:
    yield f"{in_words.count(old, 'kernel')} became {new:,}"
  if are_same:
    yield from _moves(without, with_it)


def _moves(
  without: overlap_lib.Analysis, with_it: overlap_lib.Analysis
) -> Iterator[str]:
  """How many collectives overlap a different number of kernels."""
  # By kind and in schedule order.
  old, new = (
    [
      len(analysis.kernels_beside[c.start_id])
      for c in sorted(analysis.collectives, key=lambda c: c.kind)
    ]
    for analysis in (without, with_it)
  )
  moved = sum(a != b for a, b in zip(old, new, strict=False))
  if moved:
    yield (
      f"{moved} of {in_words.count(new, 'collective')} moved and now overlap"
      f" {in_words.count(sum(new), 'kernel')} instead of {sum(old):,}"
    )


def _largest(old: list[int], new: list[int]) -> str:
  """How the largest size changed; "" if one side has none."""
  if not old or not new:
    return ""
  largest = in_words.megabytes(new[-1])
  if old[-1] == new[-1]:
    return f", the largest of {largest} as before"
  return f", the largest of {largest} (before {in_words.megabytes(old[-1])})"


def with_program_outcome(
  seen: Effect,
  outcome: form.Outcome,
  without: step_lib.Step,
  with_it: step_lib.Step,
) -> Effect:
  """The effect of a form, with its rewrites and how much it hides."""
  if not (seen.acted and outcome.actions):
    return seen
  first, *others = outcome.actions
  more = f" (and {len(others)} more)" if others else ""
  before, after = (s.timeline(s.default) for s in (without, with_it))
  return timed(
    seen,
    before,
    after,
    replaces="the program as written",
    evidence=(
      f"{first.removesuffix('.')}{more};"
      f" kernels wait {_ms(after.total_exposed_us)} for collectives instead of"
      f" {_ms(before.total_exposed_us)} (predicted, NCCL's defaults);"
      f" {seen.evidence}"
    ),
  )


def of_orders(
  orders: orders_lib.Orders,
  configuration: step_lib.Configuration,
  without: step_lib.Step,
  with_it: step_lib.Step,
) -> Effect:
  """The effect of orders, under NCCL settings for all tuning keys.

  `without` is the step in XLA's own order, `with_it` the step in these orders.
  """
  seen = of_difference(
    "order", orders_lib.in_words(orders), without.analysis, with_it.analysis
  )
  if not seen.acted:
    return seen
  before, after = (s.timeline(configuration) for s in (without, with_it))
  return timed(
    seen,
    before,
    after,
    replaces="XLA's own order",
    evidence=(
      f"kernels wait {_ms(after.total_exposed_us)} for collectives instead of"
      f" {_ms(before.total_exposed_us)}, and are slowed by"
      f" {_ms(after.total_slowdown_us)} beside them instead of"
      f" {_ms(before.total_slowdown_us)} (predicted, the plan's NCCL settings);"
      f" {seen.evidence}"
    ),
  )


def replaced_value(name: str) -> str:
  """The value without a plan; "" for none, or why it is unknown."""
  if name in (fixed := environment.found().fixed):
    return str(fixed[name])
  try:
    today = debug_options.under(os.environ.get("XLA_FLAGS", ""))
  except (errors.OptionsError, errors.ProbeError) as error:
    return f"an unknown value ({error})"
  return str(today.get(name, ""))


def of_settings(
  settings: tuple[plan_lib.NcclSetting, ...], step: step_lib.Step
) -> tuple[Effect, ...]:
  """The effect of each NCCL setting: collectives that it reaches, its gain."""
  seen = [_meets(entry, step) for entry in settings]
  configuration = dict(step.default)
  for entry, (is_met, _) in zip(settings, seen, strict=True):
    if is_met:
      configuration[entry.key] = entry.setting
  with_it = step.timeline(configuration)
  found = []
  for entry, (is_met, evidence) in zip(settings, seen, strict=True):
    own = step.default[entry.key] if is_met else None
    if entry.setting == own:
      evidence = f"no effect: NCCL's own choice; {evidence}"
    effect = Effect(
      knob=in_words.tuning_key(
        entry.key.kind, entry.key.num_bytes, entry.key.num_ranks
      ),
      value=in_words.setting(entry.setting),
      acted=is_met and entry.setting != own,
      evidence=evidence,
    )
    if own is not None:
      effect = timed(
        effect,
        step.timeline({**configuration, entry.key: own}),
        with_it,
        value=setting_in_words(entry, entry.setting),
        replaces=setting_in_words(entry, own),
      )
    found.append(effect)
  return tuple(found)


def setting_in_words(entry: plan_lib.NcclSetting, setting: nccl.Setting) -> str:
  """A setting of an entry's collectives, with all of their channels."""
  num_arrays = max((call.num_arrays for call in entry.calls), default=1)
  return in_words.setting(setting, num_arrays=num_arrays)


def of_environment(
  variables: Mapping[str, str], step: step_lib.Step
) -> tuple[Effect, ...]:
  """The effect of the cap in a plan's variables on a step's collectives.

  Both times are without other NCCL settings, which the cap replaces.
  """
  return tuple(
    _of_cap(
      name,
      value,
      step,
      step.default,
      channel_cap.capped(step, int(value)),
    )
    for name, value in variables.items()
  )


def of_option(
  options: Mapping[str, object], step: step_lib.Step
) -> tuple[Effect, ...]:
  """The effect of XLA's cap on a planned step's collectives, if it has one."""
  name = nccl_channels.OPTION
  if name not in options:
    return ()
  # Without the plan, the cap is that of XLA_FLAGS, if any.
  today = nccl_channels.most({})
  before = step.capped(today).default
  after = step.capped(nccl_channels.most(options)).default
  effect = _of_cap(name, str(options[name]), step, before, after)
  if today is not None:
    effect = dataclasses.replace(effect, replaces=str(today))
  return (effect,)


def with_routes(
  seen: Effect, without: step_lib.Step, with_it: step_lib.Step
) -> Effect:
  """The effect of an option that changes what runs some collectives."""
  before, after = (
    collections.Counter(step.run_otherwise()) for step in (without, with_it)
  )
  new = in_words.run_otherwise((after - before).elements())
  old = in_words.run_otherwise((before - after).elements())
  told = [new, f"{old} without it" if old else ""]
  if without.permuting.keys() - with_it.permuting.keys():
    told.append("permutes in communicators of the GPUs that exchange data")
  if not any(told):
    return seen
  if seen.acted and not seen.evidence.startswith(_UNSEEN):
    told.append(seen.evidence)
  evidence = "; ".join(filter(None, told))
  return dataclasses.replace(seen, acted=True, evidence=evidence)


def _of_cap(
  name: str,
  value: str,
  step: step_lib.Step,
  before: step_lib.Configuration,
  after: step_lib.Configuration,
) -> Effect:
  """The effect of a cap, from the configurations without it and with it."""
  reached = [
    collective
    for collective in step.analysis.collectives
    if before[key := step.key_of[collective.name]] != after[key]
  ]
  effect = Effect(
    knob=name,
    value=value,
    acted=bool(reached),
    evidence="no effect: no collective takes more channels",
  )
  if not reached:
    return effect
  most, least = (
    max(found[step.key_of[c.name]].num_channels for c in reached)
    for found in (before, after)
  )
  does = "takes channels from" if least < most else "gives channels to"
  free = step.capped(None)
  return timed(
    effect,
    free.timeline(before),
    free.timeline(after),
    evidence=(
      f"{does} {len(reached)} of {in_words.count(step.key_of, 'collective')},"
      f" such as {_named(reached[0], step)}"
    ),
    replaces=f"NCCL's own, up to {most}",
  )


def is_ruled_out(entry: plan_lib.NcclSetting) -> bool:
  """Whether NCCL's variables here rule a setting out."""
  left = nccl_environment.choice(entry.key.kind)
  return not left.allows(entry.setting.algorithm, entry.setting.protocol)


def _meets(
  entry: plan_lib.NcclSetting, step: step_lib.Step
) -> tuple[bool, str]:
  """Whether NCCL asks for a setting in a step, and evidence in a sentence."""
  like_it = [
    c for c in step.analysis.collectives if step.key_of[c.name] == entry.key
  ]
  sizes_of = {
    c.name: []
    if c.name in step.own_kernels
    else [call.num_bytes for call in collective_lib.calls(c)]
    for c in like_it
  }
  if not sizes_of:
    return False, "no effect: there is no such collective"
  if not any(sizes_of.values()):
    name = like_it[0].name
    if name in step.own_kernels:
      return False, f"no effect: XLA runs {name} in a kernel of its own"
    return False, f"no effect: NCCL asks no tuner about {entry.key.kind}"
  if route := step.routes.get(entry.key):
    return False, (
      f"no effect: NCCL runs {like_it[0].name} by {route.by} without asking a"
      " tuner"
    )
  if is_ruled_out(entry):
    variables = nccl_environment.in_words(nccl_environment.costed())
    return False, f"no effect: {variables} rules it out here"
  if not entry.calls:
    return False, (
      "no effect: NCCL tells a tuner only the sizes of calls, and"
      f" {in_words.count(sizes_of, 'collective')} like {like_it[0].name} cannot"
      " be told from larger ones by size"
    )
  sizes = {call.num_bytes for call in entry.calls}
  met = {
    name: [size for size in sizes_of[name] if size in sizes]
    for name in sizes_of
  }
  reached = [c for c in like_it if met[c.name]]
  if not reached:
    return False, (
      f"no effect: {like_it[0].name} has no call of"
      f" {' or '.join(f'{size:,}' for size in sorted(sizes))} bytes"
    )
  num_met, num_asked = (sum(map(len, c.values())) for c in (met, sizes_of))
  evidence = f"applies to {in_words.count(reached, 'collective')}"
  if num_asked > len(sizes_of) or num_met < num_asked:
    of_all = f" of {num_asked}" if num_met < num_asked else ""
    evidence += f" in {num_met}{of_all} calls"
  return True, f"{evidence}, such as {_named(reached[0], step)}"


def _named(collective: collectives_lib.Collective, step: step_lib.Step) -> str:
  """A collective's name, its module and its source line."""
  module = step.analysis.module
  (computation,) = (
    c for c in module.computations.values() if c.name == collective.computation
  )
  at = computation.position[collective.start_id]
  line = source_lines.SourceLines(module).of(
    computation, computation.instructions[at]
  )
  source = f" ({line})" if line else ""
  return f"{collective.name} of the planned module{source}"
