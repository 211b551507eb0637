# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""The reading of each flag of an XLA_FLAGS, by starting jaxlib with it alone.

A flag's name need not be the option that it sets: old names set new options,
and some set none. Nor does the last of two flags always win: lists and maps
accumulate. So nothing is inferred from names: a flag is what it changes.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
import dataclasses

from lagom_xla.flags import debug_options
from lagom_xla.flags import probe
from lagom_xla.flags import syntax


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Reading:
  """What one flag does in the installed jaxlib.

  Attributes:
    flag: the flag.
    unknown: whether XLA knows no such flag, which ends the process.
    invalid: whether it does not take the value, which ends the process.
    sets: options that differ from their defaults with this flag alone.
  """

  flag: syntax.Flag
  unknown: bool
  invalid: bool
  sets: dict[str, debug_options.Value]

  @property
  def is_fatal(self) -> bool:
    """Whether it ends the process."""
    return self.unknown or self.invalid

  @property
  def options(self) -> frozenset[str]:
    """The options it is about, even one that it leaves at its default."""
    names = set(self.sets)
    if debug_options.find(self.flag.name) is not None:
      names.add(self.flag.name)
    return frozenset(names or {self.flag.name})


def read(flags: Sequence[syntax.Flag]) -> tuple[Reading, ...]:
  """What each flag does in the installed jaxlib, without the others.

  Raises:
    OptionsError, ProbeError: jaxlib cannot be asked.
  """
  defaults = {n: o.default for n, o in debug_options.options().items()}
  readings = []
  answers = probe.ask(list(map(str, flags)))
  for flag, answer in zip(flags, answers, strict=True):
    # A lone quoted value, or no dash at all, would be read as a file's name.
    found = (
      {} if answer.is_fatal else debug_options.values(answer.compile_options)
    )
    readings.append(
      Reading(
        flag=flag,
        unknown=answer.unknown,
        invalid=answer.is_fatal and not answer.unknown,
        sets={n: v for n, v in found.items() if v != defaults[n]},
      )
    )
  return tuple(readings)


def values(
  flags: Sequence[syntax.Flag],
) -> dict[str, debug_options.Value]:
  """The value of every option in a process that has these flags.

  Args:
    flags: none of which is fatal.
  """
  (answer,) = probe.ask([_join(flags)])
  return debug_options.values(answer.compile_options)


def superseded(readings: Sequence[Reading]) -> dict[int, int]:
  """Flags that a later flag overrides.

  Both are about the same option, and all options are the same without the
  first. Flags that accumulate, such as lists of passes, are not superseded.

  Args:
    readings: none of which is fatal.

  Returns:
    Index of a superseded flag -> index of the flag that overrides it.
  """
  later_of = {
    i: j
    for i, first in enumerate(readings)
    for j in range(i + 1, len(readings))
    if first.options & readings[j].options
  }
  return {i: later_of[i] for i in _removable(readings, list(later_of), [])}


def idle(
  readings: Sequence[Reading], without: Collection[int]
) -> frozenset[int]:
  """Indices of flags without which all options would be the same.

  Args:
    readings: none of which is fatal.
    without: indices of flags that are to be left out already.
  """
  candidates = [
    i
    for i, reading in enumerate(readings)
    if not reading.sets and i not in without
  ]
  return frozenset(_removable(readings, candidates, without))


def _removable(
  readings: Sequence[Reading],
  candidates: Sequence[int],
  without: Collection[int],
) -> list[int]:
  """The candidates that can all be removed with no option changing."""
  if not candidates:
    return []

  def values_without(indices: Collection[int]) -> dict[str, object]:
    kept = [r.flag for i, r in enumerate(readings) if i not in indices]
    return {n: _as_set(n, v) for n, v in values(kept).items()}

  everything = values_without(without)
  removed: list[int] = []
  for i in candidates:
    if values_without({*without, *removed, i}) == everything:
      removed.append(i)
  return removed


def _as_set(name: str, value: debug_options.Value) -> object:
  """A value; of a list the set of its items, as repetition has no effect."""
  option = debug_options.find(name)
  assert option is not None
  return frozenset(str(value).split(",")) if option.is_repeated else value


def _join(flags: Sequence[syntax.Flag]) -> str:
  return " ".join(map(str, flags))
