# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Costs that a replay asks for: of parts alone, and of two side by side."""

from __future__ import annotations

from collections.abc import Callable
import dataclasses

from lagom_xla.costs import collective as collective_lib
from lagom_xla.costs import contention
from lagom_xla.costs import kernel as kernel_lib
from lagom_xla.passes import collectives as collectives_lib
from lagom_xla.passes import copies as copies_lib
from lagom_xla.passes import kernels as kernels_lib

Beside = Callable[
  [kernel_lib.KernelCost, collective_lib.CollectiveCost], contention.Beside
]


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Costs:
  """What the streams ask for.

  Attributes:
    kernel: cost of a kernel alone.
    collective: cost of a collective alone, as it is configured.
    copy: cost of a copy alone.
    beside: what a kernel and a collective, or a copy, do to each other.
  """

  kernel: Callable[[kernels_lib.Kernel], kernel_lib.KernelCost]
  collective: Callable[
    [collectives_lib.Collective], collective_lib.CollectiveCost
  ]
  copy: Callable[[copies_lib.Copy], collective_lib.CollectiveCost]
  beside: Beside
