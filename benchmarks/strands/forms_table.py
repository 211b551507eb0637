# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""The tables of train steps in every form, and of what they still expose.

The arms of a train step are the best that the tool finds in each kind of form:
flags only, strands, slices, and both. One search, the tool's own with all that
acts in the training process, has all of them among its candidates. The program
as written comes first in it, with the options that a launcher can set, so that
the search without the rest of it is its beginning.

How often a collective runs in a step tells where it stands: once, with the
gradients of all micro-batches and the optimizer; once per micro-batch, at the
embedding or the head; once per layer or more often, in the loops over layers.
XLA may have unrolled those by two, which makes two collectives of one.
"""

from __future__ import annotations

import collections
from collections.abc import Iterable, Sequence
import dataclasses
import itertools
import statistics
from typing import Any

from benchmarks import table as table_lib
from benchmarks.strands import modules as modules_lib
from lagom_xla import errors
from lagom_xla.compile import rewriting
from lagom_xla.compile import target as target_lib
from lagom_xla.costs import lower_bound
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


def of_search(target: target_lib.Target, search: candidates_lib.Search) -> Arms:
  """The arms among the candidates of a search."""
  flags = tuple(
    candidate
    for candidate in search.scheduled[1:]
    if not candidate.config.needs_process
  )
  # Of full compiles, each of which is made once, by the candidates' identity.
  peaks: dict[int, int | None] = {}

  def peak_bytes(candidate: _Candidate) -> int | None:
    if id(candidate) not in peaks:
      peaks[id(candidate)] = (
        target.compile(candidate.config).peak_bytes
        if target.obstacle is None
        else None
      )
    return peaks[id(candidate)]

  def first_that_fits(search: candidates_lib.Search) -> Arm:
    """What the tool would keep of a search: its best that fits the GPU."""
    while True:
      best = search.best
      is_last = best is search.default
      try:
        found = peak_bytes(best)
      except errors.CompileError as error:
        if is_last:
          raise
        search = search.refused(best, str(error))
        continue
      if is_last or found is None or found <= target.cluster.gpu.hbm_bytes:
        return Arm(candidate=best, peak_bytes=found)
      modules_lib.say(f"  {found / 1e9:.1f} GB do not fit")
      search = search.refused(best, "It does not fit.")

  def quickest(*, strands: bool, slices: bool) -> _Candidate | None:
    """The shortest step of a kind of form; None where the search has none."""

    def is_of(form: form_lib.Form) -> bool:
      has_strands = form.strands != "none" or form.keyed
      return (has_strands, bool(form.slices)) == (strands, slices)

    found = [c for c in search.scheduled if is_of(c.config.program)]
    return min(found, key=lambda c: c.tuned.step_time_us, default=None)

  return Arms(
    default=search.default.under_nccl_defaults,
    flags_only=first_that_fits(dataclasses.replace(search, others=flags)),
    strands=quickest(strands=True, slices=False),
    slices=quickest(strands=False, slices=True),
    both=quickest(strands=True, slices=True),
    best=first_that_fits(search),
  )


EXPOSED = "exposed"

# Kind, executions per step, GPUs and bytes.
_Place = tuple[str, int, int, int]

# Less, as a share of the step, is not shown.
_LEAST = 1e-3

_EXPOSED_COLUMNS = tuple(
  itertools.starmap(
    table_lib.Column,
    (
      ("module", ""), ("form", ""), ("kind", ""), ("executions", "d"),
      ("num_ranks", "d"), ("mbytes", ".1f"), ("alone_ms", ".1f"),
      ("exposed_ms", ".1f"), ("share", ".1%"),
    ),
  )
)  # fmt: skip


def exposed_table_of(rows: Sequence[table_lib.Row]) -> table_lib.Table:
  """The table of these rows."""
  return table_lib.Table(
    name=EXPOSED,
    title="What stays exposed in the best form",
    columns=_EXPOSED_COLUMNS,
    rows=rows,
    notes=(
      "Predicted. Collectives of one kind and size that run equally often are"
      f" one row; those below {_LEAST:.1%} of the step are left out.",
    ),
  )


def exposed_rows(
  module: modules_lib.Module, arms: Arms
) -> list[dict[str, Any]]:
  """What is exposed in the best form of a train step, most of it first."""
  tuned, step = arms.best.tuned, arms.best.candidate.step
  settings = arms.best.candidate.settings
  exposed_us: dict[_Place, float] = collections.defaultdict(float)
  alone_us: dict[_Place, float] = collections.defaultdict(float)
  for collective in step.analysis.collectives:
    key = step.key_of[collective.name]
    executions = collective.executions
    place = (collective.kind, executions, key.num_ranks, key.num_bytes)
    exposed_us[place] += tuned.exposed_us.get(collective.name, 0.0)
    alone_us[place] += executions * step.predict(key, settings[key]).time_us
  found = []
  for place in sorted(exposed_us, key=lambda place: -exposed_us[place]):
    share = exposed_us[place] / tuned.step_time_us
    if share < _LEAST:
      break
    kind, executions, num_ranks, num_bytes = place
    found.append(
      {
        "module": module.name,
        "form": arms.best.name,
        "kind": kind,
        "executions": executions,
        "num_ranks": num_ranks,
        "mbytes": num_bytes / 1e6,
        "alone_ms": alone_us[place] / 1e3,
        "exposed_ms": exposed_us[place] / 1e3,
        "share": share,
      }
    )
  return found


NAME = "forms"

_GOAL = 1.10
_GOAL_EXPOSED = 0.03


_FORMS_COLUMNS = (
  table_lib.Column("module"),
  table_lib.Column("cluster"),
  *(
    table_lib.Column(f"{name}_ms", ".1f")
    for name in ("default", "flags_only", "strands", "slices", "both", "best")
  ),
  table_lib.Column("speedup", ".3f"),
  *(
    table_lib.Column(name, ".1f")
    for name in (
      "lower_bound_ms", "flags_only_exposed_ms", "exposed_ms",
      "flags_only_slowdown_ms", "slowdown_ms", "flags_only_peak_gb", "peak_gb",
    )
  ),
  table_lib.Column("form"),
)  # fmt: skip


def tables(modules: Iterable[modules_lib.Module]) -> list[table_lib.Table]:
  """The table, and that of what is exposed in the best forms."""
  rows, exposed = [], []
  for module in modules:
    modules_lib.say(f"{module.name} on {module.cluster_name}")
    target = module.target()
    search = joint.search(
      target,
      in_process=True,
      progress=lambda words: modules_lib.say(f"  {words}"),
    )
    arms = of_search(target, search)
    rows.append(row(module, arms))
    exposed += exposed_rows(module, arms)
    # Before its table is there, which takes long.
    figures = [
      f"{column.field} {column.cell(rows[-1])}"
      for column in _FORMS_COLUMNS[2:]
      if rows[-1][column.field] is not None
    ]
    modules_lib.say(f"  {', '.join(figures)}")
  return [table_of(rows), exposed_table_of(exposed)]


def table_of(rows: Sequence[table_lib.Row]) -> table_lib.Table:
  """The table of these rows."""
  return table_lib.Table(
    name=NAME,
    title="Strands and slices: predicted step times",
    columns=_FORMS_COLUMNS,
    rows=rows,
    targets=_targets(rows),
    notes=(
      "Predicted step times in ms. Default: XLA's and NCCL's defaults. Flags"
      " only: what a launcher can set. Strands, slices and both: the shortest"
      " step of that form in one search by the tool. Best: what it keeps, which"
      " has to be surely shorter and fit the GPU; combine groups and scheduler"
      " feedback are part of it.",
      "Peak memory is XLA's buffer assignment of the full compile.",
      "The bound is that of the best schedule.",
    ),
  )


def row(module: modules_lib.Module, arms: Arms) -> dict[str, Any]:
  """What became of a train step."""
  found: dict[str, Any] = {
    "module": module.name,
    "cluster": module.cluster_name,
    "default_ms": arms.default.step_time_us / 1e3,
    "lower_bound_ms": lower_bound.us(arms.best.candidate.step) / 1e3,
    "speedup": arms.flags_only.tuned.step_time_us
    / arms.best.tuned.step_time_us,
    "form": arms.best.name,
  }
  for name in ("strands", "slices", "both"):
    candidate: _Candidate | None = getattr(arms, name)
    found[f"{name}_ms"] = candidate and candidate.tuned.step_time_us / 1e3
  for name, prefix, arm in (
    ("flags_only", "flags_only_", arms.flags_only),
    ("best", "", arms.best),
  ):
    found |= {
      f"{name}_ms": arm.tuned.step_time_us / 1e3,
      f"{prefix}exposed_ms": arm.tuned.total_exposed_us / 1e3,
      f"{prefix}slowdown_ms": arm.tuned.total_slowdown_us / 1e3,
      f"{prefix}peak_gb": arm.peak_bytes and arm.peak_bytes / 1e9,
    }
  return found


def _targets(rows: Sequence[table_lib.Row]) -> Sequence[table_lib.Target]:
  speedups = [r["speedup"] for r in rows]
  parallel = [r["speedup"] for r in rows if "-tp-" in r["module"]]
  exposed = [r["exposed_ms"] / r["best_ms"] for r in rows]
  if not parallel:
    return ()
  return (
    table_lib.Target(
      wanted=f"at least {_GOAL:.2f}x over flags only on the TP modules, by the"
      " median",
      found=f"{statistics.median(parallel):.3f}x, from {min(parallel):.3f}x to"
      f" {max(parallel):.3f}x",
      is_met=statistics.median(parallel) >= _GOAL,
    ),
    table_lib.Target(
      wanted="never below 1.00x",
      found=f"{min(speedups):.3f}x at least",
      is_met=min(speedups) >= 1.0,
    ),
    table_lib.Target(
      wanted=f"at most {_GOAL_EXPOSED:.0%} of the step exposed",
      found=f"{min(exposed):.1%} to {max(exposed):.1%}, in the median"
      f" {statistics.median(exposed):.1%}",
      is_met=max(exposed) <= _GOAL_EXPOSED,
    ),
  )
