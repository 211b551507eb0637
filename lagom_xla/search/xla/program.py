# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Forms of the program: strands, then the options that suit them.

A form changes what there is to overlap, and so which options gain: XLA's
combiners may couple two strands again, and one collective in flight at a time
may be too few. So each form that the program can have is scheduled under XLA's
defaults and under the best options so far, and the options are searched anew
from the best of these, though it may not be ahead yet. What it must beat is
what everything else must: XLA's defaults and the program as written.
"""

from __future__ import annotations

from collections.abc import Iterator
import dataclasses
import typing

from lagom_xla.compile import config as config_lib
from lagom_xla.compile import rewriting
from lagom_xla.compile import target as target_lib
from lagom_xla.passes.program import form as form_lib
from lagom_xla.search.xla import candidates
from lagom_xla.search.xla import options

_STRANDS: tuple[form_lib.Strands, ...] = tuple(
  strands for strands in typing.get_args(form_lib.Strands) if strands != "none"
)
# Sets of options that are compiled for the best form.
_MAX_OPTIONS = 8
# Candidates that are compiled at most: each form twice.
MAX_COMPILES = 2 * len(_STRANDS) + _MAX_OPTIONS


def search(
  target: target_lib.Target,
  so_far: candidates.Search,
  evaluate: candidates.Evaluate,
  *,
  progress: candidates.Progress = lambda _: None,
) -> candidates.Search:
  """Goes on from a search of options with forms of the program.

  Args:
    target: what is searched.
    so_far: what was tried so far, with the program as written.
    evaluate: schedules and searches a config.
    progress: called with a few words after each candidate.
  """
  incumbent = so_far.best
  tried: list[candidates.Candidate] = []
  for config in _configs(target, incumbent):
    found = evaluate(config)
    so_far = so_far.with_candidate(found)
    progress(rewriting.in_words(config.program))
    if isinstance(found, candidates.Candidate):
      tried.append(found)
  if not tried:
    return so_far
  start = min(tried, key=lambda candidate: candidate.tuned.step_time_us)
  if start.tuned.kernel_us >= so_far.best.tuned.step_time_us:
    return so_far  # Not even if nothing of it were exposed or slowed.
  found = options.search(
    candidates.Search(default=start),
    evaluate,
    max_compiles=1 + _MAX_OPTIONS,
    progress=progress,
  )
  return dataclasses.replace(
    so_far,
    others=(*so_far.others, *found.others),
    num_predicted=so_far.num_predicted + found.num_predicted,
  )


def _configs(
  target: target_lib.Target, incumbent: candidates.Candidate
) -> Iterator[config_lib.XlaConfig]:
  """Each form under XLA's defaults, and under the incumbent's options.

  A form that the program cannot have comes once, to be refused by name.
  """
  for strands in _STRANDS:
    form = form_lib.Form(strands=strands)
    yield config_lib.XlaConfig(program=form)
    if incumbent.config.options and target.outcome(form).actions:
      yield dataclasses.replace(incumbent.config, program=form)
