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
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
import heapq

from lagom_xla.xla_schedule import nodes as nodes_lib
from lagom_xla.xla_schedule import streams as streams_lib


def order(
  streams: streams_lib.Streams,
  *,
  costs: nodes_lib.Costs,
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
  return _Scheduler(nodes_lib.of_computation(streams, costs), limits).run()


class _Scheduler:
  """The state of one run, from the end of the computation to its beginning."""

  def __init__(
    self, nodes: Sequence[nodes_lib.Node], limits: Mapping[str, int]
  ):
    self._nodes = nodes
    self._free = dict(limits)
    self._num_in_flight = dict.fromkeys(limits, 0)
    self._num_queued = dict.fromkeys(limits, 0)
    self._now_us = 0.0
    self._at_once: list[nodes_lib.Node] = []
    self._dones: list[nodes_lib.Node] = []
    self._starts: list[nodes_lib.Node] = []
    # Not ready yet, by the time they are; ready ones by depth.
    self._stalled: list[tuple[float, int, nodes_lib.Node]] = []
    self._by_depth: dict[float, list[nodes_lib.Node]] = {}
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

  def _enqueue(self, node: nodes_lib.Node) -> None:
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

  def _make_ready(self, node: nodes_lib.Node) -> None:
    bucket = self._by_depth.get(node.depth_us)
    if bucket is None:
      bucket = self._by_depth[node.depth_us] = []
      heapq.heappush(self._depths, -node.depth_us)
    bucket.append(node)

  def _take(self) -> nodes_lib.Node:
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

  def _may_go(self, node: nodes_lib.Node) -> bool:
    usage = node.usage
    if not self._num_in_flight[usage.stream]:
      return True
    return self._free[usage.stream] >= usage.num_needed

  def _take_ready(self) -> nodes_lib.Node | None:
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

  def _take_stalled(self) -> nodes_lib.Node:
    """What stalls least, where everything does."""
    stalled = self._stalled
    soonest_us = stalled[0][0] if stalled else nodes_lib.NEVER_US
    starts = self._starts
    soonest_us = min(
      soonest_us, min((s.ready_us for s in starts), default=nodes_lib.NEVER_US)
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

  def _take_start(self, starts: list[nodes_lib.Node]) -> nodes_lib.Node:
    best = self._best(starts)
    self._starts.remove(best)
    return best

  def _blocks(self, start: nodes_lib.Node) -> bool:
    stream = start.usage.stream
    return self._free[stream] <= 0 and self._num_queued[stream] > 0

  def _best(self, nodes: list[nodes_lib.Node]) -> nodes_lib.Node:
    if len(nodes) == 1:
      return nodes[0]
    now_us = self._now_us
    to_hide_us = self._coming_us[0] - now_us if self._coming_us else None

    def rank(node: nodes_lib.Node) -> tuple[float | bool, ...]:
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

  def _place(self, node: nodes_lib.Node) -> None:
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


def _tie_break(node: nodes_lib.Node) -> tuple[int, int]:
  """How many others it makes ready, and where it stood before."""
  return sum(other.num_waiting == 1 for other in node.before), node.position
