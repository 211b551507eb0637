# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Executables of JAX: how C++ calls one, and what it returns."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax


def cache_miss_of(compiled: Any) -> Callable[..., Any] | None:
  """What C++ asks an executable on its first call.

  None where every call goes through Python, as with host callbacks.
  """
  try:
    return compiled._executable.create_cpp_call(compiled._params)._cache_miss
  except AttributeError:
    return None


def input_shardings_of(
  compiled: Any,
) -> Sequence[jax.sharding.Sharding | None] | None:
  """Where an executable takes its arguments, flat; None for those not used.

  None of all where JAX does not tell. The public `input_shardings` makes the
  user's own classes of them, which may take nothing but arrays.
  """
  try:
    return compiled._input_shardings_flat()
  except AttributeError:
    return None


def results_of(compiled: Any) -> Any:
  """Types of what an executable returns, in the step's tree.

  The public `out_info` has layouts, too, and fails where there are tokens, as
  of ordered effects.
  """
  try:
    types = compiled._executable.out_avals
  except AttributeError:
    return compiled.out_info
  return jax.tree.unflatten(compiled.out_tree, types)
