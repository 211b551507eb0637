# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Ablation of Lagom: the search without each of its ideas.

The order in which collectives are raised (equation 7) against taking turns;
both resources against one of them; and knowing what kernels lose to
collectives against a replay in which they lose nothing. Whatever a variation
searched with, its choice is replayed with contention.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
import dataclasses
from typing import Any

import numpy as np

from benchmarks import table as table_lib
from benchmarks.search import modules as modules_lib
from benchmarks.searchers import lockstep
from lagom_xla import cluster as cluster_lib
from lagom_xla.costs import collective as collective_lib
from lagom_xla.costs import contention
from lagom_xla.costs import kernel as kernel_lib
from lagom_xla.costs import nccl
from lagom_xla.costs import step as step_lib
from lagom_xla.costs.replay import timeline
from lagom_xla.search.nccl import lagom
from lagom_xla.search.nccl import problem as problem_lib
from lagom_xla.search.nccl import searcher as searcher_lib


class RoundRobin(lagom.Lagom):
  """Raises the keys in turn, whatever it gains."""

  def _enqueue(
    self, queue: lagom.Queue, h: float, key: problem_lib.Key
  ) -> lagom.Queue:
    return (*queue, (h, key))


class ChannelsOnly(lagom.Lagom):
  """Leaves the chunk size as NCCL has it."""

  def _subspaces(
    self,
    key: problem_lib.Key,
    start: nccl.Setting,
    cluster: cluster_lib.Cluster,
  ) -> tuple[problem_lib.Subspace, ...]:
    return tuple(
      dataclasses.replace(subspace, chunk_bytes=(_own_chunk(subspace, start),))
      for subspace in super()._subspaces(key, start, cluster)
    )


class ChunksOnly(lagom.Lagom):
  """Leaves the channels as NCCL has them."""

  def _subspaces(
    self,
    key: problem_lib.Key,
    start: nccl.Setting,
    cluster: cluster_lib.Cluster,
  ) -> tuple[problem_lib.Subspace, ...]:
    return tuple(
      dataclasses.replace(
        subspace,
        num_channels=(min(start.num_channels, subspace.num_channels[-1]),),
      )
      for subspace in super()._subspaces(key, start, cluster)
    )


def _own_chunk(subspace: problem_lib.Subspace, start: nccl.Setting) -> int:
  """The chunk size nearest to NCCL's; the largest of another protocol."""
  if start.protocol != subspace.protocol:
    return subspace.chunk_bytes[-1]
  return min(subspace.chunk_bytes, key=lambda c: abs(c - start.chunk_bytes))


class WithoutContention(step_lib.Step):
  """A step in which kernels and collectives leave each other alone."""

  def costs(self, configuration: step_lib.Configuration) -> timeline.Costs:
    """The costs, with nothing lost beside each other."""
    costs = super().costs(configuration)
    return dataclasses.replace(costs, beside=_apart)


def _apart(
  kernel: kernel_lib.KernelCost, collective: collective_lib.CollectiveCost
) -> contention.Beside:
  del collective
  return contention.Beside(
    kernel_us=kernel.time_us, collective_factor=1.0, wait_us=0.0
  )


NAME = "ablation"

_WHOLE = "lagom"
_BLIND = "without contention"
_SAME = 1e-4

_SEARCHERS: Mapping[str, searcher_lib.Searcher] = {
  _WHOLE: lagom.Lagom(),
  "round robin": RoundRobin(),
  "channels only": ChannelsOnly(),
  "chunks only": ChunksOnly(),
  _BLIND: lagom.Lagom(),
}

_SUMMARY = (
  table_lib.Column("variation"),
  table_lib.Column("median", ".2%"),
  table_lib.Column("lower", ".2%"),
  table_lib.Column("upper", ".2%"),
  table_lib.Column("least", ".2%"),
  table_lib.Column("most", ".2%"),
  table_lib.Column("trials", ".0f"),
  table_lib.Column("worse", "d"),
  table_lib.Column("equal", "d"),
  table_lib.Column("better", "d"),
)
_DETAIL = (
  table_lib.Column("module"),
  table_lib.Column("keys", "d"),
  table_lib.Column("largest", "d"),
  *(table_lib.Column(name, ".2%") for name in _SEARCHERS),
)


def tables(
  shelf: modules_lib.Shelf, modules: Iterable[modules_lib.Module]
) -> list[table_lib.Table]:
  """The summary over all modules, and the figures of each."""
  rows = []
  for module in shelf.available(modules):
    step = shelf.step(module)
    modules_lib.say(f"searching {module.name} with Lagom's variations")
    rows.append({"module": module.name, **ablate(step)})
  return [
    table_lib.Table(
      name=NAME,
      title=f"Lagom without each of its ideas, over {len(rows)} modules",
      columns=_SUMMARY,
      rows=[_summary_row(name, rows) for name in _SEARCHERS],
      notes=(
        "Gain in step time over NCCL's own choices; evaluations are of the"
        " whole step.",
        f"Worse, equal and better count modules; equal is within {_SAME:.2%}.",
        "Chunks or channels that are not searched are NCCL's own.",
      ),
    ),
    table_lib.Table(
      name=f"{NAME}_by_module",
      title="Lagom without each of its ideas, by module",
      columns=_DETAIL,
      rows=rows,
      notes=("Gain in step time over NCCL's own choices.",),
    ),
  ]


def ablate(step: step_lib.Step) -> dict[str, Any]:
  """Searches a step with every variation."""
  default_us = step.timeline(step.default).step_time_us
  blind = WithoutContention(step.analysis, step.cluster)
  row: dict[str, Any] = {
    "keys": len(step.keys),
    "largest": max(len(p.keys) for p in problem_lib.problems(step)),
  }
  for name, searcher in _SEARCHERS.items():
    found = lockstep.run_step(searcher, blind if name == _BLIND else step)
    tuned_us = step.timeline(found.configuration).step_time_us
    row[name] = 1 - tuned_us / default_us
    row[f"{name} trials"] = found.num_trials
  return row


def _summary_row(name: str, rows: Sequence[table_lib.Row]) -> table_lib.Row:
  gains = np.array([float(row[name]) for row in rows])
  lead = gains - np.array([float(row[_WHOLE]) for row in rows])
  return {
    "variation": name,
    "median": float(np.median(gains)),
    "lower": float(np.quantile(gains, 0.25)),
    "upper": float(np.quantile(gains, 0.75)),
    "least": float(gains.min()),
    "most": float(gains.max()),
    "trials": float(np.median([float(row[f"{name} trials"]) for row in rows])),
    "worse": int(np.sum(lead < -_SAME)),
    "equal": int(np.sum(np.abs(lead) <= _SAME)),
    "better": int(np.sum(lead > _SAME)),
  }
