# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Log, JSON lines, and report of a step's trials."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
import dataclasses
import inspect
import math
import pathlib
from typing import Any

from absl import logging
import jax

from lagom_xla.live import loop as loop_lib
from lagom_xla.live import phases


@dataclasses.dataclass(kw_only=True)
class TrialLog:
  """The trials of one signature of a step, in this process.

  Each trial adds a line of JSON to `path`. Only the job's first process has a
  loop and trials. `arguments` maps names to types. `words` are the latest
  phase's, and `num_calls` counts the calls of the phases before it.
  """

  name: str
  devices: str
  arguments: Mapping[str, str] = dataclasses.field(default_factory=dict)
  path: pathlib.Path | None
  loop: loop_lib.Loop | None = None
  phase: phases.Phase | None = None
  words: str = ""
  trials: list[phases.Trial] = dataclasses.field(default_factory=list)
  num_calls: int = 0
  is_closed: bool = False

  def note_phase(self, phase: phases.Phase) -> None:
    """Logs the next phase if its state or words are new."""
    if self.phase is not None:
      self.num_calls += sum(it.num_calls for it in self.phase.segments)
    is_new = self.phase is None or self.phase.state is not phase.state
    if is_new or phase.words not in ("", self.words):
      self.words = phase.words
      words = phase.state.in_words(phase.words)
      logging.info("lagom_xla.tune, %s: %s", self.name, words)
    self.phase = phase

  def note_trial(self, trial: phases.Trial) -> None:
    """Adds a trial, and writes its line."""
    self.trials.append(trial)
    if self.path is None:
      return
    from lagom_xla.live import trial_line  # It needs pydantic.

    line = trial_line.of_trial(self.name, self.devices, trial)
    try:
      with self.path.open("a", encoding="utf-8") as file:
        file.write(line.to_json())
    except OSError as error:
      logging.warning("lagom_xla.tune cannot write %s: %s", self.path, error)
      self.path = None

  def report(self, of: str = "") -> str:
    """A report of the trials, verdict first; `of` identifies the signature."""
    lines = [f"{self.name}{of}: {self._verdict()}"]
    if self.phase is not None:
      lines.append(f"  now: {self.phase.state.in_words(self.words)}")
    lines.append(f"  on: {self.devices}")
    if self.loop is None:
      lines.append("  tried: see the report of the job's first process")
      return "\n".join(lines)
    foreseen = {it.number: it.proposal.predicted_ratio for it in self.trials}
    lines += [f"  tried: {_told(trial, foreseen)}" for trial in self.trials]
    account = self.loop.account
    if account.step_s:
      words = account.cost.in_words(account.step_s, account.num_calls)
      lines.append(f"  overhead: {words}")
    return "\n".join(lines)

  def _verdict(self) -> str:
    adopted = [it for it in self.trials if it.is_adopted]
    is_own = self.phase is None or not self.phase.in_use
    if self.loop is None:
      return "unchanged" if is_own else "runs with a proposal"
    if not self.loop.account.step_s:
      return "not measured yet"
    before_ms = 1e3 * self.loop.account.step_s
    if is_own:
      return f"unchanged, {before_ms:.3g} ms per step"
    ratio, low, high = combined(adopted)
    return (
      f"{before_ms:.3g} ms per step before, {ratio * before_ms:.3g} ms now:"
      f" {ratio:.3f} of the time ({low:.3f} to {high:.3f}), with"
      f" {adopted[-1].proposal.name}"
    )


# Most arguments of a signature in a report; the others are counted.
_MOST_TOLD = 2


def arguments_of(
  lowered: jax.stages.Lowered, function: Callable[..., Any]
) -> Mapping[str, str]:
  """Types of a step's arguments, such as {"batch['x']": "float32[8,128]"}."""
  try:
    parameters = list(inspect.signature(function).parameters)
  except (TypeError, ValueError):
    parameters = []
  found = {}
  for path, info in jax.tree_util.tree_leaves_with_path(lowered.args_info):
    # A tuple of positional arguments comes before a dict of the others.
    (kind, first), inside = path[:2], path[2:]
    name = getattr(first, "key", None)
    if name is None:
      index = first.idx
      is_named = kind.idx == 0 and index < len(parameters)
      name = parameters[index] if is_named else f"argument {index}"
    shape = ",".join(map(str, info.shape))
    found[f"{name}{jax.tree_util.keystr(inside)}"] = f"{info.dtype}[{shape}]"
  return found


def differences(arguments: Sequence[Mapping[str, str]]) -> list[str]:
  """How signatures differ, such as "(x: float32[8,128])"; "" if only one."""
  if len(arguments) == 1:
    return [""]
  names = dict.fromkeys(name for one in arguments for name in one)
  differing = [
    name for name in names if len({one.get(name) for one in arguments}) > 1
  ]
  told = []
  for number, one in enumerate(arguments, 1):
    words = [f"{name}: {one[name]}" for name in differing if name in one]
    if more := len(words) - _MOST_TOLD if len(words) > _MOST_TOLD else 0:
      words[_MOST_TOLD:] = [f"{more} more"]
    told.append(f"({', '.join(words)})" if words else f", signature {number}")
  return told


def combined(
  adopted: list[phases.Trial],
) -> tuple[float, float, float]:
  """The combined ratio of successively adopted trials, with its interval.

  Each was measured against the previous one. Logarithms of ratios add up, and
  half widths of intervals add up in quadrature, as for independent errors.
  """
  verdicts = [it.verdict for it in adopted if it.verdict is not None]
  mean = math.fsum(math.log(it.ratio) for it in verdicts)
  half = math.hypot(*(math.log(it.high / it.low) / 2 for it in verdicts))
  return math.exp(mean), math.exp(mean - half), math.exp(mean + half)


def _told(trial: phases.Trial, foreseen: Mapping[int, float | None]) -> str:
  predicted = _predicted(trial, foreseen)
  if trial.verdict is None:
    return f"{trial.proposal.name}: {predicted}not measured: {trial.words}"
  outcome = "adopted" if trial.is_adopted else "rejected"
  return f"{trial.proposal.name}: {predicted}{trial.words}, {outcome}"


def _predicted(
  trial: phases.Trial, foreseen: Mapping[int, float | None]
) -> str:
  """The predicted ratio, relative to the rival like the measured ratio."""
  ratio = trial.proposal.predicted_ratio
  if ratio is None:
    return ""
  rival = foreseen[trial.rival] if trial.rival else 1.0
  if rival is None:
    return f"predicted {ratio:.3f} of jit's, "
  return f"predicted {ratio / rival:.3f}, "
