# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""The arms of a train step: the best that the tool finds in each kind of form.

One search, the tool's own with all that acts in the training process, has all
of them among its candidates. The program as written comes first in it, with the
options that a launcher can set, so that the search without the rest of it is
its beginning.
"""

from __future__ import annotations

import dataclasses

from benchmarks.strands import module as module_lib
from benchmarks.strands import progress
from lagom_xla import errors
from lagom_xla.compile import rewriting
from lagom_xla.compile import target as target_lib
from lagom_xla.costs.replay import timeline as timeline_lib
from lagom_xla.passes.program import form as form_lib
from lagom_xla.search.xla import candidates as candidates_lib
from lagom_xla.search.xla import joint

_Candidate = candidates_lib.Candidate


@dataclasses.dataclass(frozen=True, kw_only=True)
class Arm:
  """A way to compile the step, with NCCL settings for it.

  Attributes:
    candidate: what was found.
    peak_bytes: device memory that the full compile needs, where XLA says.
  """

  candidate: _Candidate
  peak_bytes: int | None

  @property
  def name(self) -> str:
    """What the tables call it."""
    form = self.candidate.config.program
    return "as written" if form.is_as_written else rewriting.in_words(form)

  @property
  def tuned(self) -> timeline_lib.Timeline:
    """The replay under the NCCL settings that were found."""
    return self.candidate.tuned


@dataclasses.dataclass(frozen=True, kw_only=True)
class Arms:
  """The arms of a train step.

  Attributes:
    default: the program as written, under XLA's and NCCL's defaults.
    flags_only: the same with what a launcher can set.
    strands: the shortest step with micro-batches side by side; None where the
      search has none.
    slices: the shortest with chains in pieces.
    both: the shortest with both.
    best: what the tool keeps.
  """

  default: timeline_lib.Timeline
  flags_only: Arm
  strands: _Candidate | None
  slices: _Candidate | None
  both: _Candidate | None
  best: Arm


def of_module(module: module_lib.Module) -> Arms:
  """Finds the arms of a train step."""
  target = module.target()
  search = joint.search(
    target,
    in_process=True,
    progress=lambda words: progress.say(f"  {words}"),
  )
  return of_search(target, search)


def of_search(target: target_lib.Target, search: candidates_lib.Search) -> Arms:
  """The arms among the candidates of a search."""
  flags = tuple(
    candidate
    for candidate in search.scheduled[1:]
    if not candidate.config.needs_process
  )
  peaks = _Peaks(target)
  flags_only = peaks.first_that_fits(dataclasses.replace(search, others=flags))
  best = peaks.first_that_fits(search)
  return Arms(
    default=search.default.under_nccl_defaults,
    flags_only=flags_only,
    strands=_quickest(search, strands=True, slices=False),
    slices=_quickest(search, strands=False, slices=True),
    both=_quickest(search, strands=True, slices=True),
    best=best,
  )


class _Peaks:
  """Peaks of device memory, by full compiles, each of which is made once."""

  def __init__(self, target: target_lib.Target):
    self._target = target
    # By the identity of candidates, which cannot be hashed.
    self._of: dict[int, int | None] = {}

  def first_that_fits(self, search: candidates_lib.Search) -> Arm:
    """What the tool would keep of a search: its best that fits the GPU."""
    hbm_bytes = self._target.cluster.gpu.hbm_bytes
    while True:
      best = search.best
      is_last = best is search.default
      try:
        peak_bytes = self._peak_bytes(best)
      except errors.CompileError as error:
        if is_last:
          raise
        search = search.refused(best, str(error))
        continue
      if is_last or peak_bytes is None or peak_bytes <= hbm_bytes:
        return Arm(candidate=best, peak_bytes=peak_bytes)
      progress.say(f"  {peak_bytes / 1e9:.1f} GB do not fit")
      search = search.refused(best, "It does not fit.")

  def _peak_bytes(self, candidate: _Candidate) -> int | None:
    if self._target.obstacle is not None:
      return None
    if id(candidate) not in self._of:
      compilation = self._target.compile(candidate.config)
      self._of[id(candidate)] = compilation.peak_bytes
    return self._of[id(candidate)]


def _quickest(
  search: candidates_lib.Search, *, strands: bool, slices: bool
) -> _Candidate | None:
  """The shortest step of a kind of form; None where the search has none."""

  def is_of(form: form_lib.Form) -> bool:
    has_strands = form.strands != "none" or form.keyed
    return (has_strands, bool(form.slices)) == (strands, slices)

  return min(
    (c for c in search.scheduled if is_of(c.config.program)),
    key=lambda candidate: candidate.tuned.step_time_us,
    default=None,
  )
