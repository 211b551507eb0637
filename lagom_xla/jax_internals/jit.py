# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""What jit does with a signature that it has not seen, and another answer.

That is to run another executable: how C++ calls one, and what it returns.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
from jax._src.lib import _jax

from lagom_xla import errors


def jit_internals(jitted: Any) -> tuple[Any, Callable[..., Any]]:
  """The jit arguments of a jitted function, and its own cache miss.

  Raises:
    UnsupportedError: it is not a function of `jax.jit`, or jit has changed.
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
  """Whether a transformation such as `jax.grad` is going on."""
  from jax._src import core

  return not core.trace_state_clean()


def jit_with(jitted: Any, info: Any, cache_miss: Callable[..., Any]) -> Any:
  """A function of jit's own type, with a cache that it shares with no other.

  Raises:
    UnsupportedError: jit has changed.
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
