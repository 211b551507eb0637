# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""The effect of a knob, seen in two schedules: one without it, one with it.

XLA accepts options that do nothing, on this version or on this module, and says
nothing about it. So each knob is checked in what XLA made of the module.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence, Sized
import dataclasses

from lagom_xla import plan as plan_lib
from lagom_xla.apply import env as env_lib
from lagom_xla.costs import collective as collective_lib
from lagom_xla.costs import step as step_lib
from lagom_xla.passes import hlo
from lagom_xla.passes import overlap as overlap_lib
from lagom_xla.passes.combine import table
from lagom_xla.search.xla import suspects


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Effect:
  """What one knob did.

  Attributes:
    knob: an XLA option, an environment variable, or a tuning key in words.
    value: what it was set to.
    acted: whether the schedule shows it; of what acts after the schedule, which
      cannot show it, True.
    evidence: what was seen, in a sentence.
  """

  knob: str
  value: str
  acted: bool
  evidence: str


def of_difference(
  knob: str,
  value: str,
  without: overlap_lib.Analysis,
  with_it: overlap_lib.Analysis,
) -> Effect:
  """The effect of a knob that makes another schedule."""
  seen = "; ".join(_differences(without, with_it)) or _small_difference(
    without.module, with_it.module
  )
  unseen = "no effect: the schedule is the same without it"
  later = suspects.AFTER_THE_SCHEDULE.get(knob)
  if later:
    unseen = f"unseen: it says {later}, after the schedule"
  return Effect(
    knob=knob,
    value=value,
    acted=bool(seen or later),
    evidence=seen or unseen,
  )


def of_settings(
  settings: tuple[plan_lib.NcclSetting, ...], step: step_lib.Step
) -> tuple[Effect, ...]:
  """Which collectives of a step each NCCL setting meets, in which calls."""
  effects = []
  for entry in settings:
    key, new = entry.key, entry.setting
    acted, evidence = _meets(entry, step)
    effects.append(
      Effect(
        knob=f"{key.kind} of {key.num_bytes} bytes over {key.num_ranks} GPUs",
        value=(
          f"{new.algorithm}/{new.protocol},"
          f" {new.num_channels} channels, {new.chunk_bytes} byte chunks"
        ),
        acted=acted,
        evidence=evidence,
      )
    )
  return tuple(effects)


def _meets(
  entry: plan_lib.NcclSetting, step: step_lib.Step
) -> tuple[bool, str]:
  """Whether NCCL asks for a setting in a step, and where, in a sentence."""
  asked = {
    collective.name: [
      call.num_bytes for call in collective_lib.calls(collective)
    ]
    for collective in step.analysis.collectives
    if step.key_of[collective.name] == entry.key
  }
  if not asked:
    return False, "no effect: there is no such collective"
  if not any(asked.values()):
    return False, f"no effect: NCCL asks no tuner about {entry.key.kind}"
  if not entry.calls:
    return False, (
      f"no effect: NCCL tells a tuner the sizes of calls, and those of"
      f" {_count(asked, 'collective')} like {next(iter(asked))} are also those"
      " of collectives that move more bytes"
    )
  sizes = {call.num_bytes for call in entry.calls}
  met = {
    name: [size for size in asked[name] if size in sizes] for name in asked
  }
  names = [name for name, sizes in met.items() if sizes]
  num_met, num_asked = (sum(map(len, c.values())) for c in (met, asked))
  if not names:
    return False, (
      f"no effect: {next(iter(asked))} has no call of"
      f" {' or '.join(map(str, sorted(sizes)))} bytes"
    )
  evidence = f"meets {_count(names, 'collective')}"
  if num_asked > len(asked) or num_met < num_asked:
    of_all = f" of {num_asked}" if num_met < num_asked else ""
    evidence += f" in {num_met}{of_all} calls"
  num_arrays = max(call.num_arrays for call in entry.calls)
  if num_arrays > entry.setting.num_channels:
    evidence += f", a channel for each of {num_arrays} arrays"
  return True, f"{evidence}, such as {names[0]}"


def of_environment(
  variables: Mapping[str, str], step: step_lib.Step
) -> tuple[Effect, ...]:
  """Which collectives of a step NCCL's environment variables reach."""
  effects = []
  for name, value in variables.items():
    reached, evidence = (), "not seen: it is no variable that a plan needs"
    if name == env_lib.CAP:
      reached, evidence = _reached_by_cap(value, step)
    effects.append(
      Effect(knob=name, value=value, acted=bool(reached), evidence=evidence)
    )
  return tuple(effects)


def _reached_by_cap(
  value: str, step: step_lib.Step
) -> tuple[Sequence[str], str]:
  """The collectives that lose channels to a cap, and that in words."""
  if not value.isdecimal() or int(value) < 1:
    return (), "no effect: it is no number of channels"
  reached = [
    collective
    for collective, key in step.key_of.items()
    if step.default[key].num_channels > int(value)
  ]
  if not reached:
    return (), "no effect: no collective takes more channels"
  return reached, (
    f"takes channels from {len(reached)} of"
    f" {_count(step.key_of, 'collective')}, such as {reached[0]}"
  )


def _small_difference(without: hlo.Module, with_it: hlo.Module) -> str:
  """What differs beside collectives and numbers of kernels; "" for nothing."""
  if plan_lib.fingerprint(without) == plan_lib.fingerprint(with_it):
    return ""
  if _instructions(without) == _instructions(with_it):
    return "the same collectives beside as many kernels, in another order"
  return "the same collectives beside as many kernels, which are others"


def _instructions(module: hlo.Module) -> Counter[tuple[str, str, bytes]]:
  return Counter(
    (i.opcode, i.custom_call_target, i.shape.SerializeToString())
    for c in module.computations.values()
    for i in c.instructions
  )


def _differences(
  without: overlap_lib.Analysis, with_it: overlap_lib.Analysis
) -> Iterator[str]:
  kinds = sorted({c.kind for c in (*without.collectives, *with_it.collectives)})
  are_same = True
  for kind in kinds:
    old, new = _sizes(without, kind), _sizes(with_it, kind)
    if old != new:
      are_same = False
      yield (
        f"{_count(old, kind)} became {len(new)}, of at most"
        f" {_mib(new)} MiB (before {_mib(old)} MiB)"
      )
  pipelined = _pipelined(with_it) - _pipelined(without)
  if pipelined:
    yield f"{_more(pipelined, 'collective')} pipelined over loop iterations"
  old_runs, new_runs = _executions(without), _executions(with_it)
  if old_runs != new_runs:
    yield f"loop bodies run {new_runs} times instead of {old_runs}"
  if len(without.kernels) != len(with_it.kernels):
    yield f"{len(without.kernels)} kernels became {len(with_it.kernels)}"
  if are_same:
    yield from _moves(without, with_it)


def _moves(
  without: overlap_lib.Analysis, with_it: overlap_lib.Analysis
) -> Iterator[str]:
  """How many collectives run beside other numbers of kernels than before."""
  old, new = _beside(without), _beside(with_it)
  moved = sum(a != b for a, b in zip(old, new, strict=False))
  if moved:
    yield (
      f"{moved} of {_count(new, 'collective')} moved: beside {sum(new)} kernels"
      f" instead of {sum(old)}"
    )


def _beside(analysis: overlap_lib.Analysis) -> list[int]:
  """Kernels beside each collective, by kind and in schedule order."""
  ordered = sorted(analysis.collectives, key=lambda c: c.kind)
  return [len(analysis.kernels_beside[c.start_id]) for c in ordered]


def _sizes(analysis: overlap_lib.Analysis, kind: str) -> list[int]:
  return sorted(
    table.combined_bytes(c) for c in analysis.collectives if c.kind == kind
  )


def _pipelined(analysis: overlap_lib.Analysis) -> int:
  return sum(c.is_pipelined for c in analysis.collectives)


def _executions(analysis: overlap_lib.Analysis) -> int:
  return max((c.executions for c in analysis.collectives), default=0)


def _mib(sizes: list[int]) -> str:
  return f"{max(sizes, default=0) / 2**20:.3g}"


def _more(number: int, noun: str) -> str:
  words = "more" if number > 0 else "fewer"
  return f"{abs(number)} {words} {noun}" + ("" if abs(number) == 1 else "s")


def _count(items: Sized, noun: str) -> str:
  return f"{len(items)} {noun}" + ("" if len(items) == 1 else "s")
