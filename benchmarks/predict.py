# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""The errors of predicted schedules against compiled ones, and both times.

    python -m benchmarks.predict [--data ../shared/data] [--unrolled]

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

from collections.abc import Iterator, Mapping, Sequence
import os
import pathlib
import time

import numpy as np
from scipy import stats

from benchmarks import table as table_lib
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
_NUM_COMPILED = 3

Change = tuple[str, Mapping[str, bool | int | float | str], reschedule.Changes]


def _changed_steps(
  data: pathlib.Path | None, unrolled: bool
) -> Iterator[tuple[str, target_lib.Target, Sequence[Change]]]:
  """Steps by name, each with what is changed of it."""
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


def _rows(
  step: str, target: target_lib.Target, changes: Sequence[Change]
) -> Iterator[table_lib.Row]:
  """Each change as XLA schedules it, and as it is predicted."""
  default: hlo.Module | None = None
  for name, options, change in changes:
    begin_s = time.perf_counter()
    compiled = target.schedule(config_lib.XlaConfig(options=options))
    scheduled_s = time.perf_counter()
    default = default or compiled
    predicted = reschedule.reschedule(default, change, target.cluster)
    end_s = time.perf_counter()
    compiled_ms, predicted_ms = (
      step.timeline(step.default).step_time_us / 1e3
      for step in (
        step_lib.of_module(module, target.cluster)
        for module in (compiled, predicted)
      )
    )
    yield {
      "step": step,
      "change": name,
      "compiled_ms": compiled_ms,
      "predicted_ms": predicted_ms,
      "off": predicted_ms / compiled_ms - 1,
      "compile_s": scheduled_s - begin_s,
      "predict_s": end_s - scheduled_s,
    }


def _summary(name: str, rows: Sequence[table_lib.Row]) -> table_lib.Row:
  compiled = np.array([row["compiled_ms"] for row in rows])
  predicted = np.array([row["predicted_ms"] for row in rows])
  errors = np.abs(predicted / compiled - 1)
  tried = compiled[np.argsort(predicted, kind="stable")[:_NUM_COMPILED]]
  # Equal where they are so to a ten-thousandth of the shortest.
  ranked = (np.round(ms / ms.min(), 4) for ms in (compiled, predicted))
  return {
    "step": name,
    "n": len(rows),
    "median": float(np.median(errors)),
    "p90": float(np.quantile(errors, 0.9)),
    "worst": float(errors.max()),
    "rank_correlation": float(stats.spearmanr(*ranked).statistic),
    "lost": float(tried.min() / compiled.min() - 1),
    "compile_s": sum(row["compile_s"] for row in rows),
    "predict_s": sum(row["predict_s"] for row in rows),
  }


_COLUMNS = (
  table_lib.Column("step"),
  table_lib.Column("change"),
  table_lib.Column("compiled_ms", ".3f"),
  table_lib.Column("predicted_ms", ".3f"),
  table_lib.Column("off", "+.2%"),
  table_lib.Column("compile_s", ".2f"),
  table_lib.Column("predict_s", ".2f"),
)
_SUMMARY = (
  table_lib.Column("step"),
  table_lib.Column("n", "d"),
  *(table_lib.Column(name, ".2%") for name in ("median", "p90", "worst")),
  table_lib.Column("rank_correlation", ".2f"),
  table_lib.Column("lost", ".2%"),
  table_lib.Column("compile_s", ".1f"),
  table_lib.Column("predict_s", ".1f"),
)


def main() -> None:
  """The command."""
  parser = table_lib.parser("benchmarks.predict", __doc__)
  parser.add_argument("--data", type=pathlib.Path)
  parser.add_argument("--unrolled", action="store_true")
  arguments = parser.parse_args()
  steps = {
    name: list(_rows(name, target, changes))
    for name, target, changes in _changed_steps(
      arguments.data, arguments.unrolled
    )
  }
  tables = (
    table_lib.Table(
      name="changes",
      title="Changes of a step",
      columns=_COLUMNS,
      rows=[row for rows in steps.values() for row in rows],
    ),
    table_lib.Table(
      name="steps",
      title="All changes of each step",
      columns=_SUMMARY,
      rows=[_summary(name, rows) for name, rows in steps.items()],
    ),
  )
  table_lib.show(tables, arguments.format, arguments.csv)


if __name__ == "__main__":
  os.environ.setdefault("JAX_PLATFORMS", "cpu")
  os.environ.setdefault("JAX_SKIP_CUDA_CONSTRAINTS_CHECK", "1")
  os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
  main()
