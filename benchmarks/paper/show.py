# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""The paper's table in the terminal, as Markdown or as JSON.

A table is a title, column heads and rows of text; each format writes the same
ones, so that a page never says what the terminal does not.
"""

from __future__ import annotations

from collections.abc import Sequence
import dataclasses
from typing import Any

import rich.console
import rich.table

from benchmarks.paper import cases
from benchmarks.paper import compare
from benchmarks.paper import patterns
from benchmarks.paper import reported
from lagom_xla.costs import nccl

READING = """\
All times are predicted; nothing has run on a GPU, and nothing is fitted to what
the papers report. NCCL is the default of NCCL 2.32 as the cost model has it,
where searches start; NCCL 2.18 is the paper's: 8 channels with NVLink pairs, 2
over PCIe alone, in chunks of 2 MB. The cap is the best NCCL_MAX_CTAS. "At most"
is what no tuning can beat: no waits that the schedule does not force, no
contention, links at their data sheet's rate.

Where speedups are below the papers' ranges, the second table has the reasons.
Settings can win what kernels are slowed by, and of what is exposed as much as
communication gets shorter. Communication hardly does: in the model NCCL's
default fills the links, at a rate that is NCCL's own constant. AutoCCL measured
faster settings on A40 (64 channels through shared memory), but NCCL's tuner
interface can neither raise channels above the communicator's nor choose the
transport. So AutoCCL never gets below 1 either; under its reported 61 channels,
pattern 1 does.
Kernels are slowed less than the paper's: on cluster A the model's NCCL takes
half as many channels, and the model knows of waves of blocks and of shared
memory bandwidth, but not, say, of chunks that push a product's operands out of
L2. Within a node the model has clusters A and B alike, because a ring over
NVLink pairs still crosses PCIe; in the paper they differ. Sends and receives
(all-to-all) have no tuner at all.
"""

_NAMES = {"lagom_a": "A", "lagom_b": "B"}


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Table:
  """Text in rows and columns.

  Attributes:
    title: one line.
    columns: heads.
    rows: cells, as many per row as heads.
  """

  title: str
  columns: tuple[str, ...]
  rows: tuple[tuple[str, ...], ...]

  def markdown(self) -> str:
    """The table in GitHub's Markdown."""
    lines = [
      f"**{self.title}**",
      "",
      _markdown_row(self.columns),
      _markdown_row(("---",) * len(self.columns)),
      *map(_markdown_row, self.rows),
    ]
    return "\n".join(lines) + "\n"

  def print(self, console: rich.console.Console) -> None:
    """The table on a terminal."""
    table = rich.table.Table(
      title=self.title, title_justify="left", box=None, pad_edge=False
    )
    for column in self.columns:
      table.add_column(column)
    for row in self.rows:
      table.add_row(*row)
    console.print(table, highlight=False)


def _markdown_row(cells: Sequence[str]) -> str:
  return "| " + " | ".join(cells) + " |"


def speedups(rows: Sequence[compare.Row], *, title: str) -> Table:
  """Step times and speedups beside the paper's."""
  names = tuple(compare.SEARCHERS)
  return Table(
    title=title,
    columns=(
      "cluster",
      "workload",
      "GPUs",
      "NCCL, ms",
      *(f"{name}, ms" for name in names),
      *(f"{name}/NCCL" for name in names),
      "AutoCCL reported",
      "Lagom reported",
      "Lagom/NCCL 2.18",
      "cap/NCCL",
      "at most",
    ),
    rows=tuple(_speedup_cells(row) for row in rows),
  )


def _speedup_cells(row: compare.Row) -> tuple[str, ...]:
  times_us = [plan.step_time_us for plan in row.plans.values()]
  lagom_us = row.plans["Lagom"].step_time_us
  return (
    *_where(row.case),
    _ms(row.default_us),
    *map(_ms, times_us),
    *(_ratio(row.speedup(us)) for us in times_us),
    reported.AUTOCCL_SPEEDUP[row.case.kind],
    _range(row),
    _ratio(row.paper_default_us / lagom_us),
    _ratio(row.speedup(row.cap_us)),
    _ratio(row.speedup(row.bound_us)),
  )


def _range(row: compare.Row) -> str:
  low, high = reported.LAGOM_SPEEDUP[row.case.kind]
  found = row.speedup(row.plans["Lagom"].step_time_us)
  where = "below" if found < low else "above" if found > high else "in"
  return f"{low:.2f}–{high:.2f}: {where}"


def reasons(rows: Sequence[compare.Row]) -> Table:
  """Where the time goes under NCCL's default, which bounds what can be won."""
  return Table(
    title="Under NCCL's default: shares of the step",
    columns=(
      "cluster",
      "workload",
      "GPUs",
      "kernels",
      "communication",
      "exposed",
      "kernels slowed by",
      "AutoCCL makes communication shorter by",
    ),
    rows=tuple(
      (
        *_where(row.case),
        *(
          _percent(us / row.default_us)
          for us in (
            row.kernel_us,
            row.collective_us,
            row.exposed_us,
            row.slowdown_us,
          )
        ),
        _percent(1 - row.fastest_us / row.collective_us),
      )
      for row in rows
    ),
  )


def settings(rows: Sequence[compare.Row]) -> Table:
  """What was chosen for the keys that take most of the communication."""
  names = tuple(compare.SEARCHERS)
  return Table(
    title="Chosen channels and chunk sizes (NC, C)",
    columns=(
      "cluster",
      "workload",
      "GPUs",
      "collective",
      "NCCL",
      *names,
      *(f"{name}, trials" for name in names),
    ),
    rows=tuple(
      (
        *_where(row.case),
        f"{key.kind} {key.num_bytes / 1e6:,.0f} MB",
        _setting(row.default[key]),
        *(_setting(plan.configuration[key]) for plan in row.plans.values()),
        *(
          f"{plan.num_trials} for {len(row.default)} keys"
          for plan in row.plans.values()
        ),
      )
      for row in rows
      for key in row.main_keys
    ),
  )


def pattern_lines(found: Sequence[patterns.Line]) -> Table:
  """The two overlaps that the paper takes apart."""
  return Table(
    title="Phi-2, FSDP, 8 A40s of cluster A: the paper's two patterns",
    columns=(
      "pattern",
      "settings of",
      "all-gather",
      "reduce-scatter",
      "overlap, ms",
      "speedup",
      "reported",
      "trials",
      "reported",
      "kernels, ms",
      "of it memory",
      "communication, ms",
      "slowdown, ms",
      "waves",
    ),
    rows=tuple(
      (
        line.pattern,
        line.who,
        _setting(line.settings.get("all-gather")),
        _setting(line.settings.get("reduce-scatter")),
        f"{line.overlap_us / 1e3:.2f}",
        _ratio(line.speedup),
        _ratio(line.reported) if line.reported else "",
        str(line.num_trials or ""),
        _reported_trials(line),
        f"{line.kernel_us / 1e3:.2f}",
        f"{100 * line.memory_us / line.kernel_us:.0f} %",
        f"{line.collective_us / 1e3:.2f}",
        f"{line.slowdown_us / 1e3:.2f}",
        f"{line.num_waves:.3f}",
      )
      for line in found
    ),
  )


def _reported_trials(line: patterns.Line) -> str:
  if line.num_trials is None or line.pattern != "2":
    return ""
  if line.who.startswith("Lagom"):
    return str(reported.LAGOM_TRIALS)
  return str(reported.AUTOCCL_TRIALS) if "AutoCCL" in line.who else ""


def as_json(
  rows: Sequence[compare.Row],
  others: Sequence[compare.Row],
  found: Sequence[patterns.Line],
) -> dict[str, Any]:
  """All tables' figures, in microseconds."""
  return {
    "workloads": [_row_json(row) for row in rows],
    "sensitivity": [_row_json(row) for row in others],
    "patterns": [
      {
        **{
          field.name: getattr(line, field.name)
          for field in dataclasses.fields(line)
        },
        "settings": {
          k: dataclasses.asdict(s) for k, s in line.settings.items()
        },
      }
      for line in found
    ],
  }


def _row_json(row: compare.Row) -> dict[str, Any]:
  return {
    "name": row.case.name,
    "note": row.case.note,
    "seq_len": row.case.workload.seq_len,
    "dtype": row.case.workload.dtype,
    "kept": row.case.workload.kept,
    "nccl_us": row.default_us,
    "nccl_2_18_us": row.paper_default_us,
    "cap_us": row.cap_us,
    "bound_us": row.bound_us,
    "kernel_us": row.kernel_us,
    "collective_us": row.collective_us,
    "fastest_collective_us": row.fastest_us,
    "exposed_us": row.exposed_us,
    "slowdown_us": row.slowdown_us,
    "reported": {
      "Lagom": reported.LAGOM_SPEEDUP[row.case.kind],
      "AutoCCL": reported.AUTOCCL_SPEEDUP[row.case.kind],
    },
    "plans": {
      name: {
        "step_us": plan.step_time_us,
        "speedup": row.speedup(plan.step_time_us),
        "num_trials": plan.num_trials,
        "settings": [
          {
            "collective": dataclasses.asdict(key),
            "default": dataclasses.asdict(row.default[key]),
            "chosen": dataclasses.asdict(plan.configuration[key]),
          }
          for key in row.main_keys
        ],
      }
      for name, plan in row.plans.items()
    },
  }


def _where(case: cases.Case) -> tuple[str, str, str]:
  note = f", {case.note}" if case.note else ""
  num_gpus = case.workload.layout.data * case.workload.layout.model
  return (
    _NAMES[case.cluster],
    f"{case.model} {case.kind.upper()}{note}",
    str(num_gpus),
  )


def _percent(share: float) -> str:
  return f"{100 * share:.1f} %"


def _ms(us: float) -> str:
  return f"{us / 1e3:,.0f}"


def _ratio(ratio: float) -> str:
  return f"{ratio:.3f}"


def _setting(setting: nccl.Setting | None) -> str:
  if setting is None:
    return ""
  text = f"({setting.num_channels}, {setting.chunk_bytes / 1024:.0f}K)"
  usual = setting.algorithm in ("ring", "p2p") and setting.protocol == "simple"
  return text if usual else f"{text} {setting.algorithm} {setting.protocol}"
