# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""A jitted step that runs what is chosen for it, or else as jit would run it.

What goes wrong in choosing costs one warning; only NCCL settings that differ
between processes are an error. Errors of the step itself are the caller's.
"""

from __future__ import annotations

from collections.abc import Callable
import functools
from typing import Any
import warnings

import jax

from lagom_xla import errors
from lagom_xla.compile import dispatch


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
  if not callable(getattr(jitted_step, "lower", None)):
    raise TypeError(
      f"{by} takes what jax.jit returns, not {jitted_step!r}: wrap the step in"
      " jax.jit first."
    )
  chooser = _Chooser(choose, by, name(jitted_step))
  try:
    return dispatch.per_signature(jitted_step, chooser.choose)
  except errors.UnsupportedError as error:
    # The caller is above this, `wrap` and the decorator.
    chooser.warn(str(error), stacklevel=4)
    return _unchanged(jitted_step)


def name(jitted_step: Any) -> str:
  """What to call a step in messages."""
  return getattr(jitted_step, "__name__", type(jitted_step).__name__)


class _Chooser:
  """Chooses executables, and warns once where it cannot."""

  def __init__(self, choose: dispatch.Choose, by: str, step_name: str):
    self._choose = choose
    self._by = by
    self._step_name = step_name
    self._has_warned = False

  def choose(self, lowered: jax.stages.Lowered) -> jax.stages.Compiled | None:
    """What is chosen; None, with a warning, where that fails."""
    try:
      return self._choose(lowered)
    except errors.SettingsDifferError:
      raise  # The step as it was would wait forever.
    except Exception as error:  # The step must run, whatever went wrong.
      # The caller is above this, dispatch and the call of the step.
      self.warn(_describe(error), stacklevel=4)
      return None

  def warn(self, reason: str, *, stacklevel: int) -> None:
    """Warns, the first time."""
    if self._has_warned:
      return
    self._has_warned = True
    warnings.warn(
      f"{self._by} leaves {self._step_name} as it was: {reason}",
      RuntimeWarning,
      stacklevel=stacklevel,
    )


def _unchanged(jitted_step: Any) -> Any:
  """The step in a function of its own, which can have attributes."""

  @functools.wraps(jitted_step)
  def step(*args: Any, **kwargs: Any) -> Any:
    return jitted_step(*args, **kwargs)

  unchanged: Any = step
  unchanged.lower = jitted_step.lower
  unchanged.trace = getattr(jitted_step, "trace", None)
  return unchanged


def _describe(error: Exception) -> str:
  if isinstance(error, errors.LagomError):
    return str(error)
  return f"{type(error).__name__}: {errors.first_line(error)}"
