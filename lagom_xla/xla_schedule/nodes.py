# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""The instructions of a computation as XLA's scheduler sees them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
import dataclasses

import jax

from lagom_xla.passes import collectives
from lagom_xla.passes import dependencies
from lagom_xla.passes import hlo
from lagom_xla.xla_schedule import streams as streams_lib

# Latency between two instructions that are no pair, in XLA's estimator
# (kLowLatency of ApproximateLatencyEstimator).
_EDGE_US = 1.0

# kMinForceEarlyFillBytes of xla/service/gpu/gpu_latency_hiding_scheduler.cc.
_LARGE_FILL_BYTES = 2**20
_KEEPS_FILLS_LATE = jax.__version_info__ >= (0, 12)

# When an instruction is ready whose users are not all placed.
NEVER_US = float("inf")


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Costs:
  """What the scheduler believes things take, in microseconds.

  Attributes:
    cost_us: time of an instruction on the compute stream.
    latency_us: from a start to where its done no longer waits, by the start.
  """

  cost_us: Callable[[hlo.Instruction], float]
  latency_us: Callable[[hlo.Instruction], float]


@dataclasses.dataclass(eq=False, slots=True)
class Node:
  """An instruction while it is scheduled; times run backwards.

  Attributes:
    id: of the instruction.
    position: in the order so far.
    cost_us: its time on the compute stream.
    usage: the stream that it occupies, if any.
    goes_at_once: whether it takes no time, or is a large fill.
    num_waiting: users and control successors that are not placed.
    takes_done: whether it takes the value of a done.
    depth_us: latencies of the communication that it depends on, at most.
    ready_us: when all that comes after it is placed and its latency over.
    after: users and control successors, with the latency in between.
    before: operands and control predecessors, in the order so far.
  """

  id: int
  position: int
  cost_us: float
  usage: streams_lib.Usage
  goes_at_once: bool
  num_waiting: int
  takes_done: bool = False
  depth_us: float = 0.0
  ready_us: float = NEVER_US
  after: list[tuple[Node, float]] = dataclasses.field(default_factory=list)
  before: list[Node] = dataclasses.field(default_factory=list)


def of_computation(streams: streams_lib.Streams, costs: Costs) -> list[Node]:
  """The nodes of a computation, in its order and with their edges."""
  graph = streams.graph
  nodes = {
    instruction.id: Node(
      id=instruction.id,
      position=position,
      cost_us=costs.cost_us(instruction),
      usage=streams.usage(instruction),
      goes_at_once=instruction.opcode in collectives.NOPS
      or _is_large_fill(instruction),
      num_waiting=len(graph.successors[instruction.id]),
    )
    for position, instruction in enumerate(graph.computation.instructions)
  }
  for instruction in graph.computation.instructions:
    _connect(nodes, instruction, graph, costs)
  return list(nodes.values())


def _is_large_fill(instruction: hlo.Instruction) -> bool:
  """Whether XLA keeps an instruction right before what uses it.

  From JAX 0.12 on it does so with fills, which need nothing and would be in
  memory from the beginning otherwise (IsLargeIndependentFill, same file).
  """
  return (
    _KEEPS_FILLS_LATE
    and instruction.opcode == "fusion"
    and instruction.fusion_kind == "kLoop"
    and not instruction.operand_ids
    and hlo.shape_bytes(instruction.shape) >= _LARGE_FILL_BYTES
  )


def _connect(
  nodes: Mapping[int, Node],
  instruction: hlo.Instruction,
  graph: dependencies.Graph,
  costs: Costs,
) -> None:
  """Adds the edges to what comes before, and how much communication does.

  Instructions come in an order in which what comes before is complete.
  """
  node = nodes[instruction.id]
  for id_ in graph.predecessors[instruction.id]:
    earlier = nodes[id_]
    latency_us = _EDGE_US
    if node.usage.is_done and node.usage.is_async:
      if earlier.usage.is_start:
        latency_us = costs.latency_us(graph.computation.by_id[id_])
      node.depth_us = max(node.depth_us, earlier.depth_us + latency_us)
    elif earlier.depth_us > node.depth_us:
      node.depth_us = earlier.depth_us
    earlier.after.append((node, latency_us))
    node.before.append(earlier)
  node.before.sort(key=lambda earlier: earlier.position)
  node.takes_done = any(
    nodes[id_].usage.is_done for id_ in graph.operands[instruction.id]
  )
