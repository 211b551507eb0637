# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Exhaustion: what a search keeps, beside all pairs and triples of knobs.

Of every option that can act on a step, the value that gains most alone is
taken, and of those the ten that gain most. They, their pairs and their triples
are all compiled, and judged like the search: under NCCL's own choices.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
import itertools
import pathlib
from typing import Any

from benchmarks import table as table_lib
from benchmarks.recipes import cases as cases_lib
from benchmarks.recipes import rows as rows_lib
from benchmarks.workloads import scanned
from lagom_xla import cluster as cluster_lib
from lagom_xla.compile import devices as devices_lib
from lagom_xla.compile import target as target_lib
from lagom_xla.search.xla import candidates as candidates_lib
from lagom_xla.search.xla import knobs

NAME = "exhaustive"

_NUM_KNOBS = 10
_MOST_TOGETHER = 3
_NEAR = 0.005

_Option = tuple[str, Any]
_Options = frozenset[_Option]

_COLUMNS = (
  table_lib.Column("module"),
  table_lib.Column("cluster"),
  table_lib.Column("default_ms", ".3f"),
  table_lib.Column("best_recipe_ms", ".3f"),
  table_lib.Column("kept_ms", ".3f"),
  table_lib.Column("best_ms", ".3f"),
  table_lib.Column("excess", ".2%"),
  table_lib.Column("searched", "d"),
  table_lib.Column("compiled", "d"),
  table_lib.Column("refused", "d"),
  table_lib.Column("kept"),
  table_lib.Column("best"),
)


def _case(
  module: str, cluster: str, *, data: int, rows_per_device: int
) -> cases_lib.Case:
  """Scanned perceptrons on a cluster.

  Args:
    module: what they are called.
    cluster: as on the command line.
    data: devices that weights and rows are sharded over.
    rows_per_device: rows on each device.
  """

  def load(_: pathlib.Path | None) -> target_lib.Target:
    parsed = cluster_lib.parse(cluster)
    lowered = scanned.lower(
      devices_lib.devices(parsed),
      data=data,
      num_layers=8,
      width=4096,
      hidden=16384,
      rows_per_device=rows_per_device,
    )
    return target_lib.of_step(lowered, parsed, name=module)

  return cases_lib.Case(module=module, cluster=cluster, load=load)


CASES = (
  _case("fsdp", "1x8xh100", data=8, rows_per_device=1024),
  _case("fsdp", "2x8xh100", data=16, rows_per_device=4096),
  _case("fsdp-tp", "2x8xb200", data=2, rows_per_device=8192),
)


def row(
  target: target_lib.Target,
  *,
  num_knobs: int = _NUM_KNOBS,
  progress: candidates_lib.Progress = lambda _: None,
) -> dict[str, Any]:
  """Searches a target, then compiles all that there is.

  Args:
    target: a step.
    num_knobs: how many knobs are combined.
    progress: called with a few words after each part.

  Raises:
    CompileError: the target does not compile with the defaults.
  """
  found = rows_lib.search_options(target, may_cap=False)
  kept_ms = found.best.under_nccl_defaults.step_time_us / 1e3
  progress(f"kept {kept_ms:,.3f} ms of {1 + len(found.others)} candidates")

  def compile_(options: _Options) -> float | None:
    return rows_lib.step_ms(target, dict(options))

  alone = {v: compile_(v) for v in map(_frozen, _values(found))}
  strongest = _strongest(alone, num_knobs)
  times: dict[_Options, float | None] = {v: alone[v] for v in strongest}
  for size in range(2, _MOST_TOGETHER + 1):
    for chosen in itertools.combinations(strongest, size):
      options = frozenset[_Option]().union(*chosen)
      times[options] = compile_(options)
    progress(f"compiled {len(times)}, of up to {size} knobs together")
  taken = {options: ms for options, ms in times.items() if ms is not None}
  best = min(taken, key=taken.__getitem__)
  return {
    "default_ms": found.default.under_nccl_defaults.step_time_us / 1e3,
    "best_recipe_ms": min(rows_lib.published_ms(found).values(), default=None),
    "kept_ms": kept_ms,
    "best_ms": taken[best],
    "excess": kept_ms / taken[best] - 1,
    "searched": 1 + len(found.others),
    "compiled": len(taken),
    "refused": len(times) - len(taken),
    "kept": _in_words(found.best.config.options.items()),
    "best": _in_words(best),
  }


def _values(found: candidates_lib.Search) -> list[Mapping[str, Any]]:
  """All values of all knobs that can act on a step."""
  return [value.options for value in knobs.worth_trying(found.default.step)]


def _frozen(options: Mapping[str, Any]) -> _Options:
  return frozenset(options.items())


def _strongest(
  alone: Mapping[_Options, float | None], num_knobs: int
) -> list[_Options]:
  """Values that set different options, those with the shortest steps first."""
  taken = {v: ms for v, ms in alone.items() if ms is not None}
  found: list[_Options] = []
  for value in sorted(taken, key=taken.__getitem__):
    named = {name for other in found for name, _ in other}
    if named.isdisjoint(name for name, _ in value):
      found.append(value)
  return found[:num_knobs]


def _in_words(options: Iterable[_Option]) -> str:
  return " ".join(
    f"{name.removeprefix('xla_gpu_')}={value}"
    for name, value in sorted(options)
  )


def table(rows: Sequence[table_lib.Row]) -> table_lib.Table:
  """The table of these rows, with what it is held to."""
  far = [
    f"{row['module']} on {row['cluster']}"
    for row in rows
    if row["excess"] > _NEAR
  ]
  return table_lib.Table(
    name=NAME,
    title="Plans beside all pairs and triples of knobs (predicted ms per step)",
    columns=_COLUMNS,
    rows=rows,
    targets=(
      table_lib.Target(
        wanted=f"kept within {_NEAR:.1%} of the best that was compiled",
        found=f"further on {', '.join(far) or 'none'} of {len(rows)}",
        is_met=not far,
      ),
    ),
    notes=("Options alone, under NCCL's own choices.",),
  )
