# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""The search over NCCL settings of a fixed schedule.

A new searcher is a subclass of `searcher.Searcher` in a file of its own, an
entry of `SEARCHERS`, and a choice of `lagom-xla tune --searcher`.
"""

from __future__ import annotations

from collections.abc import Mapping

from lagom_xla import errors
from lagom_xla.search.nccl.balance import Balance
from lagom_xla.search.nccl.lagom import Lagom
from lagom_xla.search.nccl.searcher import Searcher

# The searchers that a user can choose, by name.
SEARCHERS: Mapping[str, Searcher] = {"lagom": Lagom(), "balance": Balance()}
DEFAULT_SEARCHER = "balance"


def by_name(name: str) -> Searcher:
  """A searcher that a user can choose.

  Raises:
    SearcherError: there is none of that name.
  """
  if name not in SEARCHERS:
    raise errors.SearcherError(
      f"There is no searcher {name!r}: it must be one of"
      f" {', '.join(SEARCHERS)}."
    )
  return SEARCHERS[name]
