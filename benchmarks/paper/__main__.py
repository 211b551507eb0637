# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Predicts the Lagom paper's table: its workloads on its clusters.

  python -m benchmarks.paper [--only=TEXT] [--format=text|csv] [--csv=FOLDER]

Nothing is fitted to the paper's figures. Progress goes to stderr. --csv also
writes the tables into a folder; those in results/ were written this way.

All searchers start from NCCL's own choices and see the same predictions.
AutoCCL's plan has, for each tuning key, the setting with the fastest
collectives, regardless of the kernels. The channel cap is listed too, because
only this plan affects sends and receives, which no NCCL tuner can.

The tables include figures of the papers: Lagom's, arXiv 2602.20656, section 4,
and AutoCCL's, NSDI 2025. Without a table in the paper, they are ranges from its
text. Speedups are over NCCL's default.

The paper analyzes two overlaps of Phi-2 with FSDP on 8 A40s. Pattern 1 is the
forward pass: the next layer's all-gather beside a layer. Pattern 2 is the
backward pass: all-gather and reduce-scatter beside a layer. Here they are the
most frequent overlaps of that step, each searched by itself. The paper's NCCL
can do so because it distinguishes calls; NCCL's tuner plugin would see one
all-gather of the same size in both.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
import dataclasses
import sys
from typing import Any

from benchmarks import table as table_lib
from benchmarks.paper import cases
from benchmarks.searchers import autoccl
from benchmarks.searchers import lagom
from benchmarks.searchers import searcher as searcher_lib
from benchmarks.searchers import space as space_lib
from benchmarks.searchers.balance import Balance
from lagom_xla.costs import lower_bound
from lagom_xla.costs import nccl
from lagom_xla.costs import step as step_lib
from lagom_xla.costs.replay import program as program_lib
from lagom_xla.costs.replay import timeline
from lagom_xla.search.nccl import channel_cap
from lagom_xla.search.nccl import problem as problem_lib

# Lagom's end-to-end speedups, by parallelism.
_LAGOM_SPEEDUP = {"fsdp": (1.10, 1.33), "tp": (1.08, 1.16), "ep": (1.07, 1.08)}
# AutoCCL's in the same experiments; the paper gives no range for FSDP.
_AUTOCCL_SPEEDUP = {
  "fsdp": "some below 1",
  "tp": "1.03–1.09",
  "ep": "1.03–1.09",
}
# Searches of an overlap of two collectives (figure 8c).
_REPORTED_TRIALS = {"Lagom": 33, "AutoCCL": 16}


def _ring(num_channels: int, chunk_kib: int) -> nccl.Setting:
  return nccl.Setting(
    algorithm="ring",
    protocol="simple",
    num_channels=num_channels,
    chunk_bytes=chunk_kib * 1024,
  )


# NCCL 2.18's default for all-gather and reduce-scatter on 8 A40s: with NVLink
# pairs (both papers), and over PCIe alone (AutoCCL, table 3).
_DEFAULT = {"lagom_a": _ring(8, 2048), "lagom_b": _ring(2, 2048)}
# Kinds for which that default is known.
_KNOWN_DEFAULTS = ("all-gather", "reduce-scatter", "all-reduce")

WORKLOAD = "phi-2/fsdp/8/a"
_KINDS = {"1": ("all-gather",), "2": ("all-gather", "reduce-scatter")}
# Settings that the paper reports, and their speedups. It does not give
# AutoCCL's chunk. In pattern 2 it tunes the reduce-scatter, and gives only its
# setting.
_REPORTED = {
  "1": {
    "NCCL 2.18": (_ring(8, 2048), 1.00),
    "AutoCCL": (_ring(61, 2048), 0.87),
    "Lagom": (_ring(2, 684), 1.35),
  },
  "2": {
    "NCCL 2.18": (_ring(8, 2048), 1.00),
    "Lagom": (_ring(4, 1366), 1.43),
  },
}
_TUNED = {"1": "all-gather", "2": "reduce-scatter"}

SEARCHERS: Mapping[str, searcher_lib.Searcher] = {
  "AutoCCL": autoccl.AutoCCL(),
  "Lagom": lagom.Lagom(),
  "balance": Balance(),
}

Configuration = step_lib.Configuration


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Searched:
  """A workload's step with a plan of each searcher."""

  case: cases.Case
  step: step_lib.Step
  plans: Mapping[str, Configuration]


def searched(case: cases.Case, step: step_lib.Step) -> Searched:
  """Searches a workload; `step` is its own."""
  plans = {}
  for name in SEARCHERS:
    plans[name] = dict(step.default)
    for problem in problem_lib.problems(step):
      plans[name].update(_search(name, step, problem)[0])
  return Searched(case=case, step=step, plans=plans)


def _search(
  name: str, step: step_lib.Step, problem: problem_lib.Problem
) -> tuple[Configuration, int]:
  """A searcher's result for a problem, and its number of trials."""
  searcher = SEARCHERS[name]
  predictor = space_lib.Predictor(step, problem)
  fastest = autoccl.Fastest({key: step.default[key] for key in problem.keys})

  def profile(configuration: Configuration) -> space_lib.Profile:
    shown = predictor(configuration)
    fastest.add(configuration, shown)
    return shown

  search = searcher_lib.run(
    searcher, problem, step.cluster, start=step.default, profile=profile
  )
  if isinstance(searcher, autoccl.AutoCCL):
    return fastest.configuration, search.num_trials
  return search.best, search.num_trials


def _where(case: cases.Case) -> dict[str, Any]:
  layout = case.workload.layout
  return {
    "cluster": {"lagom_a": "A", "lagom_b": "B"}[case.cluster],
    "workload": f"{case.model} {case.kind.upper()}",
    "num_gpus": layout.data * layout.model,
  }


_WHERE = table_lib.columns(cluster="", workload="", num_gpus="d")


def step_times(found: Iterable[Searched]) -> table_lib.Table:
  """The table of step times and speedups, with the paper's."""
  return table_lib.Table(
    name="step_times",
    title="Predicted step times",
    columns=(
      *_WHERE,
      *(table_lib.Column(f"{n}_ms", ",.0f") for n in ("NCCL", *SEARCHERS)),
      *(table_lib.Column(name, ".3f") for name in SEARCHERS),
      *table_lib.columns(
        autoccl_reported="", lagom_reported="", over_nccl_2_18=".3f",
        cap=".3f", bound=".3f",
      ),
    ),
    rows=[_step_times(one) for one in found],
    notes=(
      "All times are predicted; nothing ran on a GPU, and nothing is fitted to"
      " the papers' figures.",
      "NCCL is the default of NCCL 2.32 as the cost model has it, where"
      " searches start; NCCL 2.18 is the paper's: 8 channels with NVLink pairs,"
      " 2 over PCIe alone, in chunks of 2 MB. The cap is the best"
      " NCCL_MAX_CTAS.",
      '"bound" is the lower bound of all tuning: only waits forced by the'
      " schedule, no contention, links at their data sheet's rate.",
    ),
  )  # fmt: skip


def _step_times(found: Searched) -> dict[str, Any]:
  step, kind = found.step, found.case.kind
  default_us = step.timeline(step.default).step_time_us
  times_us = {
    name: step.timeline(plan).step_time_us for name, plan in found.plans.items()
  }
  of_paper = _DEFAULT[found.case.cluster]
  paper_default = {
    key: of_paper if key.kind in _KNOWN_DEFAULTS else default
    for key, default in step.default.items()
  }
  low, high = _LAGOM_SPEEDUP[kind]
  speedup = default_us / times_us["Lagom"]
  where = "below" if speedup < low else "above" if speedup > high else "in"
  return {
    **_where(found.case),
    "NCCL_ms": default_us / 1e3,
    **{f"{name}_ms": us / 1e3 for name, us in times_us.items()},
    **{name: default_us / us for name, us in times_us.items()},
    "autoccl_reported": _AUTOCCL_SPEEDUP[kind],
    "lagom_reported": f"{low:.2f}–{high:.2f}: {where}",
    "over_nccl_2_18": step.timeline(paper_default).step_time_us
    / times_us["Lagom"],
    "cap": default_us / channel_cap.best(step).step_time_us,
    "bound": default_us / lower_bound.us(step),
  }


def shares(found: Iterable[Searched]) -> table_lib.Table:
  """The table of time shares under NCCL's default, which limit the gains."""
  return table_lib.Table(
    name="shares",
    title="Under NCCL's default: shares of the step",
    columns=(
      *_WHERE,
      *table_lib.columns(
        kernels=".1%", communication=".1%", exposed=".1%", slowdown=".1%",
        copies=".1%", autoccl_saves=".1%",
      ),
    ),
    rows=[_shares(one) for one in found],
  )  # fmt: skip


def _shares(found: Searched) -> dict[str, Any]:
  step = found.step
  replayed = step.timeline(step.default)
  step_us = replayed.step_time_us
  fastest_us = sum(
    step.executions[key] * step.predict(key, setting).time_us
    for key, setting in found.plans["AutoCCL"].items()
  )
  copies_us = replayed.total_copy_wait_us + replayed.total_copy_slowdown_us
  return {
    **_where(found.case),
    "kernels": replayed.kernel_us / step_us,
    "communication": replayed.collective_us / step_us,
    "exposed": replayed.total_exposed_us / step_us,
    "slowdown": replayed.total_slowdown_us / step_us,
    "copies": copies_us / step_us,
    "autoccl_saves": 1 - fastest_us / replayed.collective_us,
  }


def _setting(setting: nccl.Setting | None) -> str | None:
  if setting is None:
    return None
  text = f"({setting.num_channels}, {setting.chunk_bytes / 1024:.0f}K)"
  usual = setting.algorithm in ("ring", "p2p") and setting.protocol == "simple"
  return text if usual else f"{text} {setting.algorithm} {setting.protocol}"


def patterns(step: step_lib.Step) -> table_lib.Table:
  """The table of the two overlaps that the paper analyzes."""
  rows = []
  for pattern, kinds in _KINDS.items():
    problem = _problem(step, kinds)
    if problem is not None:
      rows += _pattern(step, pattern, problem)
  return table_lib.Table(
    name="patterns",
    title="Phi-2, FSDP, 8 A40s of cluster A: the paper's two patterns",
    columns=table_lib.columns(
      pattern="", who="", all_gather="", reduce_scatter="", overlap_ms=".2f",
      speedup=".3f", speedup_reported=".3f", trials="d", trials_reported="d",
      kernels_ms=".2f", communication_ms=".2f", slowdown_ms=".2f",
    ),
    rows=rows,
  )  # fmt: skip


def _problem(
  step: step_lib.Step, kinds: tuple[str, ...]
) -> problem_lib.Problem | None:
  """The problem of the most frequent overlap of these kinds alone."""
  found = [
    overlap
    for overlap in step.analysis.overlaps
    if sorted(c.kind for c in overlap.collectives) == sorted(kinds)
  ]
  if not found:
    return None
  overlap = max(found, key=lambda overlap: overlap.executions)
  keys = frozenset(step.key_of[c.name] for c in overlap.collectives)
  program = program_lib.of_overlap(step.analysis, overlap)
  return problem_lib.Problem(
    keys=tuple(sorted(keys)), programs=((program, 1),), program_keys=(keys,)
  )


def _pattern(
  step: step_lib.Step, pattern: str, problem: problem_lib.Problem
) -> Iterator[dict[str, Any]]:
  """A row for each configuration of an overlap; speedups over NCCL 2.18's."""
  ((program, _),) = problem.programs
  own = _DEFAULT["lagom_a"]
  # The searcher, its configuration, and figures: speedup and trials, measured
  # and reported.
  chosen: list[tuple[str, Configuration, dict[str, Any]]] = [
    ("NCCL, by our model", {k: step.default[k] for k in problem.keys}, {})
  ]
  for who, (setting, speedup) in _REPORTED[pattern].items():
    settings = {
      key: setting if key.kind == _TUNED[pattern] else own
      for key in problem.keys
    }
    reported = {"speedup_reported": speedup}
    chosen.append((f"{who}, as reported", settings, reported))
  for name in SEARCHERS:
    settings, num_trials = _search(name, step, problem)
    trials: dict[str, Any] = {"trials": num_trials}
    if pattern == "2":
      trials["trials_reported"] = _REPORTED_TRIALS.get(name)
    chosen.append((f"{name}, searched here", settings, trials))

  def replay(configuration: Configuration) -> timeline.Timeline:
    # The program has no other keys.
    costs = step.costs({**step.default, **configuration})
    return timeline.replay(program, costs)

  base_us = replay(dict.fromkeys(problem.keys, own)).step_time_us
  for who, configuration, figures in chosen:
    replayed = replay(configuration)
    by_kind = {key.kind: configuration[key] for key in problem.keys}
    yield {
      "pattern": pattern,
      "who": who,
      "all_gather": _setting(by_kind.get("all-gather")),
      "reduce_scatter": _setting(by_kind.get("reduce-scatter")),
      "overlap_ms": replayed.step_time_us / 1e3,
      "speedup": base_us / replayed.step_time_us,
      **figures,
      "kernels_ms": replayed.kernel_us / 1e3,
      "communication_ms": replayed.collective_us / 1e3,
      "slowdown_ms": replayed.total_slowdown_us / 1e3,
    }


def main(argv: Sequence[str] | None = None) -> None:
  """Runs the command."""
  parser = table_lib.parser("benchmarks.paper", __doc__)
  parser.add_argument(
    "--only",
    default="",
    metavar="TEXT",
    help="only workloads with TEXT in their name, such as phi-2/fsdp/8/a",
  )
  arguments = parser.parse_args(argv)
  chosen = [case for case in cases.table_2() if arguments.only in case.name]
  if not chosen:
    sys.exit(f"paper: no workload has {arguments.only!r} in its name.")
  found = []
  for case in chosen:
    table_lib.say(case.name)
    found.append(searched(case, case.step()))
  made = [step_times(found), shares(found)]
  made += [patterns(one.step) for one in found if one.case.name == WORKLOAD]
  table_lib.show(made, arguments.format, arguments.csv)


if __name__ == "__main__":
  main()
