# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""A jitted step whose executable is chosen anew for each signature.

JAX looks up the signature of a call in C++, and asks Python only about those it
has not seen. The step made here is a jitted function of the same kind with
another answer to that question. So a known signature costs what it costs under
jit, and JAX alone decides what a signature is: statics, keyword arguments,
weak types, shardings, configuration contexts.
"""

from __future__ import annotations

from collections.abc import Callable
import functools
import threading
from typing import Any

import jax

from lagom_xla.compile import _jax
from lagom_xla.compile import nnx_step

# The executable to run a signature with; None runs it as jit would.
Choose = Callable[[jax.stages.Lowered], jax.stages.Compiled | None]


def per_signature(jitted: Any, choose: Choose) -> Any:
  """A jitted function like `jitted` that runs what `choose` chooses.

  Tracing is that of `jitted`, and so are the errors it raises; what cannot be
  lowered is left to jit, and so is a call under a transformation such as
  `jax.grad`.

  Args:
    jitted: what `jax.jit` or Flax's `nnx.jit` returned.
    choose: called once for each new lowering, by one thread at a time.
      Signatures that jit would compile only once share a lowering.

  Raises:
    UnsupportedError: not a function of `jax.jit` or `nnx.jit`, or a JAX or a
      Flax that works in another way.
  """
  if nnx_step.is_nnx(jitted):
    return nnx_step.with_jitted(
      jitted, lambda inside: per_signature(inside, choose)
    )
  info, run_as_jitted = _jax.jit_internals(jitted)
  chosen: dict[Any, jax.stages.Compiled | None] = {}
  lock = threading.Lock()

  def run_new_signature(*args: Any, **kwargs: Any) -> tuple[Any, Any, bool]:
    """Returns results, what C++ needs to go on alone, whether to forget it."""
    if _jax.is_transformed() or _has_tracers(args, kwargs):
      return run_as_jitted(*args, **kwargs)
    traced = jitted.trace(*args, **kwargs)
    try:
      lowered = traced.lower()
    except Exception:  # Jit says it better, with nothing traced again.
      return run_as_jitted(*args, **kwargs)
    key = _jax.identity_of(lowered)
    with lock:
      if key not in chosen:
        chosen[key] = choose(lowered)
    compiled = chosen[key]
    if compiled is None:
      return run_as_jitted(*args, **kwargs)
    args, kwargs = _without_statics(args, kwargs, info)
    run_compiled = _jax.cache_miss_of(compiled)
    if run_compiled is None:
      return compiled(*args, **kwargs), None, False
    return run_compiled(*args, **kwargs)

  step = _jax.jit_with(jitted, info, run_new_signature)
  # Brings _fun and _jit_info along, on which lower, trace and eval_shape rest.
  return functools.update_wrapper(step, jitted)


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
