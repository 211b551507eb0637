# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Words of an explanation: reasons, places, and what a collective does."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from lagom_xla.costs import in_words
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


def what(collective: collectives_lib.Collective, platform: str = "GPU") -> str:
  """What a collective does."""
  kind, num_bytes = collective.kind, collective.nccl_bytes
  if not collective.group_size:
    return f"{kind} of {in_words.megabytes(num_bytes)}"
  return in_words.tuning_key(kind, num_bytes, collective.group_size, platform)


def place(line: source_lines.SourceLine) -> str:
  """A source line with the innermost scopes around it."""
  at = str(line.frames[0]) if line.frames else ""
  layer = "/".join(line.layer.split("/")[-_NUM_SCOPES:])
  return ", ".join(filter(None, (at, layer)))


def some(names: Sequence[str], most: int = 3) -> str:
  """The first of some names, and how many more there are."""
  shown = list(names[:most])
  if len(names) > most:
    shown.append(f"{len(names) - most} more")
  *others, last = shown or [""]
  return f"{', '.join(others)} and {last}" if others else last
