# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""The merge of the environment's XLA_FLAGS with the options of a plan.

XLA takes the last of two flags, so the plan's come last. Some launchers reverse
that without a message, so each flag keeps its source and what it replaced.
Flags that would end a process are left out.
"""

from __future__ import annotations

from collections.abc import Mapping
import dataclasses
from typing import Literal

from lagom_xla.flags import check
from lagom_xla.flags import debug_options
from lagom_xla.flags import options as xla_options
from lagom_xla.flags import syntax

Source = Literal["environment", "plan"]


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Entry:
  """One flag of the merged XLA_FLAGS.

  Attributes:
    flag: as XLA_FLAGS has it.
    source: where it is from.
    replaces: earlier flags that it overrides, and where they are from.
  """

  flag: str
  source: Source
  replaces: tuple[tuple[str, Source], ...]


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Merged:
  """The merged XLA_FLAGS.

  Attributes:
    entries: its flags, in order.
    messages: a sentence for each flag that was translated or left out.
  """

  entries: tuple[Entry, ...]
  messages: tuple[str, ...]

  @property
  def xla_flags(self) -> str:
    """The value of the variable."""
    return " ".join(entry.flag for entry in self.entries)


def merge(
  environment: str, options: Mapping[str, debug_options.Value]
) -> Merged:
  """Adds a plan's options to an XLA_FLAGS.

  Args:
    environment: the variable's value, or "".
    options: the plan's.

  Raises:
    OptionsError, ProbeError: jaxlib cannot be asked.
  """
  given, messages = _usable(environment)
  planned = xla_options.flags(options)
  readings = (*given, *check.read_flags(planned.flags))
  sources: list[Source] = [
    *["environment"] * len(given),
    *["plan"] * len(planned.flags),
  ]
  voids = check.superseded(readings)
  entries = tuple(
    Entry(
      flag=str(reading.flag),
      source=sources[i],
      replaces=tuple(
        (str(readings[j].flag), sources[j])
        for j, later in voids.items()
        if later == i
      ),
    )
    for i, reading in enumerate(readings)
    if i not in voids
  )
  return Merged(entries=entries, messages=(*messages, *planned.messages))


def _usable(
  text: str,
) -> tuple[tuple[check.Reading, ...], tuple[str, ...]]:
  """The flags that XLA takes, and a message about each of the others."""
  try:
    flags, rest = syntax.parse(syntax.follow(text))
  except (OSError, ValueError):
    return (), (
      f"{text.strip()} is left out: it is neither a flag nor a file.",
    )
  readings = check.read_flags(flags)
  messages = []
  for reading in readings:
    finding = check.explain(reading)
    if finding is not None and finding.is_fatal:
      messages.append(f"{finding.flag} is left out. {finding.text}")
      if finding.instead:
        messages[-1] += f" Write {finding.instead} instead."
  if rest:
    messages.append(f"XLA does not read what starts at {rest.split()[0]}.")
  usable = tuple(reading for reading in readings if not reading.is_fatal)
  return usable, tuple(messages)
