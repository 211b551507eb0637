# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Slices of the program: into how many pieces each chain is cut.

Cutting hides what no order of whole collectives can, and costs: products of a
piece fill their last wave worse, and collectives of a piece are less efficient.
Only chains of which something is exposed can gain. Chains that are alike, such
as those of unrolled layers, are cut alike: one of 32 gains nothing that could
be seen. Which are worth a compile, and in how many pieces, is predicted first
(`exposure.py`); then many of them are cut at once, and one kind of chains after
the other as long as the step becomes shorter.

Pieces must stay apart. Where XLA combines them again, as it does in programs
that it partitions, whose reduce-scatters lose their keys, the quickest cut is
tried with nothing of those kinds combined, too.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
import dataclasses

from lagom_xla import errors
from lagom_xla.compile import target as target_lib
from lagom_xla.costs import step as step_lib
from lagom_xla.search.xla import attempts as attempts_lib
from lagom_xla.search.xla import candidates
from lagom_xla.search.xla import knobs
from lagom_xla.search.xla.in_process import exposure
from lagom_xla.search.xla.knobs import thresholds
from lagom_xla.search.xla.knobs import value as value_lib

# Cuts that are compiled at most, of the quickest program with strands and the
# quickest as written: the quicker one first.
_MAX_CUTS = (5, 2)
# One schedule of each program tells what is exposed; one has pieces kept apart.
MAX_COMPILES = sum(1 + max_cuts + 1 for max_cuts in _MAX_CUTS)


def search(
  target: target_lib.Target,
  so_far: candidates.Search,
  evaluate: candidates.Evaluate,
  *,
  progress: candidates.Progress = lambda _: None,
) -> candidates.Search:
  """Goes on from a search with slices of the best programs so far.

  Args:
    target: what is searched.
    so_far: what was tried so far.
    evaluate: schedules and searches a config.
    progress: called with a few words after each schedule.
  """
  chains = target.chains()
  programs = _programs(so_far) if chains else []
  for start, max_cuts in zip(programs, _MAX_CUTS, strict=False):
    if not attempts_lib.can_win(start, so_far) or not _is_exposed(start):
      continue
    try:
      kinds = exposure.of_chains(target, start, chains)
    except (errors.CompileError, errors.ProgramError) as error:
      refused = candidates.Refused(config=start.config, reason=str(error))
      so_far = so_far.with_candidate(refused)
      continue
    finally:
      progress("what is exposed of each chain")
    so_far = _cut(start, kinds, max_cuts, so_far, evaluate, progress)
  return so_far


def _programs(so_far: candidates.Search) -> list[candidates.Candidate]:
  """The quickest with strands, and as written: the quicker one first."""
  quickest: dict[bool, candidates.Candidate] = {}
  for candidate in sorted(so_far.scheduled, key=candidates.tuned_us):
    quickest.setdefault(candidate.config.program.is_as_written, candidate)
  return list(quickest.values())


def _is_exposed(candidate: candidates.Candidate) -> bool:
  tuned = candidate.tuned
  return tuned.total_exposed_us >= candidates.LEAST_GAIN * tuned.step_time_us


def _cut(
  start: candidates.Candidate,
  kinds: Sequence[exposure.Kind],
  max_cuts: int,
  so_far: candidates.Search,
  evaluate: candidates.Evaluate,
  progress: candidates.Progress,
) -> candidates.Search:
  """The search with slices of one program."""
  attempts = attempts_lib.Attempts(so_far, evaluate, progress)
  cuts = attempts.scheduled
  tried: list[Mapping[str, int]] = []
  left: list[exposure.Kind | None] = [None, *kinds]

  while left and len(tried) < max_cuts:
    quickest = min((start, *cuts), key=candidates.tuned_us)
    moves = _moves(quickest, kinds, left[0])
    slices = next((m for m in moves if m not in tried), None)
    if slices is None:
      left.pop(0)
      continue
    tried.append(slices)
    form = dataclasses.replace(start.config.program, slices=slices)
    attempts.make(dataclasses.replace(start.config, program=form))
  if cuts:
    quickest = min(cuts, key=candidates.tuned_us)
    if options := _apart(start.step, quickest.step):
      attempts.make(quickest.config.with_options(options))
  return attempts.so_far


def _apart(before: step_lib.Step, after: step_lib.Step) -> value_lib.XlaOptions:
  """Options that keep pieces apart which XLA combined again; {} if none.

  Pieces bear keys that keep the combiners off, but the partitioner drops them.
  """
  num_before, num_after = _num_combined(before), _num_combined(after)
  kinds = [kind for kind in num_after if num_after[kind] > num_before[kind]]
  if not kinds:
    return {}
  offered = value_lib.offered([knobs.uncombined(kinds)])
  return offered[0].options if offered else {}


def _num_combined(step: step_lib.Step) -> Counter[str]:
  """Collectives of each kind that were combined with others, in a step."""
  num: Counter[str] = Counter()
  for collective in step.analysis.collectives:
    if collective.kind in thresholds.OPTIONS:
      num[collective.kind] += collective.executions * (
        collective.num_operands - 1
      )
  return num


def _moves(
  quickest: candidates.Candidate,
  kinds: Sequence[exposure.Kind],
  kind: exposure.Kind | None,
) -> Iterator[Mapping[str, int]]:
  """Slices to try next.

  Args:
    quickest: with the best slices so far.
    kinds: of chains.
    kind: the one to cut otherwise; None to cut many at once.
  """
  slices = quickest.config.program.slices
  if kind is None:
    both_ends = [k for k in kinds if k.has_both_ends]
    if len(both_ends) > 1:
      yield _together(both_ends)
    # More is cut at once only if that much gained.
    if len(kinds) > 1 and (len(both_ends) <= 1 or slices):
      yield _together(kinds)
    return
  others = {
    label: slices[label]
    for other in kinds
    if kind.collectives.isdisjoint(other.collectives)
    for label in other.labels
    if label in slices
  }
  now = slices.get(kind.labels[0], 1)
  numbers = (1, *kind.pieces)
  at = numbers.index(now)
  wanted = numbers[at + 1 : at + 2] + numbers[max(at - 1, 0) : at]
  for num in wanted if now > 1 else (kind.num_pieces,):
    cut = dict.fromkeys(kind.labels, num) if num > 1 else {}
    if others or cut:
      yield {**others, **cut}


def _together(kinds: Sequence[exposure.Kind]) -> Mapping[str, int]:
  """Each kind in as many pieces as promise most, but for those that clash."""
  slices: dict[str, int] = {}
  taken: frozenset[str] = frozenset()
  for kind in kinds:
    if taken.isdisjoint(kind.collectives):
      taken |= kind.collectives
      slices |= dict.fromkeys(kind.labels, kind.num_pieces)
  return slices
