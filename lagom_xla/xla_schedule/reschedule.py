# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Predicts the schedule of a module under other choices of XLA's.

    changes = prediction.Changes(thresholds_bytes={"all-gather": 2**27})
    module = prediction.schedule(scheduled, changes, cluster)
    step = costs.step.Step(overlap.analyze(module), cluster)

The starting point is a module as XLA scheduled it. Loops are unrolled or
pipelined, collectives regrouped, and what comes of it is scheduled by the rules
of XLA's scheduler: callees before their callers, as the limit on collectives
under way counts those in a loop's body too. The result is a module like any
other, which can be analysed, replayed and searched. It takes a tenth to a
hundredth of the time that XLA takes to schedule anew, which is still to be done
before it is believed.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
import dataclasses

from lagom_xla import cluster as cluster_lib
from lagom_xla.passes import hlo
from lagom_xla.xla_schedule import estimates as estimates_lib
from lagom_xla.xla_schedule import grouping
from lagom_xla.xla_schedule import list_schedule
from lagom_xla.xla_schedule import loops
from lagom_xla.xla_schedule import streams as streams_lib

CostModel = Callable[[hlo.Module], list_schedule.Costs]

# DebugOptions' default of parallel_collective_overlap_limit.
_DEFAULT_OVERLAP_LIMIT = 1


@dataclasses.dataclass(frozen=True, kw_only=True)
class Changes:
  """What XLA should do otherwise.

  Attributes:
    thresholds_bytes: combine thresholds by kind of collective; kinds that are
      missing stay combined as they are.
    groups: collectives that travel together, by the names of the instructions
      that start them in the scheduled module.
    overlap_limit: collectives that may be under way at the same time
      (xla_gpu_experimental_parallel_collective_overlap_limit).
    pipelined: kinds whose XLA option for pipelining is switched on: loops run
      an all-gather one iteration ahead; with all-reduce, both it and the
      reduce-scatter that XLA makes of it one behind. reduce-scatter changes
      nothing, as that option is on by default.
    double_buffered: whether loop bodies hold two iterations.
  """

  thresholds_bytes: Mapping[str, int] = dataclasses.field(default_factory=dict)
  groups: Sequence[Sequence[str]] = ()
  overlap_limit: int = _DEFAULT_OVERLAP_LIMIT
  pipelined: Collection[str] = ()
  double_buffered: bool = False


def schedule(
  module: hlo.Module,
  changes: Changes,
  cluster: cluster_lib.Cluster,
  *,
  cost_model: CostModel | None = None,
) -> hlo.Module:
  """Predicts the schedule of a module.

  Args:
    module: as XLA scheduled it, with XLA's estimates
      (`compile.COST_ESTIMATES`) where it has them.
    changes: what XLA should do otherwise.
    cluster: what the module was compiled for.
    cost_model: what the scheduler believes that things take, by default what
      XLA's believes.

  Raises:
    ValueError: the module is not scheduled, or a change names what does not
      exist or cannot be made.
  """
  if not module.is_scheduled:
    raise ValueError(
      f"{module.name} has no schedule to start from: compile it up to its"
      " schedule first."
    )
  if changes.overlap_limit < 1:
    raise ValueError(
      f"An overlap limit of {changes.overlap_limit} lets no collective run;"
      " give 1 or more."
    )
  cost_model = cost_model or estimates_lib.Estimates(module, cluster).costs
  changed = loops.change(
    module,
    pipelined=changes.pipelined,
    double_buffered=changes.double_buffered,
  )
  changed = grouping.change(
    changed,
    thresholds_bytes=changes.thresholds_bytes,
    groups=changes.groups,
  )
  return _reschedule(changed, cost_model(changed), changes.overlap_limit)


def _reschedule(
  module: hlo.Module, costs: list_schedule.Costs, overlap_limit: int
) -> hlo.Module:
  limits = streams_lib.limits(overlap_limit)
  orders: dict[int, tuple[int, ...]] = {}
  num_under_way: dict[int, int] = {}
  for computation in _callees_first(module):
    streams = streams_lib.Streams(module, computation, num_under_way)
    order = tuple(i.id for i in computation.instructions)
    if streams.has_pairs:
      order = list_schedule.order(streams, costs=costs, limits=limits)
      orders[computation.id] = order
    num_under_way[computation.id] = streams.most_under_way(order)
  return _with_orders(module, orders)


def _with_orders(
  module: hlo.Module, orders: Mapping[int, Sequence[int]]
) -> hlo.Module:
  """The module with other schedules, by computation id."""
  proto = hlo.hlo_pb2.HloModuleProto()
  proto.CopyFrom(module.proto)
  for computation_id, order in orders.items():
    proto.schedule.sequences[computation_id].instruction_ids[:] = order
  return hlo.Module(proto, module.num_partitions)


def _callees_first(module: hlo.Module) -> list[hlo.Computation]:
  """The computations that run as sequences, each behind those it calls."""
  found: dict[int, hlo.Computation] = {}

  def visit(computation: hlo.Computation) -> None:
    if computation.id in found:
      return
    for instruction in computation.instructions:
      if instruction.opcode in streams_lib.CONTROL_FLOW:
        for callee, _ in module.callees(instruction):
          visit(callee)
    found[computation.id] = computation

  visit(module.entry)
  return list(found.values())
