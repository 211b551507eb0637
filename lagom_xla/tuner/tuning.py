# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""The result of tuning a target: plan, candidates and effects."""

from __future__ import annotations

import dataclasses

from lagom_xla import errors
from lagom_xla import plan as plan_lib
from lagom_xla.compile import lowered
from lagom_xla.costs import lower_bound
from lagom_xla.costs import step as step_lib
from lagom_xla.costs.replay import timeline
from lagom_xla.explain import explanation as explanation_lib
from lagom_xla.search.xla import candidates as candidates_lib
from lagom_xla.verify import effects as effects_lib


# No generated repr: fields hold whole modules.
@dataclasses.dataclass(frozen=True, kw_only=True, repr=False)
class Tuning:
  """The result of tuning a target.

  Attributes:
    plan: what to set.
    search: all candidates.
    effects: the checked effect of each knob of the plan.
    compiled_before: the full compile with XLA's defaults, if there is one.
    compiled: the full compile with the plan, if there is one.
    stopped: what stopped the tuning early; None if it finished.
    advice: suggested changes to the program, the largest gain first.
  """

  plan: plan_lib.Plan
  search: candidates_lib.Search
  effects: tuple[effects_lib.Effect, ...]
  compiled_before: lowered.Compilation | None
  compiled: lowered.Compilation | None
  stopped: errors.Stopped | None = None
  advice: tuple[explanation_lib.Advice, ...] = ()

  def __repr__(self) -> str:
    prediction = self.plan.prediction
    return (
      f"<tuning of {self.plan.module_name} for {self.plan.cluster.name}:"
      f" predicted {prediction.default_us / 1e3:.3g} ms per step by default and"
      f" {prediction.xla_us / 1e3:.3g} ms with its XLA options>"
    )

  @property
  def kept(self) -> candidates_lib.Candidate:
    """The candidate that the plan is made from."""
    return self.search.best

  @property
  def candidates(
    self,
  ) -> tuple[candidates_lib.Candidate | candidates_lib.Refused, ...]:
    """All candidates, XLA's defaults first."""
    return (self.search.default, *self.search.others)

  @property
  def before(self) -> step_lib.Step:
    """The step that runs with XLA's defaults."""
    return self.search.default.runs

  @property
  def timeline_before(self) -> timeline.Timeline:
    """The step's replay under all defaults."""
    return self.search.default.under_nccl_defaults

  @property
  def timeline_after(self) -> timeline.Timeline:
    """The step's replay under the whole plan."""
    return self.kept.tuned

  @property
  def lower_bound_us(self) -> float:
    """A step time, in microseconds, that no setting can beat.

    It holds for the step by default and with the plan.
    """
    return lower_bound.us(self.before, self.kept.runs)

  @property
  def peak_bytes_before(self) -> int | None:
    """Peak device memory with XLA's defaults, if known."""
    return _peak_bytes(self.compiled_before)

  @property
  def peak_bytes_after(self) -> int | None:
    """Peak device memory with the plan, if known."""
    return _peak_bytes(self.compiled)

  @property
  def num_trials(self) -> int:
    """The number of configurations that the NCCL searches predicted."""
    return sum(
      candidate.num_trials
      for candidate in self.candidates
      if isinstance(candidate, candidates_lib.Candidate)
    )


def _peak_bytes(compilation: lowered.Compilation | None) -> int | None:
  return compilation.peak_bytes if compilation is not None else None
