# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Attempts of one part of a search: configs evaluated one after the other."""

from __future__ import annotations

from lagom_xla.compile import config as config_lib
from lagom_xla.compile import rewriting
from lagom_xla.search.xla import candidates


class Attempts:
  """What a part of a search adds to it.

  Attributes:
    so_far: the search with all attempts made.
    scheduled: the attempts that XLA took, in the order in which they were made.
  """

  def __init__(
    self,
    so_far: candidates.Search,
    evaluate: candidates.Evaluate,
    progress: candidates.Progress,
  ):
    self.so_far = so_far
    self.scheduled: list[candidates.Candidate] = []
    self._evaluate = evaluate
    self._progress = progress

  def make(self, config: config_lib.XlaConfig) -> candidates.Candidate | None:
    """Evaluates a config; the candidate unless it is refused."""
    found = self._evaluate(config)
    self.so_far = self.so_far.with_candidate(found)
    self._progress(rewriting.in_words(config.program))
    if isinstance(found, candidates.Refused):
      return None
    self.scheduled.append(found)
    return found


def can_win(candidate: candidates.Candidate, so_far: candidates.Search) -> bool:
  """Whether it could be the best if nothing of it were exposed or slowed."""
  return candidate.tuned.kernel_us < so_far.best.tuned.step_time_us
