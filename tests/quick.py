# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Compiles for CPUs that take less time than the few steps that they are for.

XLA makes the same of a program at each level: what is compared here, bits or
numbers within bounds, comes from programs that were compiled alike.
"""

from __future__ import annotations

from collections.abc import Iterator
import contextlib

import jax


@contextlib.contextmanager
def compiles() -> Iterator[None]:
  """JAX compiles without most of LLVM's optimizations."""
  jax.config.update("jax_disable_most_optimizations", True)
  try:
    yield
  finally:
    jax.config.update("jax_disable_most_optimizations", False)
