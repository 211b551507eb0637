# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""A plan's options as flags, alone or merged with the environment's XLA_FLAGS.

XLA takes the last of two flags, so the plan's come last. Some launchers reverse
that without a message, so each flag keeps its source and what it replaced.
Flags that would end a process are left out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
import dataclasses
from typing import Literal

from lagom_xla import validation
from lagom_xla.flags import check
from lagom_xla.flags import debug_options
from lagom_xla.flags import options as xla_options
from lagom_xla.flags import syntax

Source = Literal["environment", "plan"]


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Planned:
  """The flags and variables of a plan.

  Attributes:
    xla_flags: what XLA_FLAGS should have.
    messages: what was translated or left out for the installed jaxlib.
    nccl_env: NCCL's environment variables.
  """

  __pydantic_config__ = validation.STRICT

  xla_flags: str
  messages: tuple[str, ...]
  nccl_env: Mapping[str, str]


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
  """The XLA_FLAGS that is set, with the flags and variables of a plan.

  Attributes:
    entries: the merged flags, in order.
    messages: a sentence for each flag that was translated or left out.
    xla_flags: what XLA_FLAGS should be.
    nccl_env: NCCL's environment variables.
  """

  __pydantic_config__ = validation.STRICT

  entries: tuple[Entry, ...]
  messages: tuple[str, ...]
  xla_flags: str
  nccl_env: Mapping[str, str]


# What `lagom-xla flags --format=json` prints: with PLAN, with --check, and with
# PLAN and --merge.
Printed = Planned | check.Checked | Merged


def planned(
  options: Mapping[str, debug_options.Value], nccl_env: Mapping[str, str]
) -> Planned:
  """What a plan sets."""
  flags = xla_options.flags(options)
  return Planned(
    xla_flags=" ".join(map(str, flags.flags)),
    messages=flags.messages,
    nccl_env=nccl_env,
  )


def merge(
  environment: str,
  options: Mapping[str, debug_options.Value],
  nccl_env: Mapping[str, str],
) -> Merged:
  """Adds a plan's options to an XLA_FLAGS.

  Args:
    environment: the variable's value, or "".
    options: the plan's.
    nccl_env: the plan's, as they are.

  Raises:
    OptionsError, ProbeError: jaxlib cannot be asked.
  """
  try:
    flags, rest = syntax.parse(syntax.follow(environment))
    messages = []
  except (OSError, ValueError):
    flags, rest = (), ""
    words = environment.strip()
    messages = [f"{words} is left out: it is neither a flag nor a file."]
  known = check.read_flags(flags)
  messages += _left_out(known)
  if rest:
    messages.append(f"XLA does not read what starts at {rest.split()[0]}.")
  given = [reading for reading in known if not reading.is_fatal]
  of_plan = xla_options.flags(options)
  readings = (*given, *check.read_flags(of_plan.flags))
  later_of = check.superseded(readings)
  named: list[tuple[str, Source]] = [
    (str(reading.flag), "environment" if i < len(given) else "plan")
    for i, reading in enumerate(readings)
  ]
  entries = tuple(
    Entry(
      flag=flag,
      source=source,
      replaces=tuple(named[j] for j, later in later_of.items() if later == i),
    )
    for i, (flag, source) in enumerate(named)
    if i not in later_of
  )
  return Merged(
    entries=entries,
    messages=(*messages, *of_plan.messages),
    xla_flags=" ".join(entry.flag for entry in entries),
    nccl_env=nccl_env,
  )


def _left_out(readings: Sequence[check.Reading]) -> list[str]:
  """A message about each flag over which XLA ends a process."""
  messages = []
  for reading in readings:
    finding = check.explain(reading)
    if finding is not None and finding.is_fatal:
      messages.append(f"{finding.flag} is left out. {finding.text}")
      if finding.instead:
        messages[-1] += f" Write {finding.instead} instead."
  return messages
