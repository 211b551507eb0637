# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""The errors of predicted schedules against compiled ones, and both times.

    python -m benchmarks.predict [--data ../shared/data] [--unrolled]
        [--format=json]

The steps are the Llama example with its layers in a loop, for eight H100s; with
--unrolled the same with a copy per layer, under fewer changes; and with --data
Llama 3.1 70B for sixteen nodes. Each is scheduled by XLA under each change, and
predicted under it from XLA's default schedule. Both are replayed under NCCL's
defaults; shown are the step times, how far the prediction is off, and what
either took, without the replay. The last table says for each step how the
predictions order the changes: the rank correlation with the compiled step
times, and what would be lost by compiling only the three best predictions.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
import dataclasses
import json
import os
import pathlib

import numpy as np
import rich.console
import rich.table
from scipy import stats

from benchmarks import groups
from benchmarks import predicted_changes

_NUM_COMPILED = 3


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Summary:
  """How the predictions of a step's changes compare with compiles.

  Attributes:
    group: errors of the step times.
    rank_correlation: Spearman's, of compiled and predicted step times.
    lost: what the best of the three best predictions takes more than the best
      of all changes, both compiled, as a share.
    compile_s: seconds that compiling all changes took.
    predict_s: seconds that predicting them took.
  """

  group: groups.Group
  rank_correlation: float
  lost: float
  compile_s: float
  predict_s: float

  def to_dict(self) -> dict[str, object]:
    """What `--format=json` prints of it."""
    return {
      **self.group.to_dict(),
      "rank_correlation": self.rank_correlation,
      "lost": self.lost,
      "compile_s": self.compile_s,
      "predict_s": self.predict_s,
    }


def _summary(name: str, rows: Sequence[predicted_changes.Row]) -> Summary:
  comparisons = [row.comparison for row in rows]
  compiled = np.array([c.measured for c in comparisons])
  predicted = np.array([c.predicted for c in comparisons])
  tried = compiled[np.argsort(predicted, kind="stable")[:_NUM_COMPILED]]
  return Summary(
    group=groups.of_comparisons(name, comparisons),
    rank_correlation=float(
      stats.spearmanr(_rounded(compiled), _rounded(predicted)).statistic
    ),
    lost=float(tried.min() / compiled.min() - 1),
    compile_s=sum(row.compile_s for row in rows),
    predict_s=sum(row.predict_s for row in rows),
  )


def _rounded(times: np.ndarray) -> np.ndarray:
  """Times over the shortest; equal where they are so to a ten-thousandth."""
  return np.round(times / times.min(), 4)


def _show_rows(name: str, rows: Sequence[predicted_changes.Row]) -> None:
  table = rich.table.Table(box=None, title=name, title_justify="left")
  for column in ("change", "compiled", "predicted", "off", "took", "took"):
    table.add_column(column, justify="left" if column == "change" else "right")
  for row in rows:
    what = row.comparison
    table.add_row(
      what.what,
      f"{what.measured:.3f} ms",
      f"{what.predicted:.3f} ms",
      f"{100 * (what.predicted / what.measured - 1):+.2f} %",
      f"{row.compile_s:.2f} s",
      f"{row.predict_s:.2f} s",
    )
  rich.console.Console(width=120).print(table)


def _show_summaries(summaries: Sequence[Summary]) -> None:
  table = rich.table.Table(box=None)
  for column in (
    "step", "n", "median", "p90", "worst", "ranks", "lost", "compiles",
    "predictions",
  ):  # fmt: skip
    table.add_column(column)
  for summary in summaries:
    group = summary.group
    table.add_row(
      group.name,
      str(group.n),
      *(f"{100 * e:.2f} %" for e in (group.median, group.p90, group.worst)),
      f"{summary.rank_correlation:.2f}",
      f"{100 * summary.lost:.2f} %",
      f"{summary.compile_s:.1f} s",
      f"{summary.predict_s:.1f} s",
    )
  rich.console.Console(width=120).print(table)


def main() -> None:
  """The command."""
  parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
  parser.add_argument("--data", type=pathlib.Path)
  parser.add_argument("--unrolled", action="store_true")
  parser.add_argument("--format", choices=("text", "json"), default="text")
  arguments = parser.parse_args()
  steps = {
    name: list(predicted_changes.rows(target, changes))
    for name, target, changes in predicted_changes.steps(
      arguments.data, arguments.unrolled
    )
  }
  summaries = [_summary(name, rows) for name, rows in steps.items()]
  if arguments.format == "json":
    print(json.dumps({"steps": [s.to_dict() for s in summaries]}))
    return
  for name, rows in steps.items():
    _show_rows(name, rows)
  _show_summaries(summaries)


if __name__ == "__main__":
  os.environ.setdefault("JAX_PLATFORMS", "cpu")
  os.environ.setdefault("JAX_SKIP_CUDA_CONSTRAINTS_CHECK", "1")
  os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
  main()
