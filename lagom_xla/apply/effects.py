# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""What a knob did, told from two schedules: one without it, one with it.

XLA accepts options that do nothing, on this version or on this module, and says
nothing about it. So a knob is believed only after a look at what came out.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sized
import dataclasses

from lagom_xla import plan as plan_lib
from lagom_xla.costs import step as step_lib
from lagom_xla.passes import overlap as overlap_lib
from lagom_xla.search import combining


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Effect:
  """What one knob did.

  Attributes:
    knob: an XLA option, an environment variable, or a tuning key in words.
    value: what it was set to.
    acted: whether the compiled module shows it.
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
  seen = "; ".join(_differences(without, with_it))
  if not seen and plan_lib.fingerprint(without.module) != plan_lib.fingerprint(
    with_it.module
  ):
    seen = "the same collectives beside as many kernels, in another order"
  return Effect(
    knob=knob,
    value=value,
    acted=bool(seen),
    evidence=seen or "no effect: the schedule is the same without it",
  )


def of_settings(
  settings: tuple[plan_lib.NcclSetting, ...], step: step_lib.Step
) -> tuple[Effect, ...]:
  """Which collectives of a step each NCCL setting meets."""
  effects = []
  for entry in settings:
    names = [n for n, key in step.key_of.items() if key == entry.key]
    key, new = entry.key, entry.setting
    effects.append(
      Effect(
        knob=f"{key.kind} of {key.num_bytes} bytes over {key.num_ranks} GPUs",
        value=(
          f"{new.algorithm}/{new.protocol},"
          f" {new.num_channels} channels, {new.chunk_bytes} byte chunks"
        ),
        acted=bool(names),
        evidence=(
          f"meets {_count(names, 'collective')}, such as {names[0]}"
          if names
          else "no effect: there is no such collective"
        ),
      )
    )
  return tuple(effects)


def of_environment(
  variables: Mapping[str, str], step: step_lib.Step
) -> tuple[Effect, ...]:
  """Which collectives of a step a cap on NCCL's channels reaches."""
  effects = []
  for name, value in variables.items():
    reached = [
      collective
      for collective, key in step.key_of.items()
      if step.default[key].num_channels > int(value)
    ]
    effects.append(
      Effect(
        knob=name,
        value=value,
        acted=bool(reached),
        evidence=(
          f"takes channels from {len(reached)} of"
          f" {_count(step.key_of, 'collective')}, such as {reached[0]}"
          if reached
          else "no effect: no collective takes more channels"
        ),
      )
    )
  return tuple(effects)


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
    combining.combined_bytes(c) for c in analysis.collectives if c.kind == kind
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
