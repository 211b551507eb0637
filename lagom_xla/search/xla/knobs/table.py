# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""The knobs of XLA: what there is to choose, once per module.

A knob has values besides XLA's default (`value.py`). Where the dependency graph
tells what a value does to the schedule, it says so as `changes`
(`xla_schedule/`); the others can only be compiled. Only what can act on the
collectives, loops and GPUs that are there is offered. docs/knobs.md has all of
them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
import dataclasses

import jax

from lagom_xla.costs import in_words
from lagom_xla.costs import step as step_lib
from lagom_xla.passes import collectives as collectives_lib
from lagom_xla.passes import hlo
from lagom_xla.search.xla.knobs import merging
from lagom_xla.search.xla.knobs import scheduling
from lagom_xla.search.xla.knobs import thresholds
from lagom_xla.search.xla.knobs import value as value_lib
from lagom_xla.xla_schedule import fills
from lagom_xla.xla_schedule import reschedule

# Kind of collective -> the option that pipelines it over loop iterations.
PIPELINED = {
  "all-gather": "xla_gpu_enable_pipelined_all_gather",
  "all-reduce": "xla_gpu_enable_pipelined_all_reduce",
  "reduce-scatter": "xla_gpu_enable_pipelined_reduce_scatter",
}
# XLA makes its reduce-scatters of all-reduces, after it has pipelined them.
PIPELINED_AS = {"reduce-scatter": ("all-reduce", "reduce-scatter")}
_DOUBLE_BUFFERING = "xla_gpu_enable_while_loop_double_buffering"
# The options that change loops.
OF_LOOPS = frozenset({*PIPELINED.values(), _DOUBLE_BUFFERING})


@dataclasses.dataclass(frozen=True, kw_only=True)
class Knob:
  """Something to choose.

  Attributes:
    note: what it does.
    values: those that can act on a step.
  """

  note: str
  values: Callable[[step_lib.Step], Iterator[value_lib.Value]]


def worth_trying(step: step_lib.Step) -> tuple[value_lib.Value, ...]:
  """All values of all knobs that can act on a step."""
  return value_lib.offered(
    v for knob in KNOBS.values() for v in knob.values(step)
  )


def _combine_thresholds(step: step_lib.Step) -> Iterator[value_lib.Value]:
  collectives = step.analysis.collectives
  for kind, option in thresholds.OPTIONS.items():
    for threshold_bytes in thresholds.worth_trying(collectives, kind):
      yield value_lib.Value(
        label=f"{kind} combined up to {in_words.megabytes(threshold_bytes)}",
        options={option: threshold_bytes},
        changes=reschedule.Changes(thresholds_bytes={kind: threshold_bytes}),
      )


def _combine_heuristic(step: step_lib.Step) -> Iterator[value_lib.Value]:
  if any(c.kind in thresholds.OPTIONS for c in step.analysis.collectives):
    yield value_lib.Value(
      label="combining by XLA's heuristic",
      options={
        "xla_gpu_experimental_enable_heuristic_collective_combining": True
      },
    )


def _collective_matmul(step: step_lib.Step) -> Iterator[value_lib.Value]:
  # Ahead of time XLA before JAX 0.12 splits none. Later ones do, and have the
  # parts run beside each other, of which nothing is measured.
  is_live = jax.default_backend() == "gpu"
  kinds = {c.kind for c in step.analysis.collectives}
  if is_live and kinds & {"all-gather", "reduce-scatter"}:
    yield value_lib.Value(
      label="products split around their collectives",
      options={"xla_gpu_threshold_for_windowed_einsum_mib": 0},
    )


def _pipelining(step: step_lib.Step) -> Iterator[value_lib.Value]:
  in_loops = {
    kind
    for collective in step.analysis.collectives
    if collective.executions > 1 and not collective.is_pipelined
    for kind in PIPELINED_AS.get(collective.kind, (collective.kind,))
  }
  for kind, option in PIPELINED.items():
    if kind in in_loops:
      yield value_lib.Value(
        label=f"{kind} pipelined over loop iterations",
        options={option: True},
        changes=reschedule.Changes(pipelined=frozenset([kind])),
      )
  # XLA pipelines by itself what the program wrote as a reduce-scatter; what it
  # makes of all-reduces follows their option.
  if any(
    c.kind == "reduce-scatter"
    and c.is_pipelined
    and _is_written(step.analysis.module, c)
    for c in step.analysis.collectives
  ):
    yield value_lib.Value(
      label="reduce-scatter not pipelined over loop iterations",
      options={PIPELINED["reduce-scatter"]: False},
      is_last=True,
    )


def _is_written(
  module: hlo.Module, collective: collectives_lib.Collective
) -> bool:
  """Whether it is named after JAX's primitive, as what the program wrote is."""
  primitive = collective.kind.replace("-", "_")
  found = (
    c.by_id.get(collective.start_id) for c in module.computations.values()
  )
  return any(i and i.metadata.op_name.endswith(primitive) for i in found)


def _unrolling(step: step_lib.Step) -> Iterator[value_lib.Value]:
  if any(c.executions > 1 for c in step.analysis.collectives):
    yield value_lib.Value(
      label="loops double-buffered",
      options={_DOUBLE_BUFFERING: True},
      changes=reschedule.Changes(double_buffered=True),
    )


def _unfilled(step: step_lib.Step) -> Iterator[value_lib.Value]:
  # Loops that are pipelined keep their fills, and mostly gain more by that.
  if fills.find(step.analysis.module):
    yield value_lib.Value(
      label="loops' results not filled with zeros first",
      options={"xla_gpu_enable_dus_accumulator_zero_init_elimination": True},
      is_last=True,
    )


def uncombined(kinds: Collection[str]) -> value_lib.Value:
  """No collectives of these kinds combined, which have thresholds."""
  kinds = sorted(kinds)
  return value_lib.Value(
    label=f"no {' and no '.join(kinds)} combined",
    options={thresholds.OPTIONS[kind]: 0 for kind in kinds},
    changes=reschedule.Changes(thresholds_bytes=dict.fromkeys(kinds, 0)),
  )


# By name, the ones that most depends on first.
KNOBS: Mapping[str, Knob] = {
  "scheduler": Knob(
    note="moves starts ahead of the kernels that their collectives hide behind",
    values=scheduling.scheduler,
  ),
  "combining": Knob(
    note="how many bytes of collectives of a kind are combined",
    values=_combine_thresholds,
  ),
  "combining by heuristic": Knob(
    note="lets XLA combine by what it expects to overlap",
    values=_combine_heuristic,
  ),
  "collective matmul": Knob(
    note="splits products so that parts run beside parts of their collective",
    values=_collective_matmul,
  ),
  "pipelining": Knob(
    note="runs a loop's collectives an iteration ahead or behind, or not",
    values=_pipelining,
  ),
  "unrolling": Knob(
    note="two iterations per loop body, so that one hides the other's"
    " collectives",
    values=_unrolling,
  ),
  "merged products": Knob(
    note="how large products are that XLA merges where they share an operand",
    values=merging.values,
  ),
  "overlap limit": Knob(
    note="how many collectives the scheduler keeps in flight",
    values=scheduling.overlap_limit,
  ),
  "memory": Knob(
    note="how much memory the scheduler may use to start collectives early",
    values=scheduling.memory_slop,
  ),
  "zero fills": Knob(
    note="leaves out kernels that fill with zeros what a loop overwrites",
    values=_unfilled,
  ),
  "fixed costs": Knob(
    note="has the scheduler take kernels of a kind to cost the same",
    values=scheduling.fixed_costs,
  ),
}
