# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Slices of the program: into how many pieces each chain is cut.

Cutting hides what no order of whole collectives can, and costs: products of a
piece fill their last wave worse, and collectives of a piece are less efficient.
So chains are cut one by one, those that move most first, each into more pieces
as long as the step becomes shorter.
"""

from __future__ import annotations

from collections.abc import Iterator
import dataclasses

from lagom_xla.compile import rewriting
from lagom_xla.compile import target as target_lib
from lagom_xla.passes.program import form as form_lib
from lagom_xla.passes.program.slices import chains as chains_lib
from lagom_xla.search.xla import candidates

# Candidates that are compiled at most.
MAX_COMPILES = 6


def search(
  target: target_lib.Target,
  so_far: candidates.Search,
  evaluate: candidates.Evaluate,
  *,
  progress: candidates.Progress = lambda _: None,
) -> candidates.Search:
  """Goes on from a search with slices of the best program so far.

  Args:
    target: what is searched.
    so_far: what was tried so far.
    evaluate: schedules and searches a config.
    progress: called with a few words after each candidate.
  """
  num_compiled = 0
  for chain in chains_to_cut(target, so_far.best):
    fastest = so_far.best
    for form in _forms(fastest.config.program, chain):
      if num_compiled == MAX_COMPILES:
        return so_far
      num_compiled += 1
      config = dataclasses.replace(so_far.best.config, program=form)
      found = evaluate(config)
      so_far = so_far.with_candidate(found)
      progress(rewriting.in_words(form))
      if (
        not isinstance(found, candidates.Candidate)
        or found.tuned.step_time_us >= fastest.tuned.step_time_us
      ):
        break
      fastest = found
  return so_far


def chains_to_cut(
  target: target_lib.Target, incumbent: candidates.Candidate
) -> list[chains_lib.Chain]:
  """Chains of the program, those that move most first.

  There are none where nothing is exposed that cutting them could hide.
  """
  tuned = incumbent.tuned
  exposed_us = tuned.total_exposed_us
  if exposed_us < candidates.LEAST_GAIN * tuned.step_time_us:
    return []
  return sorted(target.chains(), key=lambda chain: -chain.nccl_bytes)


def _forms(
  form: form_lib.Form, chain: chains_lib.Chain
) -> Iterator[form_lib.Form]:
  """A form with a chain cut, into few pieces first."""
  for num_pieces in sorted(chain.pieces):
    slices = {**form.slices, chain.label: num_pieces}
    yield dataclasses.replace(form, slices=slices)
