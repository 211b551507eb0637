# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""The searchers that are compared, by name."""

from __future__ import annotations

from collections.abc import Mapping

from benchmarks.search import tpe
from lagom_xla.search.nccl import autoccl
from lagom_xla.search.nccl import lagom
from lagom_xla.search.nccl import random_search
from lagom_xla.search.nccl import searcher
from lagom_xla.search.nccl.balance import balance

# Lagom as its paper has it, and what was made of it here.
OURS: Mapping[str, searcher.Searcher] = {"lagom": lagom, "balance": balance}

# Known searchers. AutoCCL is told every collective's time, as Lagom is.
OTHERS: Mapping[str, searcher.Searcher] = {
  "autoccl": autoccl,
  "random": random_search,
  "tpe": tpe,
}

# Those that know nothing of collectives: they see one time, the whole step's.
BLIND: Mapping[str, searcher.Searcher] = {
  "random": random_search,
  "tpe": tpe,
}

# Those whose result depends on the seed.
DRAWING = frozenset(OTHERS)
