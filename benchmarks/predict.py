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
from collections.abc import Iterator, Mapping, Sequence
import dataclasses
import json
import os
import pathlib
import time

import numpy as np
import rich.console
import rich.table
from scipy import stats

from benchmarks import groups
from lagom_xla import cluster as cluster_lib
from lagom_xla.compile import config as config_lib
from lagom_xla.compile import load as load_lib
from lagom_xla.compile import target as target_lib
from lagom_xla.costs import step as step_lib
from lagom_xla.flags import options as options_lib
from lagom_xla.passes import hlo
from lagom_xla.search.xla import knobs
from lagom_xla.xla_schedule import reschedule

_ROOT = pathlib.Path(__file__).resolve().parent.parent
_EXAMPLE = f"{_ROOT}/examples/llama/train.py:train_step"
_70B = "hlo/hlo_llama31_70b_bf16_16x8.hlo.xz"

_MIB = 2**20

Change = tuple[str, Mapping[str, bool | int | float | str], reschedule.Changes]


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Row:
  """One change of a step.

  Attributes:
    comparison: step times, in ms; the compiled one is the measured one.
    compile_s: seconds until XLA's schedule was there.
    predict_s: seconds until the predicted one was.
  """

  comparison: groups.Comparison
  compile_s: float
  predict_s: float


def changed_steps(
  data: pathlib.Path | None, unrolled: bool
) -> Iterator[tuple[str, target_lib.Target, Sequence[Change]]]:
  """Steps by name, each with what is changed of it.

  Args:
    data: the folder with the large modules, if there is one.
    unrolled: whether the step with a copy per layer is wanted, too.
  """
  changes = list(_changes())
  node = cluster_lib.parse("1x8xh100")
  loop = load_lib.load(_EXAMPLE, node, arguments={"layers": "scan"})
  yield "llama 8b, loop", loop, changes
  if unrolled:
    step = load_lib.load(_EXAMPLE, node, arguments={"layers": "unroll"})
    few = [c for c in changes if not c[0].startswith(("pipelined", "double"))]
    yield "llama 8b, unrolled", step, few[::3]
  if data is not None:
    cluster = cluster_lib.parse("16x8xh100")
    yield "llama 70b", load_lib.load(str(data / _70B), cluster), changes


def _changes() -> Iterator[Change]:
  """What is changed: its name, as XLA's options, and for the prediction."""
  yield "nothing", {}, reschedule.Changes()
  for kind, option in knobs.OPTIONS.items():
    for mib in (0, 8, 128, 512):
      yield (
        f"{kind}s combined up to {mib} MiB",
        {option: mib * _MIB},
        reschedule.Changes(thresholds_bytes={kind: mib * _MIB}),
      )
  for value in map(knobs.in_flight, (2, 4)):
    assert value.changes is not None
    yield value.label, value.options, value.changes
  for kind in knobs.OPTIONS:
    yield (
      f"pipelined {kind}s",
      options_lib.fit(
        {f"xla_gpu_enable_pipelined_{kind.replace('-', '_')}": True}
      ).options,
      reschedule.Changes(pipelined=[kind]),
    )
  yield (
    "double-buffered loops",
    {"xla_gpu_enable_while_loop_double_buffering": True},
    reschedule.Changes(double_buffered=True),
  )


def compared_rows(
  target: target_lib.Target, changes: Sequence[Change]
) -> Iterator[Row]:
  """Each change as XLA schedules it, and as it is predicted."""
  default: hlo.Module | None = None
  for name, options, change in changes:
    begin = time.perf_counter()
    compiled = target.schedule(config_lib.XlaConfig(options=options))
    scheduled = time.perf_counter()
    default = default or compiled
    predicted = reschedule.reschedule(default, change, target.cluster)
    end = time.perf_counter()
    yield Row(
      comparison=groups.Comparison(
        what=name,
        measured=_step_ms(compiled, target.cluster),
        predicted=_step_ms(predicted, target.cluster),
      ),
      compile_s=scheduled - begin,
      predict_s=end - scheduled,
    )


def _step_ms(module: hlo.Module, cluster: cluster_lib.Cluster) -> float:
  step = step_lib.of_module(module, cluster)
  return step.timeline(step.default).step_time_us / 1e3


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


def _summary(name: str, rows: Sequence[Row]) -> Summary:
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


def _show_rows(name: str, rows: Sequence[Row]) -> None:
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
    name: list(compared_rows(target, changes))
    for name, target, changes in changed_steps(
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
