# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Compares strands and slices with flags only: predicted, and by wall clock.

    python -m benchmarks.strands [--wall-clock] [--only=NAME,...]
        [--format=text|csv] [--csv=FOLDER]

By default, predicts step times of train steps in every form. --wall-clock
measures on two shaped hosts on this machine, which needs root and iproute2.
Progress goes to stderr. --csv also writes the table into a folder; those in
results/ were written this way. --only keeps the rows of other modules.

One search, the tool's own with everything that acts in the training process,
finds the best of each kind of form: flags only, strands, slices, and both. It
begins with the program as written and the options that a launcher can set, so
its beginning is the search for flags only.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
import dataclasses
import statistics
import sys
from typing import Any

from benchmarks import shaped_hosts
from benchmarks import table as table_lib
from benchmarks.strands import modules
from benchmarks.strands import wall_clock
from benchmarks.workloads import cases
from lagom_xla import errors
from lagom_xla.compile import rewriting
from lagom_xla.compile import target as target_lib
from lagom_xla.costs import lower_bound
from lagom_xla.passes.program import form as form_lib
from lagom_xla.search.xla import candidates as candidates_lib
from lagom_xla.search.xla import joint

_GOAL = 1.10
_GOAL_EXPOSED = 0.03

_COLUMNS = table_lib.columns(
  module="", cluster="", default_ms=".5g", flags_only_ms=".5g",
  strands_ms=".5g", slices_ms=".5g", both_ms=".5g", best_ms=".5g",
  speedup=".3f", hidden=".3f", published=".3f", lower_bound_ms=".5g",
  flags_only_exposed_ms=".5g", exposed_ms=".5g", flags_only_slowdown_ms=".5g",
  slowdown_ms=".5g", flags_only_peak_gb=".1f", peak_gb=".1f", form="",
)  # fmt: skip


def _searched(chosen: Iterable[cases.Case]) -> list[table_lib.Row]:
  """A row for each train step."""
  rows: list[table_lib.Row] = []
  for case in chosen:
    table_lib.say(f"{case.module} on {case.cluster}")
    target = case.load(None)
    search = joint.search(
      target,
      in_process=True,
      progress=lambda words: table_lib.say(f"  {words}"),
    )
    row = {"module": case.module, "cluster": case.cluster}
    row |= _of_search(target, search)
    if case.module in modules.PUBLISHED:
      row |= {"published": modules.PUBLISHED[case.module].gain}
    # Printed now, because the table takes long.
    table_lib.say(f"  {row}")
    rows.append(row)
  return rows


def _of_search(
  target: target_lib.Target, search: candidates_lib.Search
) -> dict[str, Any]:
  """The row of a train step's search."""
  flags = tuple(
    candidate
    for candidate in search.scheduled[1:]
    if not candidate.config.needs_process
  )
  best, peak_bytes = _first_that_fits(target, search)
  flags_only, flags_peak_bytes = _first_that_fits(
    target, dataclasses.replace(search, others=flags)
  )
  form = best.config.program
  found: dict[str, Any] = {
    "default_ms": search.default.under_nccl_defaults.step_time_us / 1e3,
    "strands_ms": _quickest_ms(search, strands=True, slices=False),
    "slices_ms": _quickest_ms(search, strands=False, slices=True),
    "both_ms": _quickest_ms(search, strands=True, slices=True),
    "hidden": _hidden(search),
    "lower_bound_ms": lower_bound.us(best.step) / 1e3,
    "speedup": flags_only.tuned.step_time_us / best.tuned.step_time_us,
    "form": "as written" if form.is_as_written else rewriting.in_words(form),
  }
  for name, prefix, candidate, num_bytes in (
    ("flags_only", "flags_only_", flags_only, flags_peak_bytes),
    ("best", "", best, peak_bytes),
  ):
    found |= {
      f"{name}_ms": candidate.tuned.step_time_us / 1e3,
      f"{prefix}exposed_ms": candidate.tuned.total_exposed_us / 1e3,
      f"{prefix}slowdown_ms": candidate.tuned.total_slowdown_us / 1e3,
      f"{prefix}peak_gb": num_bytes and num_bytes / 1e9,
    }
  return found


def _first_that_fits(
  target: target_lib.Target, search: candidates_lib.Search
) -> tuple[candidates_lib.Candidate, int | None]:
  """The tool's result: the best candidate that fits the GPU, and its bytes."""
  while True:
    best = search.best
    is_last = best is search.default
    found = None
    try:
      if target.obstacle is None:
        found = target.compile(best.config).peak_bytes
    except errors.CompileError as error:
      if is_last:
        raise
      search = search.refused(best, str(error))
      continue
    if is_last or found is None or found <= target.cluster.gpu.hbm_bytes:
      return best, found
    table_lib.say(f"  {found / 1e9:.1f} GB do not fit")
    search = search.refused(best, "It does not fit.")


def _quickest_ms(
  search: candidates_lib.Search, *, strands: bool, slices: bool
) -> float | None:
  """The shortest step of a kind of form; None if the search has none."""

  def is_of(form: form_lib.Form) -> bool:
    has_strands = form.strands != "none" or form.keyed
    return (has_strands, bool(form.slices)) == (strands, slices)

  times_us = [
    candidate.tuned.step_time_us
    for candidate in search.scheduled
    if is_of(candidate.config.program)
  ]
  return min(times_us) / 1e3 if times_us else None


def _hidden(search: candidates_lib.Search) -> float | None:
  """The fastest step as written over that of any other form, even if slower."""
  as_written = _quickest_ms(search, strands=False, slices=False)
  others = [
    _quickest_ms(search, strands=strands, slices=slices)
    for strands, slices in ((True, False), (False, True), (True, True))
  ]
  known = [it for it in others if it is not None]
  if not known or as_written is None:
    return None
  return as_written / min(known)


def table_of(rows: Sequence[table_lib.Row]) -> table_lib.Table:
  """The table of these rows."""
  return table_lib.Table(
    name="forms",
    title="Strands and slices: predicted step times",
    columns=_COLUMNS,
    rows=rows,
    targets=_targets(rows),
    notes=(
      "Predicted step times in ms. Default: XLA's and NCCL's defaults. Flags"
      " only: settings of a launcher. Strands, slices and both: the shortest"
      " step of that form in one search by the tool. Best: its result, which"
      " must be surely shorter and fit the GPU; it includes combine groups and"
      " scheduler feedback.",
      "Hidden: the shortest step as written over that of any other form."
      " Published: the same, as measured by others.",
      "Peak memory is XLA's buffer assignment of the full compile.",
      "The bound is that of the best schedule.",
    ),
  )


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


def main(argv: Sequence[str] | None = None) -> None:
  """Runs the command."""
  parser = table_lib.parser("benchmarks.strands", __doc__)
  parser.add_argument("--wall-clock", action="store_true")
  parser.add_argument("--only", default="", metavar="NAME,...")
  arguments = parser.parse_args(argv)
  try:
    if arguments.wall_clock:
      obstacle = shaped_hosts.obstacle()
      if obstacle is not None:
        sys.exit(f"strands: --wall-clock skipped: {obstacle}.")
      table = wall_clock.table()
      if arguments.csv is not None:
        table.write_csv(arguments.csv)
    else:
      names = table_lib.chosen(arguments.only, modules.MODULES, "module")
      rows = _searched(modules.MODULES[name] for name in names)
      table = table_of(rows)
      if arguments.csv is not None:
        order = [(name,) for name in modules.MODULES]
        table_lib.keep(table_of, rows, arguments.csv, order)
  except errors.LagomError as error:
    sys.exit(f"strands: {error}")
  table_lib.show([table], arguments.format)


if __name__ == "__main__":
  main()
