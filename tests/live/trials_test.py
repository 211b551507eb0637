# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""A report tells what was tried so that its figures can be compared."""

from __future__ import annotations

from lagom_xla.live import proposals
from lagom_xla.live import script
from lagom_xla.live import trial_log
from lagom_xla.live import verdict
import simulated_job


def _trial(
  number: int, rival: int, predicted_ratio: float | None
) -> script.Trial:
  """One that was measured beside its rival."""
  proposal = proposals.Proposal(
    name=f"way {number}", payload=b"{}", predicted_ratio=predicted_ratio
  )
  judged = verdict.judge([(1.0, 0.9), (1.0, 0.9)])
  return script.Trial(
    proposal=proposal,
    number=number,
    rival=rival,
    verdict=judged,
    words="0.9 of the time",
  )


def test_what_was_foreseen_is_told_over_the_rival_as_what_was_measured_is():
  log = trial_log.TrialLog(
    name="step", path=None, loop=simulated_job.Job(step_s=[1.0]).loop
  )
  for trial in (
    _trial(1, 0, 0.5),
    _trial(2, 1, 0.6),  # Over the step as jit runs it, as all of these.
    _trial(3, 1, None),
    _trial(4, 3, 0.4),
  ):
    log.note_trial(trial)
  told = [it for it in log.report().splitlines() if "tried: " in it]
  assert told == [
    "  tried: way 1: predicted 0.500, 0.9 of the time, rejected",
    "  tried: way 2: predicted 1.200, 0.9 of the time, rejected",
    "  tried: way 3: 0.9 of the time, rejected",
    "  tried: way 4: predicted 0.400 of jit's, 0.9 of the time, rejected",
  ]
