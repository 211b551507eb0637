# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Rates in a cluster file that are likely of another unit.

Networks are sold in Gbit/s and memory in TB/s, and files have 1e9 bytes per
second. Such a slip passes every other rule, and all predictions follow it.
"""

from __future__ import annotations

from collections.abc import Iterator

# Gbit/s in place of GB/s is eight times too much, and TB/s a thousandth. No two
# known GPUs' own networks are as far apart.
_MOST_TIMES = 7.5
_LEAST_TIMES = 1 / 500


def rates(given: object, base: object, name: str = "") -> Iterator[str]:
  """What to say of rates that are far off those of the known GPU.

  Args:
    given: what a file says, object by object.
    base: the same of the GPU that it starts from.
    name: where both stand in the file.
  """
  if isinstance(given, dict) and isinstance(base, dict):
    for key in given:
      if key in base:
        where = f"{name}.{key}" if name else key
        yield from rates(given[key], base[key], where)
    return
  numbers = isinstance(given, (int, float)) and isinstance(base, (int, float))
  if not (name.endswith("_gbps") and numbers):
    return
  times = given / base
  if not _LEAST_TIMES < times < _MOST_TIMES:
    yield (
      f"{name} is {given:,g}, where this GPU's usual figure is {base:,g}: it is"
      " in 1e9 bytes per second, an eighth of Gbit/s and a thousand times TB/s."
    )
