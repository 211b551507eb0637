# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Words of an explanation: times, sizes and places as people write them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from lagom_xla.explain import parts as parts_lib
from lagom_xla.passes import collectives as collectives_lib
from lagom_xla.passes import source_lines

# Scopes that tell which part of a layer something is.
_NUM_SCOPES = 2

# Reasons as a table has them.
REASONS: Mapping[parts_lib.Reason, str] = {
  "slowed": "slowed by kernels beside it",
  "queue": "behind another on the stream",
  "sync": "sync, not async",
  "started_late": "started later than it could",
  "awaited_early": "awaited before its first use",
  "combined": "combined with others",
  "operand_late": "operand late",
  "consumer_early": "consumer early",
  "stream_busy": "kernels hide others already",
  "too_long": "slower than all that can hide it",
  "no_slack": "no slack in the program",
}


def milliseconds(us: float) -> str:
  """A time in milliseconds, with as many digits as say something."""
  ms = us / 1e3
  digits = 1 if abs(ms) >= 100 else 2 if abs(ms) >= 10 else 3
  return f"{ms:,.{digits}f} ms"


def megabytes(num_bytes: float) -> str:
  """Bytes in MB of 1e6, with as many digits as say something."""
  size = num_bytes / 1e6
  if size >= 100:
    return f"{size:,.0f} MB"
  if size >= 0.1:
    return f"{size:.1f} MB"
  return (
    f"{num_bytes / 1e3:.1f} kB" if num_bytes >= 1e3 else f"{num_bytes:g} bytes"
  )


def what(collective: collectives_lib.Collective) -> str:
  """What a collective does."""
  words = f"{collective.kind} of {megabytes(collective.nccl_bytes)}"
  if collective.group_size:
    words += f" over {collective.group_size} GPUs"
  return words


def place(line: source_lines.SourceLine) -> str:
  """A source line with the innermost scopes around it."""
  at = str(line.frames[0]) if line.frames else ""
  layer = "/".join(line.layer.split("/")[-_NUM_SCOPES:])
  return ", ".join(filter(None, (at, layer)))


def count(number: int, noun: str) -> str:
  """A number of things."""
  return f"{number:,} {noun}{'' if number == 1 else 's'}"


def some(names: Sequence[str], most: int = 3) -> str:
  """The first of some names, and how many more there are."""
  shown = list(names[:most])
  if len(names) > most:
    shown.append(f"{len(names) - most} more")
  *others, last = shown or [""]
  return f"{', '.join(others)} and {last}" if others else last
