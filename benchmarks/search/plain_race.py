# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Our search over XLA's options beside a plain one, at equal seconds.

    python -m benchmarks.search.plain_race

A row per step and searcher: predicted ms of the best under NCCL's own choices,
processor seconds until it was found, and what was compiled in all.
"""

from __future__ import annotations

import csv
import os
import sys

os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("JAX_SKIP_CUDA_CONSTRAINTS_CHECK", "1")

from benchmarks.recipes import exhaustive
from benchmarks.searchers import plain
from lagom_xla.search.nccl import channel_cap
from lagom_xla.search.xla import candidates
from lagom_xla.search.xla import joint

_SEARCHES = {"plain": plain.search, "ours": joint.search}
_COLUMNS = ("module", "cluster", "searcher", "best_ms", "seconds", "compiled")


def _seconds() -> float:
  times = os.times()
  return times.user + times.system + times.children_user + times.children_system


def main() -> None:
  """The command."""
  out = csv.writer(sys.stdout)
  out.writerow(_COLUMNS)
  searcher = channel_cap.WithoutPlugin(limit=None)
  for case in exhaustive.CASES:
    target = case.load(None)
    for name, search in _SEARCHES.items():
      begin = _seconds()
      seen: list[tuple[float, float]] = []

      def found(
        candidate: candidates.Candidate | candidates.Refused,
        begin: float = begin,
        seen: list[tuple[float, float]] = seen,
      ) -> None:
        if isinstance(candidate, candidates.Candidate):
          seen.append(
            (candidates.tuned_us(candidate) / 1e3, _seconds() - begin)
          )

      made = search(target, searcher=searcher, found=found)
      best_ms, seconds = min(seen)
      row = (case.module, case.cluster, name, f"{best_ms:.3f}")
      out.writerow((*row, f"{seconds:.1f}", 1 + len(made.others)))


if __name__ == "__main__":
  main()
