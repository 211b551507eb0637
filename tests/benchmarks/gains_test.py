# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""The table of gains predicts each measurement of others, or says why not."""

from __future__ import annotations

from benchmarks import gains
from benchmarks.strands import modules


def test_published_gains_of_forms_are_predicted():
  rows = gains.table(None, ("forms",)).rows
  assert len(rows) == len(modules.PUBLISHED)
  for row in rows:
    assert row["source"] and row["predicted"] is not None, row["what"]
  strands, slices, *products = rows
  assert strands["predicted"] > 1 and slices["predicted"] > 1
  # A small product must not be cut, and loses less the more rows it has.
  predicted = [row["predicted"] for row in products]
  assert predicted[0] < 1 and predicted == sorted(predicted)
