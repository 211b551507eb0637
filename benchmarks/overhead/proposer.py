# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Proposer that searches as on CPUs, and has two ways measured in any case.

Beside 50 ms of a device no way of its all-reduces is foreseen to gain anything;
on GPUs proposals are compiled and measured.
"""

from __future__ import annotations

from collections.abc import Generator
import threading

import jax

from benchmarks.live.cpu import proposer
from benchmarks.live.cpu import way as way_lib
from lagom_xla.live import proposals as proposals_lib

_ONE_GROUP_BYTES = 1 << 30
_WAYS = (
  way_lib.Way(group_bytes=0, is_ordered=True),
  way_lib.Way(group_bytes=_ONE_GROUP_BYTES, is_ordered=True),
)


class Proposer(proposer.CpuProposer):
  """Proposes as on CPUs, and then two ways in any case."""

  def proposals(
    self,
    lowered: jax.stages.Lowered,
    measured: proposals_lib.Measured,
    stop: threading.Event,
  ) -> Generator[proposals_lib.Proposal, None, str | None]:
    """What a search on CPUs proposes, and the two ways after it."""
    yield from super().proposals(lowered, measured, stop)
    for way in _WAYS:
      yield proposals_lib.Proposal(
        name=way_lib.in_words(way), payload=way_lib.to_bytes(way)
      )
    return None
