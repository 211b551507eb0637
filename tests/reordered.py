# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Orders with one instruction moved, and modules that gather to move in."""

from __future__ import annotations

from collections.abc import Sequence

import hlo_text
from lagom_xla.passes import hlo
from lagom_xla.passes.schedule import orders as orders_lib


def order_of(module: hlo.Module) -> list[str]:
  """The order of the computation that runs once."""
  return [i.name for i in module.entry.instructions]


def with_order(module: hlo.Module, order: Sequence[str]) -> hlo.Module:
  """The module with another order of what runs once, if it is legal."""
  return orders_lib.apply(module, {module.entry.name: tuple(order)})


def moved(order: Sequence[str], name: str, *, after: str) -> list[str]:
  """The order with one instruction right after another."""
  others = [n for n in order if n != name]
  place = others.index(after) + 1
  return [*others[:place], name, *others[place:]]


_GATHER = """
  gather = (f32[8], f32[64]) all-gather-start(OPERAND), dimensions={0},
    replica_groups={{0,1,2,3,4,5,6,7}}
  work = f32[8] negate(z)
  done = f32[64] all-gather-done(gather)
"""


def gathering(
  body: str, *, x: str = "x", alias: str = "", others: str = ""
) -> hlo.Module:
  """A module whose GATHER is an asynchronous all-gather of `x`, and work."""
  return hlo_text.load(
    body.replace("GATHER", _GATHER.replace("OPERAND", x)),
    computations=others,
    header=f"is_scheduled=true{alias}",
  )
