# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""A jitted step that chooses an executable for each signature.

JAX looks up the signature of a call in C++ and asks Python only about new ones.
The step made here is a jitted function of the same kind that answers
differently. So a known signature costs what it costs under jit, and JAX alone
decides what a signature is: static arguments, keyword arguments, weak types,
shardings, configuration contexts.

A failure to choose gives one warning; only NCCL settings that differ between
processes are an error. Errors of the step itself reach the caller.
"""

from __future__ import annotations

from collections.abc import Callable
import dataclasses
import functools
import pathlib
import sys
import threading
import types
from typing import Any
import warnings

import jax

# From JAX 0.11 on, the first import of this adds settings that traces depend
# on, so that jit lowers and compiles every step again. So it is imported ahead
# of any step, not by a pass during training.
import jax.extend.xla

from lagom_xla import errors
from lagom_xla.compile import nnx_step
from lagom_xla.jax_internals import caches
from lagom_xla.jax_internals import jit
from lagom_xla.jax_internals import lowerings

# Returns the executable for a signature; None to run it as jit would.
Choose = Callable[[jax.stages.Lowered], jax.stages.Compiled | None]

# Results, what C++ needs to run the signature without Python, and whether it
# should forget the signature and ask again at the next call.
Answer = tuple[Any, Any, bool]


@dataclasses.dataclass(frozen=True)
class Jitted:
  """A function of `jax.jit`, its jit arguments, and its cache-miss function.

  `run` runs a call with a new signature as jit would, and answers C++.
  """

  function: Any
  info: Any
  run: Callable[..., Answer]

  def like(self, answer: Callable[..., Answer]) -> Any:
    """A function of jit's own type that asks `answer` about new signatures.

    It shares no cache with the original function.
    """
    made = jit.jit_with(self.function, self.info, answer)
    # Copies _fun and _jit_info, too, which lower, trace, eval_shape and the
    # check for NaNs need.
    functools.update_wrapper(made, self.function)
    made.__wrapped__ = self.wrapped
    return made

  @property
  def wrapped(self) -> Any:
    """The function that was jitted."""
    return getattr(self.function, "__wrapped__", self.function)

  def lowered(
    self, args: tuple[Any, ...], kwargs: dict[str, Any]
  ) -> jax.stages.Lowered | None:
    """The step as jit lowers it for a call; None to leave the call to jit.

    None under a transformation, and if lowering fails: jit reports the error
    better, without tracing again.
    """
    if is_transformed(args, kwargs):
      return None
    traced = self.function.trace(*args, **kwargs)
    try:
      return traced.lower()
    except Exception:
      return None

  def run_compiled(
    self,
    compiled: jax.stages.Compiled,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
  ) -> Answer:
    """Runs a call with an executable, and answers C++."""
    args, kwargs = _without_statics(args, kwargs, self.info)
    args, kwargs = _placed(compiled, args, kwargs)
    run = jit.cache_miss_of(compiled)
    if run is None:
      return compiled(*args, **kwargs), None, False
    return run(*args, **kwargs)


def jitted(function: Any) -> Jitted:
  """Reads a function of `jax.jit`, so that it can be run in another way.

  Raises:
    UnsupportedError: it is not a function of `jax.jit`, or this JAX has other
      internals.
  """
  return Jitted(function, *jit.jit_internals(function))


def _per_signature(function: Any, choose: Choose) -> Any:
  """A jitted function like `function` that runs what `choose` chooses.

  It traces like `function`, and raises the same errors. Calls that cannot be
  lowered or are under a transformation are left to jit. `choose` runs once for
  each new lowering, by one thread at a time, and again after
  `jax.clear_caches`.
  """
  if nnx_step.is_nnx(function):
    return nnx_step.with_jitted(
      function, lambda inside: _per_signature(inside, choose)
    )
  as_jitted = jitted(function)
  chosen: dict[Any, jax.stages.Compiled | None] = {}
  clearings = caches.Clearings()
  lock = threading.Lock()

  def answer(*args: Any, **kwargs: Any) -> Answer:
    lowered = as_jitted.lowered(args, kwargs)
    if lowered is None:
      return as_jitted.run(*args, **kwargs)
    key = lowerings.identity_of(lowered)
    with lock:
      if clearings.has_come():
        chosen.clear()  # JAX has dropped them.
      if key not in chosen:
        chosen[key] = choose(lowered)
      compiled = chosen[key]
    if compiled is None:
      return as_jitted.run(*args, **kwargs)
    return as_jitted.run_compiled(compiled, args, kwargs)

  return as_jitted.like(answer)


def is_transformed(args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
  """Whether a call is made under a transformation such as `jax.grad`."""
  leaves = jax.tree.leaves((args, kwargs))
  return jit.is_transformed() or any(
    isinstance(leaf, jax.core.Tracer) for leaf in leaves
  )


def _placed(
  compiled: jax.stages.Compiled, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
  """The arguments, moved to where an executable takes them.

  If its shardings say where an argument belongs, jit moves it there; an
  executable of JAX refuses committed arguments that are elsewhere.
  """
  shardings = jit.input_shardings_of(compiled)
  leaves, tree = jax.tree.flatten((args, kwargs))
  if shardings is None or all(map(_is_in_place, leaves, shardings)):
    return args, kwargs
  placed = [
    leaf if _is_in_place(leaf, sharding) else jax.device_put(leaf, sharding)
    for leaf, sharding in zip(leaves, shardings, strict=True)
  ]
  return jax.tree.unflatten(tree, placed)


def _is_in_place(leaf: Any, sharding: jax.sharding.Sharding | None) -> bool:
  """Whether an executable takes an argument as it is."""
  if sharding is None or not getattr(leaf, "committed", False):
    return True  # It is unused, or JAX may place it anywhere.
  return leaf.sharding.is_equivalent_to(sharding, leaf.ndim)


def _without_statics(
  args: tuple[Any, ...], kwargs: dict[str, Any], info: Any
) -> tuple[tuple[Any, ...], dict[str, Any]]:
  """The arguments without static ones, which an executable does not take."""
  # Negative numbers count from the end, as in jit.
  numbers = {n + len(args) if n < 0 else n for n in info.static_argnums}
  return (
    tuple(arg for index, arg in enumerate(args) if index not in numbers),
    {k: v for k, v in kwargs.items() if k not in info.static_argnames},
  )


# Folders of frames that are not the user's: this package and JAX.
_OURS = (
  str(pathlib.Path(__file__).parent),
  str(pathlib.Path(jax.__file__).parent),
)
_FLAX = "flax."


class Warner:
  """Warns at most once about a step."""

  def __init__(self, by: str, step_name: str):
    self._by = by
    self._step_name = step_name
    self._has_warned = False

  def warn(self, message: str) -> None:
    """Warns, the first time, at the user's line."""
    if self._has_warned:
      return
    self._has_warned = True
    warn(f"{self._by} {message}")

  def leaves(self, reason: str) -> None:
    """Warns, the first time, that the step stays unchanged."""
    self.warn(f"leaves {self._step_name} unchanged: {reason}")


def warn(text: str) -> None:
  """Warns at the line of the user's code that is running."""
  warnings.warn(text, RuntimeWarning, stacklevel=_user_level())


def wrap(jitted_step: Callable[..., Any], choose: Choose, *, by: str) -> Any:
  """A jitted function like `jitted_step` that runs what `choose` chooses.

  `choose` is called once per lowering; signatures that jit would compile only
  once share one. If it raises, the signature runs as jit would run it, and the
  first time a RuntimeWarning says why, in the name of `by`. Only a
  SettingsDifferError reaches the caller of the step.

  Raises:
    TypeError: the step is not jitted.
  """

  def make(warner: Warner) -> Any:
    def choose_or_warn(lowered: jax.stages.Lowered) -> Any:
      try:
        return choose(lowered)
      except errors.SettingsDifferError:
        raise  # The unchanged step would wait forever.
      except Exception as error:  # The step must run, whatever went wrong.
        warner.leaves(describe(error))
        return None

    return _per_signature(jitted_step, choose_or_warn)

  return supported(jitted_step, make, by=by)


def supported(
  jitted_step: Callable[..., Any],
  make: Callable[[Warner], Any],
  *,
  by: str,
) -> Any:
  """Returns the result of `make`, or the unchanged step with a warning.

  `make` gets a `Warner`, which warns in the name of `by`. If it raises an
  UnsupportedError, the step stays unchanged.

  Raises:
    TypeError: the step is not jitted.
  """
  if not callable(getattr(jitted_step, "lower", None)):
    raise TypeError(
      f"{by} takes a function of jax.jit, not {jitted_step!r}: wrap the step in"
      " jax.jit first."
    )
  warner = Warner(by, name_of(jitted_step))
  try:
    return make(warner)
  except errors.UnsupportedError as error:
    warner.leaves(str(error))
    return _unchanged(jitted_step)


def is_bound(step: Any) -> bool:
  """Whether a step is a bound method, or a `functools.partial`."""
  return isinstance(step, (types.MethodType, functools.partial))


def bound_alike(step: Any, make: Callable[[Any], Any]) -> Any:
  """Applies `make` to a bound step's function, and binds the result alike.

  A method's `lower` is that of its function, which does not know the object:
  a method wrapped directly would be called without it.
  """
  if isinstance(step, types.MethodType):
    return types.MethodType(make(step.__func__), step.__self__)
  return _Partial(make(step.func), *step.args, **step.keywords)


class _Partial(functools.partial):
  """A partial with the attributes of its function, as a bound method has."""

  def __getattr__(self, name: str) -> Any:
    return getattr(self.func, name)


def name_of(jitted_step: Any) -> str:
  """A step's name in messages."""
  return getattr(jitted_step, "__name__", type(jitted_step).__name__)


def describe(error: Exception) -> str:
  """Any error as a sentence."""
  if isinstance(error, errors.LagomError):
    return str(error)
  return f"{type(error).__name__}: {errors.first_line(error)}"


def _unchanged(jitted_step: Any) -> Any:
  """The step wrapped in a function, which can have attributes."""

  @functools.wraps(jitted_step)
  def step(*args: Any, **kwargs: Any) -> Any:
    return jitted_step(*args, **kwargs)

  unchanged: Any = step
  unchanged.lower = jitted_step.lower
  unchanged.trace = getattr(jitted_step, "trace", None)
  return unchanged


def _user_level() -> int:
  """The stack level of the user's frame, for a warning by the caller."""
  level, frame = 1, sys._getframe(1)
  while frame.f_back is not None and _is_ours(frame):
    level, frame = level + 1, frame.f_back
  return level


def _is_ours(frame: Any) -> bool:
  module = frame.f_globals.get("__name__", "")
  return module.startswith(_FLAX) or frame.f_code.co_filename.startswith(_OURS)
