# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Runs of nccl-tests: a program, its ranks, its environment and its rows."""

from __future__ import annotations

from collections.abc import Mapping
import dataclasses

# Programs of nccl-tests -> XLA's names of what they run. It has no names for
# the others (reduce, gather, scatter, hypercube).
KINDS = {
  "all_reduce": "all-reduce",
  "all_gather": "all-gather",
  "reduce_scatter": "reduce-scatter",
  "alltoall": "all-to-all",
  "sendrecv": "collective-permute",
  "broadcast": "collective-broadcast",
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Row:
  """One measured size.

  Attributes:
    line: where it stands in its log, from 1.
    num_bytes: of the whole buffer, as nccl-tests counts it.
    time_us: out of place; in place where it was run in place alone.
    gbps: bytes over time ("algbw"), in 1e9 bytes per second.
    bus_gbps: the same as bus bandwidth.
    num_wrong: results that were not what they should be.
  """

  line: int
  num_bytes: int
  time_us: float
  gbps: float
  bus_gbps: float
  num_wrong: int


@dataclasses.dataclass(frozen=True, kw_only=True)
class Run:
  """One execution of one program.

  Attributes:
    source: its log, as it was named.
    line: where it starts there, from 1.
    program: without "_perf", such as "all_reduce"; "" where nothing says it.
    ranks: rank -> host, where the log lists them.
    gpus: what CUDA calls its GPUs.
    gpus_per_thread: for how many GPUs one thread launches, where the log tells.
    nccl_version: such as "2.27.5", if the log says it.
    environment: NCCL's variables that the log shows, with their values.
    choices: bytes -> NCCL's algorithm and protocol, where it logged them.
    rows: in their order.
  """

  source: str
  line: int
  program: str
  ranks: Mapping[int, str]
  gpus: frozenset[str]
  gpus_per_thread: int | None
  nccl_version: str | None
  environment: Mapping[str, str]
  choices: Mapping[int, tuple[str, str]]
  rows: tuple[Row, ...]

  @property
  def where(self) -> str:
    """Its log and line, to start a message with."""
    return f"{self.source}:{self.line}"


def bus_share(program: str, num_ranks: int) -> float:
  """Bus bandwidth over bytes per time (nccl-tests, doc/PERFORMANCE.md)."""
  if program in ("sendrecv", "broadcast", "reduce"):
    return 1.0
  share = (num_ranks - 1) / num_ranks
  return 2 * share if program == "all_reduce" else share
