# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Random legal orders of a schedule."""

from __future__ import annotations

import random

from lagom_xla.passes import dependencies
from lagom_xla.passes import hlo
from lagom_xla.passes.schedule import aliasing
from lagom_xla.passes.schedule import orders as orders_lib


def of(module: hlo.Module, seed: int) -> orders_lib.Orders:
  """Random orders of all computations with more than one legal order."""
  source = random.Random(seed)
  buffers = aliasing.of(module)
  orders = {}
  for id_ in module.proto.schedule.sequences:
    computation = module.computations[id_]
    before = orders_lib.predecessors(computation, buffers)
    ids = source.sample(list(before), len(before))
    ordered = dependencies.in_order(ids, before.__getitem__)
    order = tuple(computation.by_id[i].name for i in ordered)
    if order != tuple(i.name for i in computation.instructions):
      orders[computation.name] = order
  return orders
