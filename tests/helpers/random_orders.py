# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Random orders of a schedule: each instruction after what it must follow."""

from __future__ import annotations

import heapq
import random

from lagom_xla.passes import hlo
from lagom_xla.passes.schedule import aliasing
from lagom_xla.passes.schedule import orders as orders_lib


def of(module: hlo.Module, seed: int) -> orders_lib.Orders:
  """Of every computation that has another order than it stands in."""
  source = random.Random(seed)
  buffers = aliasing.of(module)
  orders = {}
  for id_ in module.proto.schedule.sequences:
    computation = module.computations[id_]
    before = orders_lib.predecessors(computation, buffers)
    order = tuple(computation.by_id[i].name for i in _listed(before, source))
    if order != tuple(i.name for i in computation.instructions):
      orders[computation.name] = order
  return orders


def _listed(
  before: dict[int, tuple[int, ...]], source: random.Random
) -> list[int]:
  waits_for = {id_: set(earlier) for id_, earlier in before.items()}
  after: dict[int, list[int]] = {id_: [] for id_ in before}
  for id_, earlier in before.items():
    for other in set(earlier):
      after[other].append(id_)
  ready = [(source.random(), id_) for id_ in before if not waits_for[id_]]
  heapq.heapify(ready)
  ordered = []
  while ready:
    _, id_ = heapq.heappop(ready)
    ordered.append(id_)
    for later in after[id_]:
      waits_for[later].discard(id_)
      if not waits_for[later]:
        heapq.heappush(ready, (source.random(), later))
  return ordered
