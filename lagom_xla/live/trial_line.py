# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""The JSON line in a log of trials: the result of one proposal."""

from __future__ import annotations

import dataclasses
import json
import time
from typing import Any

from lagom_xla import validation
from lagom_xla.live import phases


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrialLine:
  """A line in the log of `tune(..., log=FILE)`.

  Attributes:
    time_s: time of the verdict, in seconds since 1970.
    step: name of the step.
    devices: number and kind of the devices.
    number: number of the proposal, from 1 in each signature of a step.
    rival: number of the proposal that was in use; 0 for jit's own executable.
    proposal: the proposal in words.
    payload: the JSON from which every process compiled it.
    predicted_ratio: predicted step time over the baseline's; null if not
      predicted.
    adopted: whether the proposal was adopted.
    ratio: measured step time over the rival's; null if not measured.
    low: lower end of the ratio's interval; null if not measured.
    high: upper end of the ratio's interval; null if not measured.
    num_pairs: number of measured pairs of blocks; 0 if not measured.
    words: the verdict in words, or why the proposal was not measured.
  """

  __pydantic_config__ = validation.STRICT

  time_s: float
  step: str
  devices: str
  number: int
  rival: int
  proposal: str
  payload: str
  predicted_ratio: float | None
  adopted: bool
  ratio: float | None
  low: float | None
  high: float | None
  num_pairs: int
  words: str

  def to_json(self) -> str:
    """The line as JSON, with a line end."""
    return json.dumps(validation.write(self)) + "\n"


def of_trial(step: str, devices: str, trial: phases.Trial) -> TrialLine:
  """The line of a trial, with the current time."""
  verdict = trial.verdict
  return TrialLine(
    time_s=time.time(),
    step=step,
    devices=devices,
    number=trial.number,
    rival=trial.rival,
    proposal=trial.proposal.name,
    payload=trial.proposal.payload.decode(errors="replace"),
    predicted_ratio=trial.proposal.predicted_ratio,
    adopted=trial.is_adopted,
    ratio=verdict.ratio if verdict else None,
    low=verdict.low if verdict else None,
    high=verdict.high if verdict else None,
    num_pairs=verdict.num_pairs if verdict else 0,
    words=trial.words,
  )


def schema() -> dict[str, Any]:
  """The JSON schema of a line."""
  return validation.schema(TrialLine)
