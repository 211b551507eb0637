# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""A jitted step that runs what is chosen for it, or else as jit would run it.

What goes wrong in choosing costs one warning; only NCCL settings that differ
between processes are an error. Errors of the step itself are the caller's.
"""

from __future__ import annotations

from collections.abc import Callable
import functools
import pathlib
import sys
import types
from typing import Any
import warnings

import jax

from lagom_xla import errors
from lagom_xla.dispatch import dispatch

# Frames that no user wrote: this package, JAX and what calls it.
_OURS = (
  str(pathlib.Path(__file__).parents[1]),
  str(pathlib.Path(jax.__file__).parent),
)
_FLAX = "flax."


class Warner:
  """Warns once of what goes wrong with a step.

  Args:
    by: what the warning names as the one who speaks, called by the user.
    step_name: of the step.
  """

  def __init__(self, by: str, step_name: str):
    self._by = by
    self._step_name = step_name
    self._has_warned = False

  def warn(self, message: str) -> None:
    """Warns, the first time, at the user's line that is being run."""
    if self._has_warned:
      return
    self._has_warned = True
    warn(f"{self._by} {message}")

  def leaves(self, reason: str) -> None:
    """Warns, the first time, that the step stays as it was."""
    self.warn(f"leaves {self._step_name} as it was: {reason}")


def warn(text: str) -> None:
  """Warns at the user's line that is being run."""
  warnings.warn(text, RuntimeWarning, stacklevel=_user_level())


def wrap(
  jitted_step: Callable[..., Any], choose: dispatch.Choose, *, by: str
) -> Any:
  """A jitted function like `jitted_step` that runs what `choose` chooses.

  It can be given attributes.

  Args:
    jitted_step: what `jax.jit` returned.
    choose: see `dispatch.per_signature`; where it raises, the signature runs as
      jit would run it, and the first time a RuntimeWarning says why. Only a
      SettingsDifferError reaches the caller of the step.
    by: what the warning names as the one who chooses, called by the user.

  Raises:
    TypeError: the step is not jitted.
  """
  return supported(
    jitted_step,
    lambda warner: dispatch.per_signature(
      jitted_step, or_as_it_was(choose, warner)
    ),
    by=by,
  )


def supported(
  jitted_step: Callable[..., Any],
  make: Callable[[Warner], Any],
  *,
  by: str,
) -> Any:
  """What `make` makes of a jitted step; the step, with a warning, if it cannot.

  Args:
    jitted_step: what `jax.jit` returned.
    make: takes what it warns with.
    by: what the warning names as the one who makes it, called by the user.

  Raises:
    TypeError: the step is not jitted.
  """
  if not callable(getattr(jitted_step, "lower", None)):
    raise TypeError(
      f"{by} takes what jax.jit returns, not {jitted_step!r}: wrap the step in"
      " jax.jit first."
    )
  warner = Warner(by, name(jitted_step))
  try:
    return make(warner)
  except errors.UnsupportedError as error:
    warner.leaves(str(error))
    return _unchanged(jitted_step)


def is_bound(step: Any) -> bool:
  """Whether a step is a bound method, or a `functools.partial`."""
  return isinstance(step, (types.MethodType, functools.partial))


def bound_alike(step: Any, make: Callable[[Any], Any]) -> Any:
  """What `make` makes of a bound step's function, bound to the same.

  A method has the `lower` of its function, which does not know the object: made
  into something itself, it would be called without.

  Args:
    step: a step that is bound.
    make: takes the function; what it makes lends its attributes.
  """
  if isinstance(step, types.MethodType):
    return types.MethodType(make(step.__func__), step.__self__)
  return _Partial(make(step.func), *step.args, **step.keywords)


class _Partial(functools.partial):
  """Has the attributes of its function, as a bound method has."""

  def __getattr__(self, name: str) -> Any:
    return getattr(self.func, name)


def or_as_it_was(choose: dispatch.Choose, warner: Warner) -> dispatch.Choose:
  """What `choose` chooses; None, with a warning, where that fails."""

  def choose_or_warn(lowered: jax.stages.Lowered) -> Any:
    try:
      return choose(lowered)
    except errors.SettingsDifferError:
      raise  # The step as it was would wait forever.
    except Exception as error:  # The step must run, whatever went wrong.
      warner.leaves(describe(error))
      return None

  return choose_or_warn


def name(jitted_step: Any) -> str:
  """What to call a step in messages."""
  return getattr(jitted_step, "__name__", type(jitted_step).__name__)


def describe(error: Exception) -> str:
  """An error of anybody in a sentence."""
  if isinstance(error, errors.LagomError):
    return str(error)
  return f"{type(error).__name__}: {errors.first_line(error)}"


def _unchanged(jitted_step: Any) -> Any:
  """The step in a function of its own, which can have attributes."""

  @functools.wraps(jitted_step)
  def step(*args: Any, **kwargs: Any) -> Any:
    return jitted_step(*args, **kwargs)

  unchanged: Any = step
  unchanged.lower = jitted_step.lower
  unchanged.trace = getattr(jitted_step, "trace", None)
  return unchanged


def _user_level() -> int:
  """The level of the user's frame, for a warning in the caller of this."""
  level, frame = 1, sys._getframe(1)
  while frame.f_back is not None and _is_ours(frame):
    level, frame = level + 1, frame.f_back
  return level


def _is_ours(frame: Any) -> bool:
  module = frame.f_globals.get("__name__", "")
  return module.startswith(_FLAX) or frame.f_code.co_filename.startswith(_OURS)
