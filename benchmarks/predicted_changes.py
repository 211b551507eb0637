# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Changes of a step, each scheduled by XLA and predicted without it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
import dataclasses
import pathlib
import time

from benchmarks import groups
from lagom_xla import cluster as cluster_lib
from lagom_xla.compile import config as config_lib
from lagom_xla.compile import load
from lagom_xla.compile import target as target_lib
from lagom_xla.costs import step as step_lib
from lagom_xla.flags import options as options_lib
from lagom_xla.passes import hlo
from lagom_xla.search.xla.knobs import scheduling
from lagom_xla.search.xla.knobs import thresholds
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


def steps(
  data: pathlib.Path | None, unrolled: bool
) -> Iterator[tuple[str, target_lib.Target, Sequence[Change]]]:
  """Steps by name, each with what is changed of it.

  Args:
    data: the folder with the large modules, if there is one.
    unrolled: whether the step with a copy per layer is wanted, too.
  """
  changes = list(_changes())
  node = cluster_lib.parse("1x8xh100")
  loop = load.load(_EXAMPLE, node, arguments={"layers": "scan"})
  yield "llama 8b, loop", loop, changes
  if unrolled:
    step = load.load(_EXAMPLE, node, arguments={"layers": "unroll"})
    few = [c for c in changes if not c[0].startswith(("pipelined", "double"))]
    yield "llama 8b, unrolled", step, few[::3]
  if data is not None:
    cluster = cluster_lib.parse("16x8xh100")
    yield "llama 70b", load.load(str(data / _70B), cluster), changes


def _changes() -> Iterator[Change]:
  """What is changed: its name, as XLA's options, and for the prediction."""
  yield "nothing", {}, reschedule.Changes()
  for kind, option in thresholds.OPTIONS.items():
    for mib in (0, 8, 128, 512):
      yield (
        f"{kind}s combined up to {mib} MiB",
        {option: mib * _MIB},
        reschedule.Changes(thresholds_bytes={kind: mib * _MIB}),
      )
  for value in map(scheduling.in_flight, (2, 4)):
    assert value.changes is not None
    yield value.label, value.options, value.changes
  for kind in thresholds.OPTIONS:
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


def rows(target: target_lib.Target, changes: Sequence[Change]) -> Iterator[Row]:
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
