# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Steps under Flax's `nnx.jit`: modules outside, `jax.jit` inside.

A step of `nnx.jit` splits its modules into arrays, calls a function of
`jax.jit` with them and puts the results back into the modules. The inner
function is lowered, compiled and tuned; the rest stays Flax's. Nothing here
imports Flax, as a program with such a step already has.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
import contextlib
import functools
import itertools
import sys
from typing import Any

import jax

from lagom_xla import errors

# Types that `nnx.jit` and `nnx.jit_partial` return -> the class in the same
# file that calls an executable that way (flax/nnx/transforms/compilation.py).
_COMPILED_OF = {
  "JitWrapped": "Compiled",
  "SimpleJitWrapped": "SimpleCompiled",
  "SimpleJitPartialWrapped": "SimplePartialCompiled",
}

# Where a module is that `nnx.jit(graph_updates=False)` has split.
_STATE = "__state__"


def is_nnx(step: Any) -> bool:
  """Whether a step is one of `nnx.jit`."""
  kind = type(step)
  return kind.__name__ in _COMPILED_OF and kind.__module__.startswith("flax.")


def lowered_inside(lowered: Any) -> jax.stages.Lowered:
  """The lowered function of `jax.jit` in the result of a step's `lower`.

  Raises:
    TargetError: the step is neither of `jax.jit` nor of `nnx.jit`.
  """
  found = inside(lowered)
  if not isinstance(found, jax.stages.Lowered):
    raise errors.TargetError(
      f"lower() returned a {type(lowered).__name__}: pass a step of jax.jit or"
      " flax.nnx.jit."
    )
  return found


def inside(lowered: Any) -> Any:
  """The lowered function of `jax.jit` in a result of `lower`, or the result."""
  return getattr(lowered, "lowered", lowered)


def paths(lowered: jax.stages.Lowered) -> Sequence[tuple[str, str]]:
  """How JAX's name of each flat argument ends, and its path in the module.

  Both are empty for what is not in a module, or if this Flax does not say.
  """

  def is_split(one: Any) -> bool:
    is_default = hasattr(one, "_graphdef") and hasattr(one, "states")
    return is_default or hasattr(one, _STATE)

  found: list[tuple[str, str]] = []
  for _, one in jax.tree_util.tree_leaves_with_path(
    lowered.args_info, is_leaf=is_split
  ):
    leaves = jax.tree_util.tree_leaves_with_path(one)
    ends = [jax.tree_util.keystr(path) for path, _ in leaves]
    inside: Sequence[str] = ()
    if hasattr(one, "_graphdef"):
      inside = _paths_inside(one)
    elif hasattr(one, _STATE):
      inside = [_path_in_state(path) for path, _ in leaves]
    found += itertools.zip_longest(ends, inside, fillvalue="")
  return found


def _paths_inside(split: Any) -> Sequence[str]:
  """The path of each leaf of a split module; "" for what has none."""
  leaves, tree = jax.tree_util.tree_flatten(split)
  named = [object() for _ in leaves]
  marked, known = tree.unflatten(named), dict[int, str]()
  # Only names for reports depend on it.
  with contextlib.suppress(AttributeError, TypeError, ValueError, KeyError):
    nnx: Any = sys.modules["flax.nnx"]
    module = nnx.merge(marked._graphdef, *marked.states)
    for path, variable in nnx.to_flat_state(nnx.state(module)):
      known[id(variable.get_value())] = "".join(map(_key, path))
  return [known.get(id(one), "") for one in named]


def _path_in_state(path: Sequence[Any]) -> str:
  """The path in a module of what is at JAX's path in its state."""
  _, *keys = (
    getattr(key, "name", getattr(key, "key", getattr(key, "idx", "")))
    for key in path
  )
  return "".join(map(_key, keys)).removesuffix(".value")


def _key(key: str | int) -> str:
  return f".{key}" if isinstance(key, str) else f"[{key}]"


def with_jitted(
  step: Any, replace: Callable[[Any], Callable[..., Any]]
) -> Callable[..., Any]:
  """A function like a step of `nnx.jit` with another function inside.

  `replace` makes it from the function of `jax.jit` inside.

  Raises:
    UnsupportedError: this Flax keeps that function elsewhere.
  """
  kind = type(step)
  try:
    jitted = step.jitted_fn
    compiled = getattr(
      sys.modules[kind.__module__], _COMPILED_OF[kind.__name__]
    )
  except (AttributeError, KeyError) as error:
    raise errors.UnsupportedError(
      f"this lagom_xla does not support the {kind.__name__} of this Flax"
      f" ({error})"
    ) from error
  call = compiled(replace(jitted), step)

  @functools.wraps(step.fun)
  def like_step(*args: Any, **kwargs: Any) -> Any:
    return call(*args, **kwargs)

  like: Any = like_step
  for name in ("lower", "trace", "eval_shape"):
    setattr(like, name, getattr(step, name))
  return like
