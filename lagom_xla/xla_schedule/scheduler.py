# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""The latency-hiding scheduler of XLA, as a list scheduler.

Time runs backwards, from the root of a computation to its parameters, because a
value should be computed late and a collective should start early. Of the
instructions whose users all have their place, the next one is taken by the
first of these rules that tells two of them apart (XLA's order for GPUs, see
xla/service/latency_hiding_scheduler.cc, ReadySetLt):

1. what takes no time goes at once, and from JAX 0.12 on so does a large fill;
2. a done goes as soon as its collective may be in flight beside the others:
   from there on it hides;
3. what stalls less goes first; a start stalls until its latency has passed;
4. a start that no other collective comes before, and that holds back none, goes
   last: its collective may be in flight for as long as there is time;
5. a start that holds back another collective goes before the rest;
6. what depends on more communication goes first, to get to it sooner;
7. the kernel goes first whose time is closest to what is left to hide;
8. what takes a done's value goes first, then what makes more others ready, then
   what stood later in the order before.

Loops, calls and branches that communicate count as dones that are over at once:
no more collectives may be in flight around them than the limit leaves.

Left out are XLA's rules for memory, which act once a schedule needs half of
what the device has, and its scheduling groups.

The streams of XLA's scheduler: what may be in flight at the same time.

Collectives share one stream, asynchronous copies and computations another,
sends and receives a third. A start puts something on its stream and the done
takes it off; loops, calls and branches need as much of the stream as is in
flight inside them. Of slices that XLA moves within the GPU's memory, as it does
from JAX 0.11 on, any number may be in flight.

The instructions of a computation as XLA's scheduler sees them.

The cost estimates that XLA's scheduler uses.

XLA schedules by its speed-of-light estimates, and writes them into the module
when asked to (`compiler.ESTIMATES`): for matrix products, for loop and
input fusions, for collectives. For the rest it has constants.
Collectives without an estimate, among them all that a prediction makes, get
one from their size and the estimates of others with the same groups. Modules
without any estimate are scheduled by this package's own lone costs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
import dataclasses
import functools
import heapq
import itertools
import math

import jax

from lagom_xla import cluster as cluster_lib
from lagom_xla.costs import collective as collective_lib
from lagom_xla.costs import step as step_lib
from lagom_xla.passes import collectives
from lagom_xla.passes import collectives as collectives_lib
from lagom_xla.passes import copies
from lagom_xla.passes import dependencies
from lagom_xla.passes import hlo
from lagom_xla.passes import kernels
from lagom_xla.passes import overlap as overlap_lib

# Instructions that run other computations.
CONTROL_FLOW = ("while", "conditional", "call")

_COLLECTIVES = "collectives"
_COMPUTE = "compute"
_SLICES = "slices"
_POINT_TO_POINT = "point-to-point"
# DebugOptions' default of parallel_async_compute_limit, and kNumAsyncMemcpy and
# kNumAsyncCollectivesP2P of xla/service/gpu/gpu_latency_hiding_scheduler.cc.
_NUM_ASYNC_COMPUTE = 2
_NUM_SLICES = 2**31 - 1
_NUM_POINT_TO_POINT = 4


def limits(num_collectives: int) -> Mapping[str, int]:
  """What may be in flight on each stream."""
  return {
    _COLLECTIVES: num_collectives,
    _COMPUTE: _NUM_ASYNC_COMPUTE,
    _SLICES: _NUM_SLICES,
    _POINT_TO_POINT: _NUM_POINT_TO_POINT,
  }


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Usage:
  """The stream that an instruction occupies, and how much of it.

  Attributes:
    stream: name of the stream; "" where it is none.
    num_needed: what must be free on it for the instruction to go: 1 for a
      done, more for a loop, 0 for a start.
    is_start: whether something is in flight on it after the instruction.
    is_done: whether something is in flight on it before the instruction.
    is_async: whether the scheduler takes it for asynchronous.
  """

  stream: str = ""
  num_needed: int = 0
  is_start: bool = False
  is_done: bool = False
  is_async: bool = True


NO_USAGE = Usage()


class Streams:
  """Which streams the instructions of a computation occupy.

  Attributes:
    graph: the computation's dependences.
  """

  def __init__(
    self,
    module: hlo.Module,
    computation: hlo.Computation,
    num_in_flight: Mapping[int, int],
  ):
    self.graph = dependencies.of(computation)
    self._module = module
    self._num_in_flight = num_in_flight
    self._stream_of: dict[int, str] = {}
    self._own_kernels: set[int] = set()
    for start_id, done_id in self.graph.done_of.items():
      start = computation.by_id[start_id]
      stream = _stream(module, start)
      if is_own_kernel(module, start):
        stream = _COMPUTE
        self._own_kernels |= {start_id, done_id}
      self._stream_of[start_id] = self._stream_of[done_id] = stream

  @property
  def has_pairs(self) -> bool:
    """Whether anything starts in the computation and is waited for there."""
    return bool(self._stream_of)

  def usage(self, instruction: hlo.Instruction) -> Usage:
    """What an instruction occupies."""
    stream = self._stream_of.get(instruction.id)
    if stream is not None:
      is_start = instruction.id in self.graph.done_of
      return Usage(
        stream=stream,
        num_needed=0 if is_start else 1,
        is_start=is_start,
        is_done=not is_start,
        is_async=instruction.id not in self._own_kernels,
      )
    num_inside = self._num_inside(instruction)
    if not num_inside:
      return NO_USAGE
    return Usage(stream=_COLLECTIVES, num_needed=num_inside)

  def most_in_flight(self, order: Iterable[hlo.Instruction]) -> int:
    """Collectives in flight at once, at most, those of callees included."""
    num_now = most = 0
    for instruction in order:
      id_ = instruction.id
      if self._stream_of.get(id_) == _COLLECTIVES:
        num_now += 1 if id_ in self.graph.done_of else -1
        most = max(most, num_now)
      elif instruction.opcode in CONTROL_FLOW:
        most = max(most, num_now + self._num_inside(instruction))
    return most

  def _num_inside(self, instruction: hlo.Instruction) -> int:
    if instruction.opcode not in CONTROL_FLOW:
      return 0
    return max(
      self._num_in_flight.get(id_, 0)
      for id_ in instruction.called_computation_ids
    )


def _stream(module: hlo.Module, start: hlo.Instruction) -> str:
  if start.opcode in ("send", "recv"):
    return _POINT_TO_POINT
  is_collective = collectives_lib.kind_of(start) is not None
  if is_collective or collectives_lib.payloads(module, start):
    return _COLLECTIVES
  return _SLICES if _is_slice(module, start) else _COMPUTE


def is_own_kernel(module: hlo.Module, start: hlo.Instruction) -> bool:
  """Whether a start runs a collective that is one of XLA's own kernels.

  From JAX 0.12 on that is a fusion, which is no asynchronous one for the
  scheduler (IsGpuAsyncStart in gpu_latency_hiding_scheduler.cc).
  """
  return start.opcode == "async-start" and any(
    computation.id not in start.called_computation_ids
    for computation, _ in collectives_lib.payloads(module, start)
  )


def _is_slice(module: hlo.Module, start: hlo.Instruction) -> bool:
  """Whether a start moves a slice within the GPU's memory."""
  if copies.slice_of(module, start) is None:
    return False
  called = module.computations[start.called_computation_ids[0]]
  return not any(copies.is_on_host(i.shape) for i in called.instructions)


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
  usage: Usage
  goes_at_once: bool
  num_waiting: int
  takes_done: bool = False
  depth_us: float = 0.0
  ready_us: float = NEVER_US
  after: list[tuple[Node, float]] = dataclasses.field(default_factory=list)
  before: list[Node] = dataclasses.field(default_factory=list)


def of_computation(streams: Streams, costs: Costs) -> list[Node]:
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


# Constants of XLA's estimators, in microseconds (SolLatencyEstimator::NodeCost
# in xla/service/gpu/model/sol_latency_estimator.cc: a hundredth of what
# ApproximateLatencyEstimator and GpuLatencyEstimator say).
_PAIR_US = 1.0
_CUSTOM_CALL_US = 10.0
_OUTPUT_FUSION_US = 50.0
_OTHER_US = 0.01
# What asynchronous copies and computations are taken to need (kHighLatency).
_ASYNC_US = 5000.0

_POINT_TO_POINT_OPCODES = ("send", "send-done", "recv", "recv-done")
_GEMM_FUSIONS = ("__triton_gemm", "__triton_nested_gemm", "__cublas", "__cudnn")

# Moving the same bytes through the same ring, if only the other way round.
_SIBLINGS = {"all-gather": "reduce-scatter", "reduce-scatter": "all-gather"}

_Group = tuple[str, int, int]
_Points = Sequence[tuple[int, float]]


@dataclasses.dataclass(frozen=True, eq=False)
class Estimates:
  """XLA's estimates of a module, for predictions that start from it.

  Attributes:
    module: as XLA scheduled it.
    cluster: what it was compiled for.
  """

  module: hlo.Module
  cluster: cluster_lib.Cluster

  def costs(self, module: hlo.Module) -> Costs:
    """The costs of a module that was predicted from this one.

    Args:
      module: this module, or what became of it.
    """
    analysis = overlap_lib.analyze(module)
    started = {c.start_id: c for c in analysis.collectives}
    # XLA knows of no profile.
    lone = step_lib.Step(analysis, self.cluster, measured=None)
    paired = {
      id_
      for computation in analysis.sequences
      for start in computation.instructions
      for collective in analysis.started_by.get(start.id, ())
      if not is_own_kernel(module, start)
      for id_ in (collective.start_id, collective.done_id)
    }

    def latency_us(start: hlo.Instruction) -> float:
      collective = started.get(start.id)
      return self.collective_us(collective) if collective else _ASYNC_US

    def cost_us(instruction: hlo.Instruction) -> float:
      opcode = instruction.opcode
      if opcode in collectives_lib.NOPS:
        return 0.0
      if instruction.id in paired or opcode in _POINT_TO_POINT_OPCODES:
        return _PAIR_US
      if opcode.endswith(("-start", "-done")):
        return _OTHER_US
      if self._has_estimates:
        return self._kernel_us(instruction)
      kernel = analysis.kernels.get(instruction.id)
      return lone.kernel_cost(kernel).time_us if kernel else _OTHER_US

    return Costs(cost_us=cost_us, latency_us=latency_us)

  def collective_us(self, collective: collectives_lib.Collective) -> float:
    """XLA's estimate of a collective, or one made from those of others."""
    group = _group(collective)
    num_bytes = collective.nccl_bytes
    points = self._known.get(group)
    if points is None and collective.kind in _SIBLINGS:
      points = self._known.get((_SIBLINGS[collective.kind], *group[1:]))
    if not points or not num_bytes:
      return self._lone_us(collective, num_bytes)
    for (low, low_us), (high, high_us) in itertools.pairwise(points):
      if low <= num_bytes <= high:
        share = math.log(num_bytes / low) / math.log(high / low)
        return low_us * (high_us / low_us) ** share
    nearest, nearest_us = points[0] if num_bytes <= points[0][0] else points[-1]
    lone_us = self._lone_us(collective, num_bytes)
    known_us = self._lone_us(collective, nearest)
    return nearest_us * lone_us / known_us

  def _lone_us(
    self, collective: collectives_lib.Collective, num_bytes: int
  ) -> float:
    """This package's own prediction, for any number of bytes."""
    key = collective_lib.tuning_key(collective, self.cluster)
    key = dataclasses.replace(key, num_bytes=num_bytes)
    setting = collective_lib.default_setting(key, self.cluster)
    return collective_lib.predict(key, setting, self.cluster).time_us

  @functools.cached_property
  def _known(self) -> Mapping[_Group, _Points]:
    """(bytes, us) of the collectives with an estimate, by size."""
    known: dict[_Group, dict[int, float]] = {}
    starts = {c.start_id: c for c in collectives_lib.find(self.module)}
    for computation in self.module.computations.values():
      for instruction in computation.instructions:
        collective = starts.get(instruction.id)
        if collective is None or not collective.nccl_bytes:
          continue
        time_us = _collective_sol_us(self.module, instruction)
        if time_us:
          by_size = known.setdefault(_group(collective), {})
          by_size[collective.nccl_bytes] = time_us
    return {group: sorted(sizes.items()) for group, sizes in known.items()}

  @functools.cached_property
  def _has_estimates(self) -> bool:
    return any(
      _sol_us(self.module, instruction) is not None
      for computation_id in self.module.executions
      for instruction in self.module.computations[computation_id].instructions
      if instruction.opcode == "fusion"
    )

  def _kernel_us(self, instruction: hlo.Instruction) -> float:
    """What XLA's scheduler takes a kernel to need.

    No change gives a kernel another config, so it is read once.
    """
    if instruction.opcode == "convolution":
      return _OUTPUT_FUSION_US
    if instruction.opcode not in ("fusion", "custom-call"):
      return _OTHER_US
    known = (
      instruction.opcode,
      instruction.fusion_kind,
      self.module.raw_backend_config(instruction),
    )
    if known not in self._kernels_us:
      self._kernels_us[known] = self._read_us(instruction)
    return self._kernels_us[known]

  @functools.cached_property
  def _kernels_us(self) -> dict[tuple[object, ...], float]:
    return {}

  def _read_us(self, instruction: hlo.Instruction) -> float:
    """The same for a fusion or a library call, by its config."""
    config = self.module.backend_config(instruction)
    time_us = kernels.sol_time_us(config)
    if instruction.opcode == "custom-call":
      return time_us or _CUSTOM_CALL_US
    kind = config.get("fusion_backend_config", {}).get("kind", "")
    is_known = instruction.fusion_kind in ("kLoop", "kInput")
    if time_us is not None and (is_known or kind.startswith(_GEMM_FUSIONS)):
      return time_us
    is_output = instruction.fusion_kind == "kOutput"
    return _OUTPUT_FUSION_US if is_output else _OTHER_US


def _sol_us(module: hlo.Module, instruction: hlo.Instruction) -> float | None:
  return kernels.sol_time_us(module.backend_config(instruction))


def _collective_sol_us(
  module: hlo.Module, start: hlo.Instruction
) -> float | None:
  """XLA's estimate of a collective, written where its opcode stands."""
  for _, inside in collectives_lib.payloads(module, start):
    return _sol_us(module, inside)
  return _sol_us(module, start)


def _group(collective: collectives_lib.Collective) -> _Group:
  return collective.kind, collective.group_size, collective.num_groups


def order(
  streams: Streams,
  *,
  costs: Costs,
  limits: Mapping[str, int],
) -> tuple[int, ...]:
  """Schedules one computation.

  Args:
    streams: the computation, its dependences and what each instruction
      occupies.
    costs: what things take.
    limits: what may be in flight at the same time, by stream.

  Returns:
    the ids of all instructions, in their new order.

  Raises:
    ValueError: no order keeps to the limits.
  """
  return _Scheduler(of_computation(streams, costs), limits).run()


class _Scheduler:
  """The state of one run, from the end of the computation to its beginning."""

  def __init__(self, nodes: Sequence[Node], limits: Mapping[str, int]):
    self._nodes = nodes
    self._free = dict(limits)
    self._num_in_flight = dict.fromkeys(limits, 0)
    self._num_queued = dict.fromkeys(limits, 0)
    self._now_us = 0.0
    self._at_once: list[Node] = []
    self._dones: list[Node] = []
    self._starts: list[Node] = []
    # Not ready yet, by the time they are; ready ones by depth.
    self._stalled: list[tuple[float, int, Node]] = []
    self._by_depth: dict[float, list[Node]] = {}
    self._depths: list[float] = []
    # Times at which something becomes ready that was not when it was queued.
    self._coming_us: list[float] = []
    self._reversed: list[int] = []

  def run(self) -> tuple[int, ...]:
    for node in self._nodes:
      if not node.num_waiting:
        node.ready_us = 0.0
        self._enqueue(node)
    while len(self._reversed) < len(self._nodes):
      self._place(self._take())
    return tuple(reversed(self._reversed))

  def _enqueue(self, node: Node) -> None:
    if node.goes_at_once:
      self._at_once.append(node)
      return
    if node.usage.num_needed:
      self._num_queued[node.usage.stream] += 1
      self._dones.append(node)
    elif node.usage.is_start:
      self._starts.append(node)
    elif node.ready_us > self._now_us:
      heapq.heappush(self._stalled, (node.ready_us, node.position, node))
    else:
      self._make_ready(node)
    if node.ready_us > self._now_us:
      heapq.heappush(self._coming_us, node.ready_us)

  def _make_ready(self, node: Node) -> None:
    bucket = self._by_depth.get(node.depth_us)
    if bucket is None:
      bucket = self._by_depth[node.depth_us] = []
      heapq.heappush(self._depths, -node.depth_us)
    bucket.append(node)

  def _take(self) -> Node:
    """The next instruction, by the rules in the module's docstring."""
    if self._at_once:
      return self._at_once.pop()
    possible = [node for node in self._dones if self._may_go(node)]
    if possible:
      node = self._best(possible)
      self._dones.remove(node)
      return node
    stalled = self._stalled
    while stalled and stalled[0][0] <= self._now_us:
      self._make_ready(heapq.heappop(stalled)[2])
    return self._take_ready() or self._take_stalled()

  def _may_go(self, node: Node) -> bool:
    usage = node.usage
    if not self._num_in_flight[usage.stream]:
      return True
    return self._free[usage.stream] >= usage.num_needed

  def _take_ready(self) -> Node | None:
    starts = [s for s in self._starts if s.ready_us <= self._now_us]
    if starts:
      blocking = [s for s in starts if self._blocks(s)]
      if blocking:
        return self._take_start(blocking)
      starts = [s for s in starts if s.depth_us > 0]
    depths = self._depths
    while depths and not self._by_depth[-depths[0]]:
      del self._by_depth[-heapq.heappop(depths)]
    bucket = self._by_depth[-depths[0]] if depths else []
    if starts:
      best = self._best([*bucket, *starts])
      if best.usage.is_start:
        return self._take_start([best])
    elif bucket:
      best = self._best(bucket)
    else:
      starts = [s for s in self._starts if s.ready_us <= self._now_us]
      return self._take_start(starts) if starts else None
    bucket.remove(best)
    return best

  def _take_stalled(self) -> Node:
    """What stalls least, where everything does."""
    stalled = self._stalled
    soonest_us = stalled[0][0] if stalled else NEVER_US
    starts = self._starts
    soonest_us = min(
      soonest_us, min((s.ready_us for s in starts), default=NEVER_US)
    )
    equal = [s for s in starts if s.ready_us == soonest_us]
    while stalled and stalled[0][0] == soonest_us:
      equal.append(heapq.heappop(stalled)[2])
    if not equal:
      raise ValueError(
        "No order keeps to the limit on what may be in flight: something that"
        " communicates stands between a start and its done."
      )
    best = self._best(equal)
    for node in equal:
      if node is best:
        if node.usage.is_start:
          starts.remove(node)
      elif not node.usage.is_start:
        heapq.heappush(stalled, (node.ready_us, node.position, node))
    return best

  def _take_start(self, starts: list[Node]) -> Node:
    best = self._best(starts)
    self._starts.remove(best)
    return best

  def _blocks(self, start: Node) -> bool:
    stream = start.usage.stream
    return self._free[stream] <= 0 and self._num_queued[stream] > 0

  def _best(self, nodes: list[Node]) -> Node:
    if len(nodes) == 1:
      return nodes[0]
    now_us = self._now_us
    to_hide_us = self._coming_us[0] - now_us if self._coming_us else None

    def rank(node: Node) -> tuple[float | bool, ...]:
      is_start = node.usage.is_start
      blocks = is_start and self._blocks(node)
      waste_us = 0.0
      if to_hide_us is not None:
        waste_us = abs(to_hide_us - node.cost_us)
      return (
        max(node.ready_us - now_us, 0.0),
        is_start and not node.depth_us and not blocks,
        not blocks,
        -node.depth_us,
        waste_us,
        not node.takes_done,
      )

    ranks = [rank(node) for node in nodes]
    first = min(ranks)
    equal = (n for n, its in zip(nodes, ranks, strict=True) if its == first)
    return max(equal, key=_tie_break)

  def _place(self, node: Node) -> None:
    self._reversed.append(node.id)
    usage = node.usage
    if usage.num_needed:
      self._num_queued[usage.stream] -= 1
    if usage.is_done:
      self._free[usage.stream] -= 1
      self._num_in_flight[usage.stream] += 1
    elif usage.is_start:
      self._free[usage.stream] += 1
      self._num_in_flight[usage.stream] -= 1
    placed_us = self._now_us
    for later, latency_us in node.after:
      placed_us = max(placed_us, later.ready_us + latency_us)
    node.ready_us = placed_us
    self._now_us = now_us = placed_us + node.cost_us
    coming_us = self._coming_us
    while coming_us and coming_us[0] < now_us:
      heapq.heappop(coming_us)
    for earlier in node.before:
      earlier.num_waiting -= 1
      if not earlier.num_waiting:
        earlier.ready_us = max(
          now_us, *(later.ready_us + us for later, us in earlier.after)
        )
        self._enqueue(earlier)


def _tie_break(node: Node) -> tuple[int, int]:
  """How many others it makes ready, and where it stood before."""
  return sum(other.num_waiting == 1 for other in node.before), node.position
