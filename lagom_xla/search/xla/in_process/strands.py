# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Strands of the program: which to compile, then options that suit them.

A form changes what there is to overlap, and so which options gain: XLA's
combiners may couple two strands again, and one collective in flight at a time
may be too few. So each form that the program can have is scheduled under the
best options so far; the quickest with each kind of strands under XLA's
defaults, too; and options are searched anew from the best of all, though it may
not be ahead yet. What it must beat is what everything else must: XLA's defaults
and the program as written.

Compiles are what a search takes its time for. So some are left out:

- forms that make the same program as another;
- a form with keys whose kernels without keys take longer than the best step, or
  where XLA combined nothing without them, so that there is nothing to keep
  apart;
- keys alone, where another form makes the strands: they are for strands that
  are written out;
- options of which a schedule cannot foretell what they do. Those were compiled
  with the program as written, and what gained there is among the best options,
  with which forms are scheduled. In fourteen searches of train steps no other
  of them was kept with strands (benchmarks/strands).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
import dataclasses
import functools
import typing

from lagom_xla.compile import config as config_lib
from lagom_xla.compile import target as target_lib
from lagom_xla.costs import step as step_lib
from lagom_xla.passes.program import form as form_lib
from lagom_xla.search.xla import attempts as attempts_lib
from lagom_xla.search.xla import candidates
from lagom_xla.search.xla import knobs
from lagom_xla.search.xla import options
from lagom_xla.search.xla import turns
from lagom_xla.search.xla.knobs import scheduling
from lagom_xla.search.xla.knobs import thresholds
from lagom_xla.search.xla.knobs import value as value_lib

# The one that is usually quickest first; "none" is for strands that are written
# out, which keys alone keep apart.
_ORDER = ("rotated", "paired", "merged", "staggered", "none")
_STRANDS: tuple[form_lib.Strands, ...] = tuple(
  sorted(typing.get_args(form_lib.Strands), key=_ORDER.index)
)
# Sets of options that are compiled for the best form.
_MAX_OPTIONS = 8
# Candidates at most: all strands with keys and without; the quicker of both
# under the defaults, too; the rest as above. Where keys alone are tried, there
# are no strands.
_NUM_MADE = len(_STRANDS) - 1
MAX_COMPILES = 2 * _NUM_MADE + _NUM_MADE + _MAX_OPTIONS


def search(
  target: target_lib.Target,
  so_far: candidates.Search,
  evaluate: candidates.Evaluate,
  *,
  in_turn: turns.InTurn = turns.one_by_one,
  progress: candidates.Progress = lambda _: None,
) -> candidates.Search:
  """Goes on from a search of options with forms of the program.

  Args:
    target: what is searched.
    so_far: what was tried so far, with the program as written.
    evaluate: schedules and searches a config.
    in_turn: begins forms, and the configs of a round, ahead.
    progress: called with a few words after each candidate.
  """
  incumbent = so_far.best
  attempts = attempts_lib.Attempts(so_far, evaluate, progress)
  no_keys: set[form_lib.Strands] = set()
  forms = list(_forms(target))
  configs = [dataclasses.replace(incumbent.config, program=f) for f in forms]
  for form, config in zip(forms, in_turn(configs), strict=True):
    if form.keyed and form.strands in no_keys:
      continue
    found = attempts.make(config)
    if found is not None:
      can_win = attempts_lib.can_win(found, attempts.so_far)
      if not (can_win and _is_combined(found.step)):
        no_keys.add(form.strands)
  if incumbent.config.options:
    quickest = _quickest_of_each(attempts.scheduled)
    able = [c for c in quickest if attempts_lib.can_win(c, attempts.so_far)]
    alone = [config_lib.XlaConfig(program=c.config.program) for c in able]
    for candidate, config in zip(able, in_turn(alone), strict=True):
      if attempts_lib.can_win(candidate, attempts.so_far):
        attempts.make(config)
  so_far = attempts.so_far
  start = min(attempts.scheduled, key=candidates.tuned_us, default=None)
  if start is None or not attempts_lib.can_win(start, so_far):
    return so_far
  more = options.search(
    candidates.Search(default=start),
    evaluate,
    max_compiles=1 + _MAX_OPTIONS,
    regardless=functools.partial(
      _for_strands, keyed=start.config.program.keyed
    ),
    in_turn=in_turn,
    progress=progress,
  )
  return so_far.with_search(more)


def _quickest_of_each(
  tried: Iterable[candidates.Candidate],
) -> list[candidates.Candidate]:
  """The quickest with each kind of strands, the quickest of all first."""
  found: dict[form_lib.Strands, candidates.Candidate] = {}
  for candidate in sorted(tried, key=candidates.tuned_us):
    found.setdefault(candidate.config.program.strands, candidate)
  return list(found.values())


def _is_combined(step: step_lib.Step) -> bool:
  return any(c.num_operands > 1 for c in step.analysis.collectives)


def _for_strands(
  step: step_lib.Step, *, keyed: bool
) -> Sequence[value_lib.Value]:
  """Options that suit strands, whatever is predicted for them.

  A collective that is combined of two strands' waits for both, unless keys keep
  them apart, and one that is in flight keeps the other strand's from starting.
  """
  values = [scheduling.in_flight(2)]
  combined = {c.kind for c in step.analysis.collectives if c.num_operands > 1}
  if not keyed and (kinds := combined & thresholds.OPTIONS.keys()):
    values.insert(0, knobs.uncombined(kinds))
  return value_lib.offered(values)


def _forms(target: target_lib.Target) -> Iterator[form_lib.Form]:
  """The forms to compile, each without keys first.

  One that the program cannot have is there, to be refused by name; the same
  one with keys is not, nor is one that makes the same program as another.
  """
  known = {target.digest(form_lib.AS_WRITTEN)}
  for strands in _STRANDS:
    form = form_lib.Form(strands=strands)
    if not (form.is_as_written or target.outcome(form).actions):
      yield form
      continue
    if form.is_as_written and len(known) > 1:
      return
    for keyed in (False, True):
      form = form_lib.Form(strands=strands, keyed=keyed)
      if keyed and not target.outcome(form).actions:
        continue
      digest = target.digest(form)
      if digest not in known:
        known.add(digest)
        yield form
