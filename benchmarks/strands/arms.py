# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""The arms of a train step: the best that the tool finds in each kind of form.

One search, the tool's own with all that acts in the training process, has all
of them among its candidates. The program as written comes first in it, with the
options that a launcher can set, so that the search without the rest of it is
its beginning.
"""

from __future__ import annotations

from collections.abc import Callable
import dataclasses

from benchmarks.strands import module as module_lib
from benchmarks.strands import progress
from lagom_xla import tuner
from lagom_xla.compile import rewriting
from lagom_xla.compile import target as target_lib
from lagom_xla.costs.replay import timeline as timeline_lib
from lagom_xla.passes.program import form as form_lib
from lagom_xla.search.xla import candidates as candidates_lib

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
  found = tuner.tune(
    target,
    in_process=True,
    progress=lambda words: progress.say(f"  {words}"),
  )
  return of_tuning(target, found)


def of_tuning(target: target_lib.Target, found: tuner.Tuning) -> Arms:
  """The arms among the candidates of a search."""
  return Arms(
    default=found.timeline_before,
    flags_only=_flags_only(target, found),
    strands=_quickest(
      found, lambda form: form.strands != "none" and not form.slices
    ),
    slices=_quickest(
      found, lambda form: form.strands == "none" and bool(form.slices)
    ),
    both=_quickest(
      found, lambda form: form.strands != "none" and bool(form.slices)
    ),
    best=Arm(candidate=found.kept, peak_bytes=found.peak_bytes_after),
  )


def _flags_only(target: target_lib.Target, found: tuner.Tuning) -> Arm:
  """The best of what a launcher can set that fits the GPU."""
  others = tuple(
    candidate
    for candidate in found.search.scheduled[1:]
    if not candidate.config.needs_process
  )
  search = dataclasses.replace(found.search, others=others)
  hbm_bytes = target.cluster.gpu.hbm_bytes
  while True:
    best = search.best
    peak_bytes = _peak_bytes(target, found, best)
    is_default = best is search.default
    if is_default or peak_bytes is None or peak_bytes <= hbm_bytes:
      return Arm(candidate=best, peak_bytes=peak_bytes)
    search = search.refused(best, "It does not fit.")


def _peak_bytes(
  target: target_lib.Target, found: tuner.Tuning, candidate: _Candidate
) -> int | None:
  """Of the full compile; those of the search are not compiled again."""
  if candidate is found.search.default:
    return found.peak_bytes_before
  if candidate is found.kept:
    return found.peak_bytes_after
  if target.obstacle is not None:
    return None
  return target.compile(candidate.config).peak_bytes


def _quickest(
  found: tuner.Tuning, is_of: Callable[[form_lib.Form], bool]
) -> _Candidate | None:
  """The shortest step whose form is of a kind; None where there is none."""
  return min(
    (c for c in found.search.scheduled if is_of(c.config.program)),
    key=lambda candidate: candidate.tuned.step_time_us,
    default=None,
  )
