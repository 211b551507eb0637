# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Collectives in HLO text, and what their records count."""

from __future__ import annotations

from typing import Any

import hlo_text
from lagom_xla.passes import collectives

_ALL = hlo_text.ALL
REDUCE = f"{_ALL}, to_apply=add"
SCATTER = f"{REDUCE}, dimensions={{0}}"
NO_IDS = "channel_id=1, replica_groups=[1,8]<=[8]"
PAIRS = "channel_id=1, source_target_pairs={{0,1},{1,2},{2,3},{3,0}}"


def only(body: str, **kwargs: Any) -> collectives.Collective:
  """The one collective of a computation."""
  (collective,) = collectives.find(hlo_text.load(body, **kwargs))
  return collective


def counts(collective: collectives.Collective) -> tuple[Any, ...]:
  """Its kind, how many arrays it moves, and their bytes."""
  return (
    collective.kind,
    collective.num_operands,
    collective.operand_bytes,
    collective.result_bytes,
  )
