# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""The search so far, from which a plan is made where the search is stopped."""

from __future__ import annotations

from lagom_xla import errors
from lagom_xla.compile import config as config_lib
from lagom_xla.search.xla import candidates as candidates_lib


class SoFar:
  """What was found, for whoever is stopped."""

  def __init__(self):
    self.search: candidates_lib.Search | None = None

  def add(
    self, candidate: candidates_lib.Candidate | candidates_lib.Refused
  ) -> None:
    """Adds the default, then others."""
    if self.search is not None:
      self.search = self.search.with_candidate(candidate)
    elif isinstance(candidate, candidates_lib.Candidate):
      self.search = candidates_lib.Search(default=candidate)


def launched_alone(
  search: candidates_lib.Search, config: config_lib.XlaConfig
) -> candidates_lib.Candidate | None:
  """The candidate that has a config's options alone, if it was tried."""
  alone = config_lib.XlaConfig(options=config.options)
  return next((c for c in search.scheduled if c.config == alone), None)


def without_unchecked(
  search: candidates_lib.Search, stop: errors.Stopped
) -> candidates_lib.Search:
  """A search without what needs another compile before a plan can be made.

  What a launcher could set of a candidate must have been compiled by itself.
  """
  for candidate in search.scheduled:
    if launched_alone(search, candidate.config) is None:
      search = search.refused(candidate, f"Not checked: {stop.reason}.")
  return search
