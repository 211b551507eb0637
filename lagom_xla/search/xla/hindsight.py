# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Hindsight: what compiles showed of values, held against what was predicted.

What a prediction is wrong by beside one set of options it is wrong by beside
the next one, more or less: the model is the same, and the schedule but for one
knob. So a search that goes on from a better set corrects its predictions by
what it saw, and compiles anew only what may gain after that.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from collections.abc import Set as AbstractSet
import dataclasses

from lagom_xla.search.xla import candidates
from lagom_xla.search.xla import predictions as predictions_lib
from lagom_xla.search.xla.knobs import value as value_lib

# What costs this share of a step beside one set of options does not gain beside
# the next, unless something foretells it.
DEAR = 2e-2

_Key = frozenset[tuple[str, bool | int | str]]


class Hindsight:
  """What one search saw of values: of each, the last time it was compiled."""

  def __init__(self) -> None:
    self._gains: dict[_Key, float] = {}
    # By the options that are set: a knob's other values err alike.
    self._errors: dict[frozenset[str], float] = {}

  def note(
    self,
    value: value_lib.Value,
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
    gain = 1 - after.launched_us / before.launched_us
    self._gains[_key(value)] = gain
    if predicted is not None:
      self._errors[frozenset(value.options)] = gain - predicted

  def forget(self, names: AbstractSet[str]) -> None:
    """Forgets what values of options gained, as if they were never set."""
    self._gains = {
      key: gain
      for key, gain in self._gains.items()
      if names.isdisjoint(name for name, _ in key)
    }

  def gain(self, value: value_lib.Value) -> float | None:
    """What a value gained, as a share of the step; None if it is not known."""
    return self._gains.get(_key(value))

  def expected(self, value: value_lib.Value, predicted: float) -> float:
    """A prediction less what it was wrong by: of the value, or of its parts."""
    names = frozenset(value.options)
    if names in self._errors:
      return predicted + self._errors[names]
    return predicted + sum(
      error
      for part, error in self._errors.items()
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

  def not_dear(
    self, values: Iterable[value_lib.Value]
  ) -> Sequence[value_lib.Value]:
    """Values that have not cost much, what cost least or is new first."""
    known = [(value, self.gain(value) or 0.0) for value in values]
    near = [(value, gain) for value, gain in known if gain > -DEAR]
    near.sort(key=lambda pair: -pair[1])
    return [value for value, _ in near]

  def gain_of_option(self, name: str, setting: object) -> float:
    """What was gained when an option was last set so; 0 if it was not."""
    found = [g for key, g in self._gains.items() if (name, setting) in key]
    return found[-1] if found else 0.0


def _key(value: value_lib.Value) -> _Key:
  return frozenset(value.options.items())
