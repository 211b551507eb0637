# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Effects of NCCL settings and variables: what they reach, and what that gains.

They change no schedule. A setting acts where NCCL asks about one of its calls
and would choose something else by itself.
"""

from __future__ import annotations

from collections.abc import Mapping
import dataclasses

from lagom_xla import plan as plan_lib
from lagom_xla.apply.nccl import table
from lagom_xla.costs import collective as collective_lib
from lagom_xla.costs import in_words
from lagom_xla.costs import nccl
from lagom_xla.costs import step as step_lib
from lagom_xla.flags import nccl_channels
from lagom_xla.passes import collectives as collectives_lib
from lagom_xla.passes import source_lines
from lagom_xla.search.nccl import channel_cap
from lagom_xla.verify import effects


def of_settings(
  settings: tuple[plan_lib.NcclSetting, ...], step: step_lib.Step
) -> tuple[effects.Effect, ...]:
  """Which collectives of a planned step NCCL settings meet, and their gains."""
  seen = [_meets(entry, step) for entry in settings]
  configuration = dict(step.default)
  for entry, (is_met, _) in zip(settings, seen, strict=True):
    if is_met:
      configuration[entry.key] = entry.setting
  with_us = step.timeline(configuration).step_time_us
  found = []
  for entry, (is_met, evidence) in zip(settings, seen, strict=True):
    effect = effects.Effect(
      knob=in_words.tuning_key(
        entry.key.kind, entry.key.num_bytes, entry.key.num_ranks
      ),
      value=in_words.setting(entry.setting),
      acted=is_met,
      evidence=evidence,
    )
    if is_met:
      own = step.default[entry.key]
      without = step.timeline({**configuration, entry.key: own})
      if entry.setting == own:
        evidence = f"no effect: NCCL's own choice; {evidence}"
      effect = dataclasses.replace(
        effect,
        value=setting_in_words(entry, entry.setting),
        replaces=setting_in_words(entry, own),
        acted=entry.setting != own,
        evidence=evidence,
        without_us=without.step_time_us,
        with_us=with_us,
      )
    found.append(effect)
  return tuple(found)


def setting_in_words(entry: plan_lib.NcclSetting, setting: nccl.Setting) -> str:
  """A setting of an entry's collectives, with channels as NCCL reports them."""
  num_arrays = max((call.num_arrays for call in entry.calls), default=1)
  rules = table.rules_of([dataclasses.replace(entry, setting=setting)])
  of_array = min((rule.num_channels for rule in rules), default=None)
  return in_words.setting(setting, of_array=of_array, num_arrays=num_arrays)


def of_environment(
  variables: Mapping[str, str], step: step_lib.Step
) -> tuple[effects.Effect, ...]:
  """Which collectives of a step the cap of a plan's variables reaches.

  Times are of the step without any other NCCL setting, which is where a cap is
  for.
  """
  return tuple(
    _of_cap(
      name,
      value,
      step,
      step.default,
      channel_cap.capped(step.default, int(value)),
    )
    for name, value in variables.items()
  )


def of_option(
  options: Mapping[str, object], step: step_lib.Step
) -> tuple[effects.Effect, ...]:
  """Which collectives of a planned step its cap by XLA reaches, if any."""
  name = nccl_channels.OPTION
  if name not in options:
    return ()
  # Without the plan the cap is that of XLA_FLAGS, or none.
  today = nccl_channels.most({})
  before = step.capped(today).default
  after = step.capped(nccl_channels.most(options)).default
  effect = _of_cap(name, str(options[name]), step, before, after)
  if today is not None:
    effect = dataclasses.replace(effect, replaces=str(today))
  return (effect,)


def _of_cap(
  name: str,
  value: str,
  step: step_lib.Step,
  before: step_lib.Configuration,
  after: step_lib.Configuration,
) -> effects.Effect:
  """The effect of a cap, by what runs without it and with it."""
  reached = [
    collective
    for collective in step.analysis.collectives
    if before[key := step.key_of[collective.name]] != after[key]
  ]
  effect = effects.Effect(
    knob=name,
    value=value,
    acted=bool(reached),
    evidence="no effect: no collective takes more channels",
  )
  if not reached:
    return effect
  most, least = (
    max(setting.num_channels for setting in found.values())
    for found in (before, after)
  )
  does = "takes channels from" if least < most else "gives channels to"
  free = step.capped(None)
  return dataclasses.replace(
    effect,
    evidence=(
      f"{does} {len(reached)} of {in_words.count(step.key_of, 'collective')},"
      f" such as {_named(reached[0], step)}"
    ),
    replaces=f"NCCL's own, up to {most}",
    without_us=free.timeline(before).step_time_us,
    with_us=free.timeline(after).step_time_us,
  )


def _meets(
  entry: plan_lib.NcclSetting, step: step_lib.Step
) -> tuple[bool, str]:
  """Whether NCCL asks for a setting in a step, and where, in a sentence."""
  like_it = [
    c for c in step.analysis.collectives if step.key_of[c.name] == entry.key
  ]
  asked = {
    c.name: [call.num_bytes for call in collective_lib.calls(c)]
    for c in like_it
  }
  if not asked:
    return False, "no effect: there is no such collective"
  if not any(asked.values()):
    return False, f"no effect: NCCL asks no tuner about {entry.key.kind}"
  if not entry.calls:
    return False, (
      "no effect: NCCL tells a tuner the sizes of calls, and those of"
      f" {in_words.count(asked, 'collective')} like {like_it[0].name} are also"
      " those of collectives that move more bytes"
    )
  sizes = {call.num_bytes for call in entry.calls}
  met = {
    name: [size for size in asked[name] if size in sizes] for name in asked
  }
  reached = [c for c in like_it if met[c.name]]
  if not reached:
    return False, (
      f"no effect: {like_it[0].name} has no call of"
      f" {' or '.join(f'{size:,}' for size in sorted(sizes))} bytes"
    )
  num_met, num_asked = (sum(map(len, c.values())) for c in (met, asked))
  evidence = f"meets {in_words.count(reached, 'collective')}"
  if num_asked > len(asked) or num_met < num_asked:
    of_all = f" of {num_asked}" if num_met < num_asked else ""
    evidence += f" in {num_met}{of_all} calls"
  return True, f"{evidence}, such as {_named(reached[0], step)}"


def _named(collective: collectives_lib.Collective, step: step_lib.Step) -> str:
  """A collective, which module its name is of, and its line."""
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
