# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""What is kept of one step, from one run to the next.

For threads beside training: to import what reads and writes plans takes long,
and so may a file system.
"""

from __future__ import annotations

from collections.abc import Sequence

import jax

from lagom_xla import plan as plan_lib
from lagom_xla.live.history import plan_cache
from lagom_xla.live.history import trials as trials_lib
from lagom_xla.live.loop import surroundings


class Kept:
  """What runs have found out about a step.

  Args:
    cache: of all steps.
    lowered: the step as jit lowered it.
    machine: what it runs on, in full.
  """

  def __init__(
    self,
    cache: plan_cache.PlanCache,
    lowered: jax.stages.Lowered,
    machine: str,
  ):
    self._cache = cache
    self._key = plan_cache.key(lowered, machine)

  def entry(self) -> plan_cache.Entry | None:
    """What an earlier run found; None where there is nothing usable."""
    return self._cache.get(self._key)

  def put(
    self,
    trials: Sequence[surroundings.Trial],
    plan: plan_lib.Plan | None,
  ) -> None:
    """Keeps what came of all trials of a run, and the plan that it found."""
    adopted = [it for it in trials if it.verdict and it.verdict.is_adopted]
    latest = adopted[-1].proposal if adopted else None
    entry = plan_cache.Entry(
      date=plan_cache.now(),
      adopted=None if latest is None else latest.payload.decode(),
      name="" if latest is None else latest.name,
      verdict=_verdict(trials, adopted),
      plan=plan,
    )
    self._cache.put(self._key, entry)

  def drop(self) -> None:
    """Deletes what was found."""
    self._cache.drop(self._key)


def _verdict(
  trials: Sequence[surroundings.Trial], adopted: list[surroundings.Trial]
) -> plan_cache.Verdict | None:
  """Of what runs now, over the step as it was; else of the best that lost."""
  if adopted:
    ratio, low, high = trials_lib.combined(adopted)
    num_pairs = sum(it.verdict.num_pairs for it in adopted if it.verdict)
    return plan_cache.Verdict(
      ratio=ratio, low=low, high=high, num_pairs=num_pairs
    )
  verdicts = [it.verdict for it in trials if it.verdict is not None]
  if not verdicts:
    return None
  best = min(verdicts, key=lambda verdict: verdict.ratio)
  return plan_cache.Verdict(
    ratio=best.ratio, low=best.low, high=best.high, num_pairs=best.num_pairs
  )
