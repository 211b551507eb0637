# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""The schedule that XLA would make of a module under other choices.

    changes = reschedule.Changes(thresholds_bytes={"all-gather": 2**27})
    module = reschedule.reschedule(scheduled, changes, cluster)
    step = costs.step.Step(overlap.analyze(module), cluster)

The starting point is a module as XLA scheduled it. Loops are pipelined or
double-buffered, collectives combined anew, and the result is scheduled by the
rules of XLA's scheduler: callees before their callers, as the limit on
collectives in flight counts those in a loop's body too. What comes out is a
module like any other, which can be analysed, replayed and searched. It takes a
tenth to a hundredth of the time that XLA takes to schedule anew; only XLA's own
schedule is ever kept.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
import dataclasses
import functools

from lagom_xla import cluster as cluster_lib
from lagom_xla.passes import collectives as collectives_lib
from lagom_xla.passes import hlo
from lagom_xla.xla_schedule import combiner
from lagom_xla.xla_schedule import loops
from lagom_xla.xla_schedule import scheduler

# DebugOptions' default of parallel_collective_overlap_limit.
_DEFAULT_OVERLAP_LIMIT = 1


@dataclasses.dataclass(frozen=True, kw_only=True)
class Changes:
  """What XLA should do otherwise.

  Attributes:
    thresholds_bytes: combine thresholds by kind of collective; kinds that are
      missing stay combined as they are.
    groups: collectives to combine, by the names of the instructions that start
      them in the scheduled module.
    overlap_limit: collectives that may be in flight at the same time
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


def reschedule(
  module: hlo.Module, changes: Changes, cluster: cluster_lib.Cluster
) -> hlo.Module:
  """Predicts the schedule of a module.

  Args:
    module: as XLA scheduled it, with XLA's estimates (`compiler.ESTIMATES`)
      where it has them.
    changes: what XLA should do otherwise.
    cluster: what the module was compiled for.

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
  start = _start(module, cluster)
  changed = loops.pipeline(module, changes.pipelined)
  if changes.double_buffered:
    changed = loops.double_buffer(changed)
  changed = combiner.combine_collectives(
    changed,
    thresholds_bytes=changes.thresholds_bytes,
    groups=changes.groups,
  )
  return _schedule(changed, start, changes.overlap_limit)


# A computation in its new order, and what is in flight in it at most.
_Ordered = tuple[hlo.Computation, int]
# A computation, the limit, and what is in flight in each of its callees.
_Known = dict[tuple[hlo.Computation, int, tuple[int, ...]], _Ordered]


@dataclasses.dataclass(frozen=True)
class _Start:
  """What all predictions that start from a module share.

  Attributes:
    estimates: of what things take.
    known: its own computations as they were ordered before: most predictions
      change one or two, and the others are ordered as in the last one.
  """

  estimates: scheduler.Estimates
  known: _Known = dataclasses.field(default_factory=dict)


@functools.lru_cache(maxsize=1)  # One module is the start of many predictions.
def _start(module: hlo.Module, cluster: cluster_lib.Cluster) -> _Start:
  return _Start(scheduler.Estimates(module, cluster))


def _schedule(
  module: hlo.Module, start: _Start, overlap_limit: int
) -> hlo.Module:
  """Schedules every computation that starts something and awaits it."""
  costs = start.estimates.costs(module)
  own = start.estimates.module.computations
  found: dict[int, _Ordered] = {}
  for computation in _callees_first(module):
    in_flight = tuple(found[id_][1] for id_ in _callee_ids(computation))
    key = computation, overlap_limit, in_flight
    if key in start.known:
      found[computation.id] = start.known[key]
      continue
    num_in_flight = {id_: most for id_, (_, most) in found.items()}
    streams = scheduler.Streams(module, computation, num_in_flight)
    ordered = _ordered(streams, costs, overlap_limit)
    found[computation.id] = ordered
    if computation is own.get(computation.id):
      start.known[key] = ordered
  if module is start.estimates.module:
    module = _copied(module)
  return _with_orders(module, {id_: o for id_, (o, _) in found.items()})


def _ordered(
  streams: scheduler.Streams, costs: scheduler.Costs, overlap_limit: int
) -> _Ordered:
  computation = streams.graph.computation
  if streams.has_pairs:
    limits = scheduler.limits(overlap_limit)
    order = scheduler.order(streams, costs=costs, limits=limits)
    computation = computation.reordered(order)
  return computation, streams.most_in_flight(computation.instructions)


def _copied(module: hlo.Module) -> hlo.Module:
  proto = hlo.hlo_pb2.HloModuleProto()
  proto.CopyFrom(module.proto)
  return dataclasses.replace(module, proto=proto, shared=module.computations)


def _with_orders(
  module: hlo.Module, ordered: Mapping[int, hlo.Computation]
) -> hlo.Module:
  """A module with other schedules, by computation id; its proto gets them."""
  proto = module.proto
  for id_, computation in ordered.items():
    if computation is not module.computations[id_]:
      ids = [i.id for i in computation.instructions]
      proto.schedule.sequences[id_].instruction_ids[:] = ids
  shared = {**module.computations, **ordered}
  return hlo.Module(proto, collectives_lib.num_devices(module), shared)


def _callees_first(module: hlo.Module) -> list[hlo.Computation]:
  """The computations that run as sequences, each after those it calls."""
  found: dict[int, hlo.Computation] = {}

  def visit(computation: hlo.Computation) -> None:
    if computation.id in found:
      return
    for id_ in _callee_ids(computation):
      visit(module.computations[id_])
    found[computation.id] = computation

  visit(module.entry)
  return list(found.values())


def _callee_ids(computation: hlo.Computation) -> list[int]:
  """The computations that its loops, calls and branches run."""
  if computation.opcodes.isdisjoint(scheduler.CONTROL_FLOW):
    return []
  return [
    id_
    for instruction in computation.instructions
    if instruction.opcode in scheduler.CONTROL_FLOW
    for id_ in instruction.called_computation_ids
  ]
