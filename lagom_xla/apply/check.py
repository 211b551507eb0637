# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Which knobs of a plan visibly acted, by comparing two compiled modules.

XLA accepts options that do nothing, on this version or on this module, so a
plan is believed only after a look at what came out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sized
import dataclasses

from lagom_xla import plan as plan_lib
from lagom_xla.costs import step as step_lib
from lagom_xla.passes import collectives as collectives_lib
from lagom_xla.search import combining


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Effect:
  """What one knob did.

  Attributes:
    knob: an XLA option, or a tuning key in words.
    value: what it was set to.
    acted: whether the compiled module shows it.
    evidence: what was seen, in a sentence.
  """

  knob: str
  value: str
  acted: bool
  evidence: str


def xla_effects(
  options: Mapping[str, bool | int | str],
  before: tuple[collectives_lib.Collective, ...],
  after: tuple[collectives_lib.Collective, ...],
) -> tuple[Effect, ...]:
  """What the XLA options did to the collectives of a module."""
  kind_of = {v: k for k, v in combining.OPTIONS.items()}
  effects = []
  for option, value in options.items():
    kind = kind_of.get(option)
    old, new = _sizes(before, kind), _sizes(after, kind)
    noun = kind or "collective"
    if not old and not new:
      evidence = f"no effect: there is no {noun}"
    elif old == new:
      evidence = f"no effect: the same {_count(old, noun)}, of the same sizes"
    else:
      evidence = (
        f"{_count(old, noun)} became {len(new)}, of at most"
        f" {max(new, default=0) / 2**20:.0f} MiB"
        f" (before {max(old, default=0) / 2**20:.0f} MiB)"
      )
    effects.append(
      Effect(knob=option, value=str(value), acted=old != new, evidence=evidence)
    )
  return tuple(effects)


def nccl_effects(
  settings: tuple[plan_lib.NcclSetting, ...], step: step_lib.Step
) -> tuple[Effect, ...]:
  """Which collectives of a step each NCCL setting meets."""
  effects = []
  for entry in settings:
    names = [n for n, key in step.key_of.items() if key == entry.key]
    key, new = entry.key, entry.setting
    effects.append(
      Effect(
        knob=(f"{key.kind} of {key.num_bytes} bytes over {key.num_ranks} GPUs"),
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


def _count(items: Sized, noun: str) -> str:
  return f"{len(items)} {noun}" + ("" if len(items) == 1 else "s")


def _sizes(
  collectives: tuple[collectives_lib.Collective, ...], kind: str | None
) -> list[int]:
  """Combined sizes of the collectives of a kind, or of all."""
  return sorted(
    combining.combined_bytes(c)
    for c in collectives
    if kind is None or c.kind == kind
  )
