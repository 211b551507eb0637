# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Hindsight: what compiles showed of values, held against what was predicted.

What a prediction is wrong by beside one set of options it is wrong by beside
the next one, more or less: the model is the same, and the schedule but for one
knob. So a search that goes on from a better set corrects its predictions by
what it saw, and compiles anew only what may gain after that. What a value was
wrong by says less of another value of its knob, of pairs with it, and of itself
beside other collectives.
"""

from __future__ import annotations

import collections
from collections.abc import Iterable, Sequence
import dataclasses

from lagom_xla.compile import fused
from lagom_xla.search.xla import candidates
from lagom_xla.search.xla import knobs
from lagom_xla.search.xla import predictions as predictions_lib

# What costs this share of a step beside one set of options does not gain beside
# the next, unless something foretells it.
DEAR = 2e-2
# Of a value's error so much is taken for that of others like it. With all of it
# searches ended behind on three of twelve steps of benchmarks/recipes, by 0.3
# to 0.9 %; with half of a value's own error, too, on two others by 0.5 and 4 %.
_OF_ALIKE = 1 / 2

_Key = frozenset[tuple[str, bool | int | str]]


class Hindsight:
  """What one search saw of values: of each, the last time it was compiled."""

  def __init__(self) -> None:
    self._gains: dict[_Key, float] = {}
    # Beside the collectives that there are now.
    self._errors: dict[_Key, float] = {}
    # Of the last value of these options: a knob's other values err alike.
    self._errors_of_options: dict[frozenset[str], float] = {}

  def note(
    self,
    value: knobs.Value,
    predicted: float | None,
    before: candidates.Candidate,
    after: candidates.Candidate,
  ) -> None:
    """Takes down what came of a value.

    Args:
      value: what was set.
      predicted: what it was to gain, as a share of the step, without any
        correction; None where nothing foretold that.
      before: beside what it was set.
      after: with it.
    """
    key, names = _key(value), frozenset(value.options)
    gain = 1 - after.launched_us / before.launched_us
    self._gains[key] = gain
    if predicted is not None:
      self._errors[key] = self._errors_of_options[names] = gain - predicted

  def go_on(
    self, before: candidates.Candidate, after: candidates.Candidate
  ) -> None:
    """Drops what does not hold beside what a search goes on from.

    What values of options gained that are taken back, as if they were never
    set: what cost is no company for others. And the errors of values where the
    collectives change, as they are alike at most from then on.

    Args:
      before: what it went on from until now.
      after: what is faster.
    """
    taken_back = before.config.options.keys() - after.config.options.keys()
    self._gains = {
      key: gain
      for key, gain in self._gains.items()
      if taken_back.isdisjoint(name for name, _ in key)
    }
    if _collectives(before) != _collectives(after):
      self._errors.clear()

  def gain(self, value: knobs.Value) -> float | None:
    """What a value gained, as a share of the step; None if it is not known."""
    return self._gains.get(_key(value))

  def expected(self, value: knobs.Value, predicted: float) -> float:
    """A prediction less what it was wrong by, of the value or of ones alike."""
    error = self._errors.get(_key(value))
    if error is None:
      error = _OF_ALIKE * self._error_of_alike(frozenset(value.options))
    return predicted + error

  def _error_of_alike(self, names: frozenset[str]) -> float:
    """Of the knob's last value, or of the parts of several values together."""
    if names in self._errors_of_options:
      return self._errors_of_options[names]
    return sum(
      error
      for part, error in self._errors_of_options.items()
      if len(part) == 1 and part < names
    )

  def corrected(
    self, predicted: Iterable[predictions_lib.Predicted]
  ) -> list[predictions_lib.Predicted]:
    """Predictions less what they were wrong by, the most promising first."""
    expected = [(p, self.expected(p.value, p.gain)) for p in predicted]
    found = []
    for p, gain in expected:
      options = p.value.options.items()
      parts = [
        g for part, g in expected if part.value.options.items() < options
      ]
      of_parts = max([0.0, *parts])
      found.append(dataclasses.replace(p, gain=gain, of_parts=of_parts))
    return sorted(found, key=lambda p: -p.gain)

  def not_dear(self, values: Iterable[knobs.Value]) -> Sequence[knobs.Value]:
    """Values that have not cost much, what cost least or is new first."""
    known = [(value, self.gain(value) or 0.0) for value in values]
    near = [(value, gain) for value, gain in known if gain > -DEAR]
    near.sort(key=lambda pair: -pair[1])
    return [value for value, _ in near]

  def gain_of_option(self, name: str, setting: object) -> float:
    """What was gained when an option was last set so; 0 if it was not."""
    found = [g for key, g in self._gains.items() if (name, setting) in key]
    return found[-1] if found else 0.0


def tells_little(value: knobs.Value) -> bool:
  """Whether what a value did says little of what it does beside others.

  One that is for schedules short of memory does nothing on those that are not,
  and one that makes other kernels may couple what other loops keep apart.
  """
  return value.is_first or bool(fused.options_before_fusion(value.options))


def _key(value: knobs.Value) -> _Key:
  return frozenset(value.options.items())


def _collectives(
  candidate: candidates.Candidate,
) -> collections.Counter[tuple[str, int, int]]:
  """What is moved in a step, however it is scheduled."""
  return collections.Counter(
    (it.kind, it.result_bytes, it.executions)
    for it in candidate.step.analysis.collectives
  )
