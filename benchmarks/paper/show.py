# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""The tables of benchmarks.paper."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from benchmarks import table as table_lib
from benchmarks.paper import cases
from benchmarks.paper import compare
from lagom_xla.costs import nccl

_READING = (
  "All times are predicted; nothing has run on a GPU, and nothing is fitted to"
  " what the papers report.",
  "NCCL is the default of NCCL 2.32 as the cost model has it, where searches"
  " start; NCCL 2.18 is the paper's: 8 channels with NVLink pairs, 2 over PCIe"
  " alone, in chunks of 2 MB. The cap is the best NCCL_MAX_CTAS.",
  '"bound" is what no tuning can beat: no waits that the schedule does not'
  " force, no contention, links at their data sheet's rate.",
)

_NAMES = {"lagom_a": "A", "lagom_b": "B"}
_SEARCHERS = tuple(compare.SEARCHERS)

_WHERE = (
  table_lib.Column("cluster"),
  table_lib.Column("workload"),
  table_lib.Column("num_gpus", "d"),
)
_STEP_TIMES = (
  *_WHERE,
  *(table_lib.Column(f"{name}_ms", ",.0f") for name in ("NCCL", *_SEARCHERS)),
  *(table_lib.Column(name, ".3f") for name in _SEARCHERS),
  table_lib.Column("autoccl_reported"),
  table_lib.Column("lagom_reported"),
  table_lib.Column("over_nccl_2_18", ".3f"),
  table_lib.Column("cap", ".3f"),
  table_lib.Column("bound", ".3f"),
)
_SHARES = (
  *_WHERE,
  table_lib.Column("kernels", ".1%"),
  table_lib.Column("communication", ".1%"),
  table_lib.Column("exposed", ".1%"),
  table_lib.Column("slowdown", ".1%"),
  table_lib.Column("copies", ".1%"),
  table_lib.Column("autoccl_saves", ".1%"),
)
_SETTINGS = (
  *_WHERE,
  table_lib.Column("collective"),
  *(table_lib.Column(name) for name in ("NCCL", *_SEARCHERS)),
  *(table_lib.Column(f"{name}_trials") for name in _SEARCHERS),
)
_PATTERNS = (
  table_lib.Column("pattern"),
  table_lib.Column("who"),
  table_lib.Column("all_gather"),
  table_lib.Column("reduce_scatter"),
  table_lib.Column("overlap_ms", ".2f"),
  table_lib.Column("speedup", ".3f"),
  table_lib.Column("speedup_reported", ".3f"),
  table_lib.Column("trials", "d"),
  table_lib.Column("trials_reported", "d"),
  table_lib.Column("kernels_ms", ".2f"),
  table_lib.Column("memory", ".0%"),
  table_lib.Column("communication_ms", ".2f"),
  table_lib.Column("slowdown_ms", ".2f"),
  table_lib.Column("waves", ".3f"),
)


def step_times(rows: Sequence[compare.Row]) -> table_lib.Table:
  """Step times and speedups beside the paper's."""
  return table_lib.Table(
    name="step_times",
    title="Predicted step times",
    columns=_STEP_TIMES,
    rows=[_step_times(row) for row in rows],
    notes=_READING,
  )


def sensitivity(rows: Sequence[compare.Row]) -> table_lib.Table:
  """The same with other answers to what the paper leaves open."""
  return table_lib.Table(
    name="sensitivity",
    title="What the paper does not tell",
    columns=_STEP_TIMES,
    rows=[_step_times(row) for row in rows],
  )


def _step_times(row: compare.Row) -> dict[str, Any]:
  times_us = {name: plan.step_time_us for name, plan in row.plans.items()}
  return {
    **_where(row.case),
    "NCCL_ms": row.default_us / 1e3,
    **{f"{name}_ms": us / 1e3 for name, us in times_us.items()},
    **{name: row.speedup(us) for name, us in times_us.items()},
    "autoccl_reported": compare.AUTOCCL_SPEEDUP[row.case.kind],
    "lagom_reported": _range(row),
    "over_nccl_2_18": row.paper_default_us / times_us["Lagom"],
    "cap": row.speedup(row.cap_us),
    "bound": row.speedup(row.bound_us),
  }


def _range(row: compare.Row) -> str:
  low, high = compare.LAGOM_SPEEDUP[row.case.kind]
  found = row.speedup(row.plans["Lagom"].step_time_us)
  where = "below" if found < low else "above" if found > high else "in"
  return f"{low:.2f}–{high:.2f}: {where}"


def shares(rows: Sequence[compare.Row]) -> table_lib.Table:
  """Where the time goes under NCCL's default, which bounds what can be won."""
  return table_lib.Table(
    name="shares",
    title="Under NCCL's default: shares of the step",
    columns=_SHARES,
    rows=[
      {
        **_where(row.case),
        "kernels": row.kernel_us / row.default_us,
        "communication": row.collective_us / row.default_us,
        "exposed": row.exposed_us / row.default_us,
        "slowdown": row.slowdown_us / row.default_us,
        "copies": row.copies_us / row.default_us,
        "autoccl_saves": 1 - row.fastest_us / row.collective_us,
      }
      for row in rows
    ],
  )


def settings(rows: Sequence[compare.Row]) -> table_lib.Table:
  """What was chosen for the keys that take most of the communication."""
  return table_lib.Table(
    name="settings",
    title="Chosen channels and chunk sizes (NC, C)",
    columns=_SETTINGS,
    rows=[
      {
        **_where(row.case),
        "collective": f"{key.kind} {key.num_bytes / 1e6:,.0f} MB",
        "NCCL": _setting(row.default[key]),
        **{
          name: _setting(plan.configuration[key])
          for name, plan in row.plans.items()
        },
        **{
          f"{name}_trials": f"{plan.num_trials} for {len(row.default)} keys"
          for name, plan in row.plans.items()
        },
      }
      for row in rows
      for key in row.main_keys
    ],
  )


def pattern_lines(found: Sequence[compare.Line]) -> table_lib.Table:
  """The two overlaps that the paper takes apart."""
  return table_lib.Table(
    name="patterns",
    title="Phi-2, FSDP, 8 A40s of cluster A: the paper's two patterns",
    columns=_PATTERNS,
    rows=[
      {
        "pattern": line.pattern,
        "who": line.who,
        "all_gather": _setting(line.settings.get("all-gather")),
        "reduce_scatter": _setting(line.settings.get("reduce-scatter")),
        "overlap_ms": line.overlap_us / 1e3,
        "speedup": line.speedup,
        "speedup_reported": line.reported,
        "trials": line.num_trials,
        "trials_reported": _reported_trials(line),
        "kernels_ms": line.kernel_us / 1e3,
        "memory": line.memory_us / line.kernel_us,
        "communication_ms": line.collective_us / 1e3,
        "slowdown_ms": line.slowdown_us / 1e3,
        "waves": line.num_waves,
      }
      for line in found
    ],
  )


def _reported_trials(line: compare.Line) -> int | None:
  if line.num_trials is None or line.pattern != "2":
    return None
  if line.who.startswith("Lagom"):
    return compare.LAGOM_TRIALS
  return compare.AUTOCCL_TRIALS if "AutoCCL" in line.who else None


def _where(case: cases.Case) -> dict[str, Any]:
  note = f", {case.note}" if case.note else ""
  layout = case.workload.layout
  return {
    "cluster": _NAMES[case.cluster],
    "workload": f"{case.model} {case.kind.upper()}{note}",
    "num_gpus": layout.data * layout.model,
  }


def _setting(setting: nccl.Setting | None) -> str | None:
  if setting is None:
    return None
  text = f"({setting.num_channels}, {setting.chunk_bytes / 1024:.0f}K)"
  usual = setting.algorithm in ("ring", "p2p") and setting.protocol == "simple"
  return text if usual else f"{text} {setting.algorithm} {setting.protocol}"
