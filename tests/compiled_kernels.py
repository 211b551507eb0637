# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Kernels of modules that tests compile, or write by hand."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp
from jax.sharding import Mesh
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec

import hlo_text
from lagom_xla.passes import hlo
from lagom_xla.passes import kernels
from lagom_xla.passes import overlap

Compile = Callable[..., tuple[kernels.Kernel, ...]]


def compiling(
  devices: Sequence[jax.Device], scheduled: Callable[..., hlo.Module]
) -> Compile:
  """What compiles a function of bf16 arrays and returns its kernels."""
  everywhere = NamedSharding(Mesh(devices, ("x",)), PartitionSpec())

  def kernels_of(
    fn: Callable[..., object], *shapes: tuple[int, ...], **options: bool
  ) -> tuple[kernels.Kernel, ...]:
    args = [
      jax.ShapeDtypeStruct(shape, jnp.bfloat16, sharding=everywhere)
      for shape in shapes
    ]
    return of_module(scheduled(jax.jit(fn).lower(*args), **options))

  return kernels_of


def of_module(module: hlo.Module) -> tuple[kernels.Kernel, ...]:
  """All kernels of a module."""
  return tuple(overlap.analyze(module).kernels.values())


def handwritten(body: str, *, computations: str = "") -> kernels.Kernel:
  """The only kernel of a module of handwritten HLO."""
  (kernel,) = of_module(hlo_text.load(body, computations=computations))
  return kernel
