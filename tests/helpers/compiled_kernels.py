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

Analyze = Callable[..., overlap.Analysis]
Compile = Callable[..., tuple[kernels.Kernel, ...]]


def analyzing(
  devices: Sequence[jax.Device], scheduled: Callable[..., hlo.Module]
) -> Analyze:
  """What compiles a function of bf16 arrays and analyzes its module."""
  everywhere = NamedSharding(Mesh(devices, ("x",)), PartitionSpec())

  def analysis_of(
    fn: Callable[..., object], *shapes: tuple[int, ...], **options: bool
  ) -> overlap.Analysis:
    args = [
      jax.ShapeDtypeStruct(shape, jnp.bfloat16, sharding=everywhere)
      for shape in shapes
    ]
    return overlap.analyze(scheduled(jax.jit(fn).lower(*args), **options))

  return analysis_of


def compiling(
  devices: Sequence[jax.Device], scheduled: Callable[..., hlo.Module]
) -> Compile:
  """What compiles a function of bf16 arrays and returns its kernels."""
  analysis_of = analyzing(devices, scheduled)

  def kernels_of(
    fn: Callable[..., object], *shapes: tuple[int, ...], **options: bool
  ) -> tuple[kernels.Kernel, ...]:
    return tuple(analysis_of(fn, *shapes, **options).kernels.values())

  return kernels_of


def of_module(module: hlo.Module) -> tuple[kernels.Kernel, ...]:
  """All kernels of a module."""
  return tuple(overlap.analyze(module).kernels.values())


def handwritten(body: str, *, computations: str = "") -> kernels.Kernel:
  """The only kernel of a module of handwritten HLO."""
  (kernel,) = of_module(hlo_text.load(body, computations=computations))
  return kernel
