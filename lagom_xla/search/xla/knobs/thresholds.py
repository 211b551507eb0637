# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Combine thresholds that are worth trying, by kind of collective."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from lagom_xla.passes import collectives as collectives_lib
from lagom_xla.passes.combine import table
from lagom_xla.xla_schedule import combiner

# XLA's options by kind, of the kinds whose combining can be predicted.
OPTIONS = {kind: table.COMBINERS[kind].option for kind in combiner.KINDS}

_MIB = 2**20
# Thresholds that are tried: nothing combined, and powers of two around what
# the published recipes use (128 MiB to 8 GiB; none explains its choice).
CHOICES_BYTES = (
  0,
  8 * _MIB,
  128 * _MIB,
  512 * _MIB,
  1024 * _MIB,
  2048 * _MIB,
)


def worth_trying(
  collectives: Sequence[collectives_lib.Collective], kind: str
) -> Iterator[int]:
  """Thresholds that can change how this kind is combined.

  Args:
    collectives: of the module as XLA combines it.
    kind: a key of OPTIONS.
  """
  alike = [c for c in collectives if c.kind == kind]
  sizes = sorted(map(table.combined_bytes, alike))
  default_bytes = table.COMBINERS[kind].default_bytes
  combined = [c for c in alike if c.num_operands > 1]
  pairs_bytes = [_least_pair_bytes(c) for c in combined]
  largest_bytes = max(map(table.combined_bytes, combined), default=0)
  for threshold in CHOICES_BYTES:
    if threshold < default_bytes:
      # Where no two arrays of one fit under it, it does what zero does.
      if pairs_bytes and (not threshold or min(pairs_bytes) <= threshold):
        yield threshold
      continue
    # Two separate collectives must fit under it, or a combined one must not.
    two_fit = len(sizes) > 1 and sum(sizes[:2]) <= threshold
    if two_fit or largest_bytes > threshold:
      yield threshold
    if sum(sizes) <= threshold:
      return


def _least_pair_bytes(combined: collectives_lib.Collective) -> int:
  """Bytes of the two smallest arrays of a collective, as combiners count."""
  smallest = sum(sorted(combined.array_bytes)[:2])
  total = sum(combined.array_bytes)
  return table.combined_bytes(combined) * smallest // total if total else 0
