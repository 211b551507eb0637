# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""The searchers that are compared, by name."""

from __future__ import annotations

from collections.abc import Mapping

from benchmarks.searchers import autoccl
from benchmarks.searchers import random_search
from benchmarks.searchers import tpe
from lagom_xla.search import nccl
from lagom_xla.search.nccl import searcher

# Lagom's search as in its paper, and ours.
OURS = nccl.SEARCHERS

# Those that know nothing of collectives: they see one time, the whole step's.
BLIND: Mapping[str, searcher.Searcher] = {
  "random": random_search.RandomSearch(),
  "tpe": tpe.TPE(),
}

# Known searchers. AutoCCL sees every collective's time, as Lagom does.
OTHERS: Mapping[str, searcher.Searcher] = {
  "autoccl": autoccl.AutoCCL(),
  **BLIND,
}

# Those whose result depends on the seed.
DRAWING = frozenset(OTHERS)
