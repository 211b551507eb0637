# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""A jitted step whose executable is chosen anew for each signature.

JAX looks up the signature of a call in C++, and asks Python only about those it
has not seen. The step made here is a jitted function of the same kind with
another answer to that question. So a known signature costs what it costs under
jit, and what a signature is stays JAX's affair: statics, keyword arguments,
weak types, shardings, configuration contexts.

JAX has no public way in, so this file holds the private names it takes. They
are those of JAX 0.10.2 to 0.12; a JAX without them gets an `UnsupportedError`.
"""

from __future__ import annotations

from collections.abc import Callable
import functools
import threading
from typing import Any

import jax

from lagom_xla import errors

# The executable to run a signature with; None runs it as jit would.
Choose = Callable[[jax.stages.Lowered], jax.stages.Compiled | None]


def per_signature(jitted: Any, choose: Choose) -> Any:
  """A jitted function like `jitted` that runs what `choose` chooses.

  Tracing is that of `jitted`, and so are the errors it raises; what cannot be
  lowered is left to jit, and so is a call under a transformation such as
  `jax.grad`.

  Args:
    jitted: what `jax.jit` returned.
    choose: called once for each new lowering, by one thread at a time.
      Signatures that jit would compile only once share a lowering.

  Raises:
    UnsupportedError: see there.
  """
  try:
    from jax._src import core

    info = jitted._jit_info
    run_as_jitted = jitted._cache_miss
    trace_state_clean = core.trace_state_clean
    _ = jax.stages.Lowered._lowering
  except (ImportError, AttributeError) as error:
    raise errors.UnsupportedError(_reason(jitted, error)) from error
  chosen: dict[Any, jax.stages.Compiled | None] = {}
  lock = threading.Lock()

  def run_new_signature(*args: Any, **kwargs: Any) -> tuple[Any, Any, bool]:
    """Returns results, what C++ needs to go on alone, whether to forget it."""
    if not trace_state_clean() or _has_tracers(args, kwargs):
      return run_as_jitted(*args, **kwargs)
    traced = jitted.trace(*args, **kwargs)
    try:
      lowered = traced.lower()
    except Exception:  # Jit says it better, with nothing traced again.
      return run_as_jitted(*args, **kwargs)
    key = (lowered._lowering, lowered.in_tree, lowered.out_tree)
    with lock:
      if key not in chosen:
        chosen[key] = choose(lowered)
    compiled = chosen[key]
    if compiled is None:
      return run_as_jitted(*args, **kwargs)
    args, kwargs = _without_statics(args, kwargs, info)
    run_compiled = _cache_miss(compiled)
    if run_compiled is None:
      return compiled(*args, **kwargs), None, False
    return run_compiled(*args, **kwargs)

  try:
    step = _jit_function(jitted, info, run_new_signature)
  except (ImportError, AttributeError, TypeError) as error:
    raise errors.UnsupportedError(_reason(jitted, error)) from error
  # Brings _fun and _jit_info along, on which lower, trace and eval_shape rest.
  return functools.update_wrapper(step, jitted)


def _jit_function(jitted: Any, info: Any, cache_miss: Any) -> Any:
  """A function of jit's own type, with a cache that it shares with no other."""
  from jax._src import tree_util
  from jax._src.interpreters import pxla
  from jax._src.lib import _jax

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


def _cache_miss(compiled: Any) -> Any:
  """What C++ asks an executable on its first call.

  None where every call goes through Python, as with host callbacks.
  """
  try:
    return compiled._executable.create_cpp_call(compiled._params)._cache_miss
  except AttributeError:
    return None


def _has_tracers(args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
  leaves = jax.tree.leaves((args, kwargs))
  return any(isinstance(leaf, jax.core.Tracer) for leaf in leaves)


def _without_statics(
  args: tuple[Any, ...], kwargs: dict[str, Any], info: Any
) -> tuple[tuple[Any, ...], dict[str, Any]]:
  """The arguments that an executable takes."""
  # Negative numbers count from the end, as in jit.
  numbers = {n + len(args) if n < 0 else n for n in info.static_argnums}
  return (
    tuple(arg for index, arg in enumerate(args) if index not in numbers),
    {k: v for k, v in kwargs.items() if k not in info.static_argnames},
  )


def _reason(jitted: Any, error: Exception) -> str:
  return (
    f"a {type(jitted).__name__} under JAX {jax.__version__} does not call its"
    f" executables in the way that this lagom_xla knows ({error})"
  )
