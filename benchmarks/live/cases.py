# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Cases: train steps of users, each over two links."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
import dataclasses
import functools

import jax

from benchmarks.live import llama
from benchmarks.live import perceptrons
from benchmarks.live import products
from benchmarks.live import sliced
from benchmarks.live import training


@dataclasses.dataclass(frozen=True, kw_only=True)
class Case:
  """A train step, and what joins the hosts.

  Attributes:
    build: makes the training on these devices.
    rates: of the link, in Mb/s.
  """

  build: Callable[[Sequence[jax.Device]], training.Training]
  rates: tuple[int, ...]


CASES: Mapping[str, Case] = {
  "one all-reduce beside products": Case(
    build=functools.partial(products.build, width=512, num_products=6),
    rates=(200, 1000),
  ),
  "data-parallel MLP": Case(
    build=functools.partial(
      perceptrons.build, num_layers=8, width=512, num_rows=1024
    ),
    rates=(200, 400),
  ),
  "many small gradients": Case(
    build=functools.partial(
      perceptrons.build, num_layers=48, width=64, num_rows=128
    ),
    rates=(200, 1000),
  ),
  "data-parallel Llama": Case(
    build=functools.partial(llama.build, parallel="data"), rates=(200, 400)
  ),
  "tensor-parallel Llama": Case(
    build=functools.partial(llama.build, parallel="model"), rates=(200, 400)
  ),
  "slices of many tokens": Case(
    build=functools.partial(sliced.build, num_tokens=512), rates=(100, 200)
  ),
  "slices of few tokens": Case(
    build=functools.partial(sliced.build, num_tokens=256), rates=(400, 1000)
  ),
}
