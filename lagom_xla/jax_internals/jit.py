# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Replaces what jit does with a new signature: runs another executable.

Also reads how C++ calls an executable, and its shardings and result types.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
from jax._src.lib import _jax

from lagom_xla import errors


def jit_internals(jitted: Any) -> tuple[Any, Callable[..., Any]]:
  """The jit arguments of a jitted function, and its cache-miss function.

  Raises:
    UnsupportedError: it is not a function of `jax.jit`, or this JAX has other
      internals.
  """
  if not callable(getattr(jitted, "trace", None)):
    raise errors.UnsupportedError(
      "it was made by jax.pmap or the like, but only functions of jax.jit can"
      " be tuned: jit it with shardings, or with jax.shard_map inside"
    )
  try:
    _ = jax.stages.Lowered._lowering
    return jitted._jit_info, jitted._cache_miss
  except AttributeError as error:
    raise _unsupported(jitted, error) from error


def is_transformed() -> bool:
  """Whether a transformation such as `jax.grad` is active."""
  from jax._src import core

  return not core.trace_state_clean()


def jit_with(jitted: Any, info: Any, cache_miss: Callable[..., Any]) -> Any:
  """Makes a function of jit's own type, with a cache of its own.

  Raises:
    UnsupportedError: this JAX has other internals.
  """
  try:
    from jax._src import tree_util
    from jax._src.interpreters import pxla

    return _jax.pjit(
      getattr(jitted, "__name__", "step"),
      jitted._fun,
      cache_miss,
      info.static_argnums,
      info.static_argnames,
      pxla.JitGlobalCppCacheKeys(),
      tree_util.dispatch_registry,
      pxla.cc_shard_arg,
      _jax.PjitFunctionCache(),
    )
  except (ImportError, AttributeError, TypeError) as error:
    raise _unsupported(jitted, error) from error


def _unsupported(jitted: Any, error: Exception) -> errors.UnsupportedError:
  return errors.UnsupportedError(
    f"this lagom_xla does not support a {type(jitted).__name__} of JAX"
    f" {jax.__version__} ({error})"
  )


def cache_miss_of(compiled: Any) -> Callable[..., Any] | None:
  """The function that C++ calls on an executable's first call.

  None if every call goes through Python, as with host callbacks.
  """
  try:
    return compiled._executable.create_cpp_call(compiled._params)._cache_miss
  except AttributeError:
    return None


def input_shardings_of(
  compiled: Any,
) -> Sequence[jax.sharding.Sharding | None] | None:
  """Shardings of an executable's flattened arguments; None for unused ones.

  Returns None if this JAX does not expose them. The public `input_shardings`
  builds the user's pytree classes from them, which may accept only arrays.
  """
  try:
    return compiled._input_shardings_flat()
  except AttributeError:
    return None


def results_of(compiled: Any) -> Any:
  """Types of an executable's results, in the step's output tree.

  The public `out_info` also has layouts, and fails on tokens, such as those of
  ordered effects.
  """
  try:
    types = compiled._executable.out_avals
  except AttributeError:
    return compiled.out_info
  return jax.tree.unflatten(compiled.out_tree, types)
