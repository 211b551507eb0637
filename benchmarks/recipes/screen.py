# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Screen: options that no knob sets, each beside what a search keeps.

All options of the installed XLA are tried whose names say that they bear on
collectives, loops, streams or schedules, with every value that they can have,
or a few numbers; some with others without which they do nothing, or switch the
scheduler off. What makes other kernels, or other results, is left out: no
prediction says what autotuning makes of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
import pathlib
from typing import Any

import jax

from benchmarks import table as table_lib
from benchmarks.recipes import cases as cases_lib
from benchmarks.recipes import exhaustive
from benchmarks.recipes import rows as rows_lib
from benchmarks.workloads import scanned
from lagom_xla import cluster as cluster_lib
from lagom_xla.compile import devices as devices_lib
from lagom_xla.compile import target as target_lib
from lagom_xla.flags import debug_options
from lagom_xla.search.xla import candidates as candidates_lib
from lagom_xla.search.xla import knobs

NAME = "screen"

_BEARING = (
  "all_gather",
  "all_reduce",
  "analytical_sol",
  "async",
  "collective",
  "combine",
  "copy",
  "pipelin",
  "reduce_scatter",
  "stream",
  "while_loop",
  "windowed",
)
# Runs products beside products; has collectives run several times; caps
# channels; is for jobs that hang.
_ASIDE = ("async_dot", "inflation", "nchannels", "timeout")

_SCHEDULED = {knobs.SCHEDULER: True}
# What acts beside others only.
_BESIDE: Mapping[str, Mapping[str, bool]] = {
  # XLA leaves its scheduler off by itself then.
  knobs.ESTIMATES: _SCHEDULED,
  # Read where there are no estimates.
  "xla_gpu_enable_approx_costly_collectives": {
    **_SCHEDULED,
    knobs.ESTIMATES: False,
  },
}

_COLUMNS = (
  table_lib.Column("module"),
  table_lib.Column("cluster"),
  table_lib.Column("option"),
  table_lib.Column("value"),
  table_lib.Column("kept_ms", ".3f"),
  table_lib.Column("with_ms", ".3f"),
  table_lib.Column("gain", ".2%"),
)


def _tensor_parallel(cluster: cluster_lib.Cluster) -> jax.stages.Lowered:
  return scanned.lower(
    devices_lib.devices(cluster),
    data=1,
    num_layers=8,
    width=4096,
    hidden=16384,
    rows_per_device=8192,
    recomputes=True,
  )


def _expert_parallel(cluster: cluster_lib.Cluster) -> jax.stages.Lowered:
  return scanned.lower_experts(
    devices_lib.devices(cluster),
    num_layers=8,
    width=4096,
    hidden=4096,
    rows_per_device=8192,
  )


def _case(
  module: str,
  cluster: str,
  lower: Callable[[cluster_lib.Cluster], jax.stages.Lowered],
) -> cases_lib.Case:
  def load(_: pathlib.Path | None) -> target_lib.Target:
    parsed = cluster_lib.parse(cluster)
    return target_lib.of_step(lower(parsed), parsed, name=module)

  return cases_lib.Case(module=module, cluster=cluster, load=load)


# All-reduces and all-to-alls that the next product waits for, which those of
# `exhaustive` have not.
CASES = (
  *exhaustive.CASES,
  _case("tp", "1x8xb200", _tensor_parallel),
  _case("experts", "1x8xh100", _expert_parallel),
)


def rows(
  target: target_lib.Target,
  progress: candidates_lib.Progress = lambda _: None,
) -> list[dict[str, Any]]:
  """What each option does that changes a step's time, the best first.

  Args:
    target: a step.
    progress: called with a few words after each option.

  Raises:
    CompileError: the target does not compile with the defaults.
  """
  best = rows_lib.search_options(target, may_cap=False).best
  kept_ms = best.under_nccl_defaults.step_time_us / 1e3
  searched = set(best.config.options).union(
    *(value.options for value in knobs.worth_trying(best.step))
  )
  found = []
  for option in _bearing():
    if option.name in searched:
      continue
    for value in _values(option):
      others = _BESIDE.get(option.name, {})
      options = {**best.config.options, **others, option.name: value}
      with_ms = rows_lib.step_ms(target, options)
      if with_ms is not None and abs(gain := 1 - with_ms / kept_ms) > 1e-6:
        found.append(
          {
            "option": option.name,
            "value": " ".join([str(value), *_in_words(others)]),
            "kept_ms": kept_ms,
            "with_ms": with_ms,
            "gain": gain,
          }
        )
    progress(option.name)
  return sorted(found, key=lambda row: -row["gain"])


def _in_words(others: Mapping[str, bool]) -> Iterator[str]:
  """What was set beside an option."""
  for name, value in others.items():
    yield f"{name.removeprefix('xla_gpu_')}={value}"


def _bearing() -> Iterator[debug_options.Option]:
  for option in debug_options.options().values():
    if any(word in option.name for word in _BEARING) and not any(
      word in option.name for word in (*_ASIDE, "xla_cpu", "xla_tpu")
    ):
      yield option


def _values(option: debug_options.Option) -> list[bool | int | str]:
  """The values of an option that it does not have by default."""
  found: list[bool | int | str] = []
  if option.type == "bool":
    found = [False, True]
  elif option.type == "enum":
    found = list(option.enum_values)
  elif option.type == "int" and option.int_range is not None:
    default, (_, most) = int(option.default), option.int_range
    found = [n for n in (0, 2, default // 2, default * 2) if n <= most]
  return [v for v in dict.fromkeys(found) if v != option.default]


def table(rows: Sequence[table_lib.Row]) -> table_lib.Table:
  """The table of these rows, with what it is held to."""
  gaining = [
    f"{row['option']}={row['value']} by {row['gain']:.1%} on {row['module']},"
    f" {row['cluster']}"
    for row in rows
    if row["gain"] >= candidates_lib.LEAST_GAIN
  ]
  return table_lib.Table(
    name=NAME,
    title="Options that no knob sets (predicted ms per step)",
    columns=_COLUMNS,
    rows=rows,
    targets=(
      table_lib.Target(
        wanted=f"none gains {candidates_lib.LEAST_GAIN:.1%} or more",
        found=f"so do {', '.join(gaining) or 'none'}",
        is_met=not gaining,
      ),
    ),
    notes=(
      "Each on top of the options that a search keeps, under NCCL's own"
      " choices; what changes no time is left out.",
    ),
  )
