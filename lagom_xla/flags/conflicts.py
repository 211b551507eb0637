# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Conflicts of XLA options: those that cannot act together in any module.

jaxlib accepts them together without a message.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
import dataclasses

from lagom_xla.flags import debug_options

Values = Mapping[str, debug_options.Value]


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Conflict:
  """Options that cannot act together.

  Attributes:
    options: their names; the first is the one that has no effect.
    holds: whether they conflict, given the value of every option. Asked only
      where the installed jaxlib has all of the options.
    text: what happens, and what to write instead.
    source: how it is known.
  """

  options: tuple[str, ...]
  holds: Callable[[Values], bool]
  text: str
  source: str


_OVERLAP_LIMIT = "xla_gpu_experimental_parallel_collective_overlap_limit"
_UNROLLING = "xla_gpu_enable_while_loop_unrolling"
_DOUBLE_BUFFERING = "xla_gpu_enable_while_loop_double_buffering"
_ONE_AT_A_TIME = (
  "Only one collective is in flight at a time, so it has nothing to choose;"
  f" add --{_OVERLAP_LIMIT}=2."
)
_SEEN = "schedules of six programs, compiled by jaxlib 0.10.2"


def _needs_overlap(option: str) -> Conflict:
  return Conflict(
    options=(option, _OVERLAP_LIMIT),
    holds=lambda v: v[option] is True and v[_OVERLAP_LIMIT] == 1,
    text=_ONE_AT_A_TIME,
    source=_SEEN,
  )


def _needs_async(kind: str, option: str) -> Conflict:
  pipelining = (True, "COLLECTIVE_PIPELINING_MODE_ON")
  return Conflict(
    options=(option, "xla_gpu_disable_async_collectives"),
    holds=lambda v: (
      v[option] in pipelining
      and not {kind, "ALLCOLLECTIVES"}.isdisjoint(
        str(v["xla_gpu_disable_async_collectives"]).split(",")
      )
    ),
    text=(
      "Pipelining moves a collective so that it overlaps kernels, and a"
      " synchronous one overlaps none; keep one of the two."
    ),
    source=_SEEN,
  )


CONFLICTS: tuple[Conflict, ...] = (
  _needs_overlap("xla_gpu_experimental_collective_start_as_early_as_possible"),
  _needs_overlap("xla_gpu_experimental_enable_collective_multi_streaming"),
  *(
    _needs_async(kind.replace("_", "").upper(), name)
    for kind in ("all_gather", "all_reduce", "reduce_scatter")
    for name in (
      f"xla_gpu_enable_pipelined_{kind}",
      f"xla_gpu_pipeline_{kind}",
    )
  ),
  Conflict(
    options=(_DOUBLE_BUFFERING, _UNROLLING),
    holds=lambda v: (
      v[_DOUBLE_BUFFERING] is True
      and v[_UNROLLING] == "WHILE_LOOP_UNROLLING_FULL_UNROLL"
    ),
    text="Full unrolling replaces double buffering; keep one of the two.",
    source="xla/service/gpu/gpu_compiler.cc, AddDoubleBufferingPasses",
  ),
  Conflict(
    options=(
      "xla_gpu_enable_latency_hiding_scheduler",
      "xla_disable_hlo_passes",
    ),
    holds=lambda v: (
      v["xla_gpu_enable_latency_hiding_scheduler"] is True
      and "latency-hiding-scheduler"
      in str(v["xla_disable_hlo_passes"]).split(",")
    ),
    text="The scheduler is both enabled and disabled; keep one of the two.",
    source=_SEEN,
  ),
  Conflict(
    options=(
      "xla_gpu_collective_permute_decomposer_threshold",
      "xla_gpu_enable_pipelined_p2p",
      "xla_gpu_experimental_pipeline_parallelism_opt_level",
    ),
    holds=lambda v: (
      v["xla_gpu_collective_permute_decomposer_threshold"] != 2**63 - 1
      and v["xla_gpu_enable_pipelined_p2p"] is False
      and v["xla_gpu_experimental_pipeline_parallelism_opt_level"]
      == "PIPELINE_PARALLELISM_OPT_LEVEL_DISABLE"
    ),
    text=(
      "Collective permutes are decomposed only for pipelining; add"
      " --xla_gpu_enable_pipelined_p2p=true, or leave the threshold out."
    ),
    source=_SEEN,
  ),
  Conflict(
    options=(
      "xla_gpu_threshold_for_windowed_einsum_mib",
      "xla_gpu_operand_bytes_threshold_for_windowed_einsum",
    ),
    holds=lambda v: (
      v["xla_gpu_threshold_for_windowed_einsum_mib"] != 100000
      and int(v["xla_gpu_operand_bytes_threshold_for_windowed_einsum"]) >= 0
    ),
    text="The threshold in operand bytes replaces the one in MiB; keep one.",
    source="the help text of xla_gpu_operand_bytes_threshold...",
  ),
)
