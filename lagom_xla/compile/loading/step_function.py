# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Step functions: what a name in the user's program stands for, called.

A jitted step has its arguments from the function `NAME_args` beside it. Any
other function takes the cluster's devices and gives a step with its arguments
(a tuple, and behind it a dict of those that the step takes by name), or a
context manager that yields them (a mesh, axis rules: what has to be around the
step while it is traced), or whatever has a `lower()` without arguments.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
import contextlib
import dataclasses
import functools
import inspect
import types
from typing import Any

import jax

from lagom_xla import errors
from lagom_xla.compile.loading import bound
from lagom_xla.compile.lowering import nnx_step


@dataclasses.dataclass(frozen=True, kw_only=True)
class Step:
  """A step with its arguments.

  Attributes:
    lower: lowers it.
    trace: traces it, to be lowered for another platform; None if it cannot be.
  """

  lower: Callable[[], Any]
  trace: Callable[[], Any] | None


@dataclasses.dataclass(frozen=True)
class StepFunction:
  """A function or a jitted step in the user's program.

  Attributes:
    text: what the user calls it.
    module: where it is.
    name: its name there.
    arguments: more keyword arguments for it.
  """

  text: str
  module: types.ModuleType
  name: str
  arguments: dict[str, str]

  @contextlib.contextmanager
  def step(self, devices: Sequence[jax.Device]) -> Iterator[Step]:
    """The step for these devices, in the context that it is lowered in.

    Raises:
      TargetError: the function gives no step.
    """
    found = getattr(self.module, self.name)
    if _is_jitted(bound.of(found).step):
      yield _with_args(found, self._args_beside(devices), {})
      return
    _check_takes_devices(self.text, found, self.arguments)
    returned = _call(found, devices, self.arguments)
    if isinstance(returned, contextlib.AbstractContextManager):
      with returned as yielded:
        yield _step(self.text, yielded)
    else:
      yield _step(self.text, returned)

  def _args_beside(self, devices: Sequence[jax.Device]) -> tuple[Any, ...]:
    make_args = getattr(self.module, f"{self.name}_args", None)
    if make_args is None:
      raise errors.TargetError(
        f"{self.text} is jitted, but its arguments are not known: define"
        f" {self.name}_args(devices) beside it, which returns a tuple of"
        " arrays or jax.ShapeDtypeStructs sharded over those devices."
      )
    args = _call(make_args, devices, self.arguments)
    return _as_tuple(f"{self.text}_args", args)


def _step(text: str, returned: Any) -> Step:
  if isinstance(returned, tuple) and len(returned) in (2, 3):
    step, args, kwargs = (*returned, {})[:3]
    _check_is_jitted(text, step)
    args = _as_tuple(text, args)
    if not isinstance(kwargs, dict):
      raise errors.TargetError(
        f"{text} returned a {type(kwargs).__name__} behind its arguments: put"
        " all of those that have no name in one tuple, and those that have one"
        " in a dict behind it."
      )
    return _with_args(step, args, kwargs)
  if isinstance(nnx_step.inside(returned), jax.stages.Lowered):
    return Step(lower=lambda: returned, trace=None)
  if _is_jitted(returned) and not _takes_arguments(returned.lower):
    return Step(lower=returned.lower, trace=None)
  if isinstance(returned, types.GeneratorType):
    raise errors.TargetError(
      f"{text} is a generator: decorate it with contextlib.contextmanager."
    )
  raise errors.TargetError(
    f"{text} returned a {type(returned).__name__}; it must return"
    " (jitted step, tuple of its arguments), or a context manager that yields"
    " them, or an object whose lower() takes no arguments."
  )


def _check_is_jitted(text: str, step: Any) -> None:
  if isinstance(step, jax.stages.Compiled):
    raise errors.TargetError(
      f"{text} returned a step that is compiled already: return what jax.jit"
      " returned."
    )
  inside = getattr(step, "__wrapped__", None)
  if _is_jitted(inside) and not _is_jitted(step):
    raise errors.TargetError(
      f"{text} returned a function around a jitted step: return the step"
      " itself, with all of its arguments."
    )
  if not _is_jitted(bound.of(step).step):
    raise errors.TargetError(
      f"{text} returned a step that is not jitted (a"
      f" {type(step).__name__}): wrap it in jax.jit."
    )


def _with_args(
  step: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Step:
  whole = bound.of(step)
  args, kwargs = whole.args + args, {**whole.kwargs, **kwargs}
  trace = getattr(whole.step, "trace", None)
  return Step(
    lower=functools.partial(whole.step.lower, *args, **kwargs),
    trace=functools.partial(trace, *args, **kwargs) if trace else None,
  )


def _is_jitted(function: Any) -> bool:
  # A class whose instances have a `lower` is a function that returns one.
  is_class = isinstance(function, type)
  return not is_class and callable(getattr(function, "lower", None))


def _takes_arguments(function: Callable[..., Any]) -> bool:
  # A jitted step's own `lower` takes any.
  kinds = inspect.Parameter
  return any(
    parameter.kind is kinds.VAR_POSITIONAL or _is_required(parameter)
    for parameter in inspect.signature(function).parameters.values()
  )


def _is_required(parameter: inspect.Parameter) -> bool:
  is_variadic = parameter.kind in (
    inspect.Parameter.VAR_POSITIONAL,
    inspect.Parameter.VAR_KEYWORD,
  )
  return not is_variadic and parameter.default is inspect.Parameter.empty


def _check_takes_devices(
  text: str, function: Any, arguments: Collection[str]
) -> None:
  """A step that somebody forgot to jit takes something else."""
  if not callable(function):
    raise errors.TargetError(
      f"{text} is of type {type(function).__name__}, not a function."
    )
  positional = [
    parameter
    for parameter in inspect.signature(function).parameters.values()
    if parameter.kind is not parameter.KEYWORD_ONLY
  ]
  missing = [
    parameter.name
    for parameter in positional[1:]
    if _is_required(parameter) and parameter.name not in arguments
  ]
  if missing or not positional:
    given = "".join(f" --arg={name}=VALUE" for name in missing)
    raise errors.TargetError(
      f"{text} is not jitted: wrap it in jax.jit, and define"
      f" {text.rpartition(':')[2]}_args(devices) beside it; or make it a"
      " function of the devices alone that returns (jitted step, its"
      f" arguments){', or say what else it takes:' if given else ''}{given}."
    )


def _as_tuple(text: str, args: Any) -> tuple[Any, ...]:
  # Named tuples are left alone: they are one argument, such as a train state.
  if type(args) not in (tuple, list):
    raise errors.TargetError(
      f"{text} returned its arguments as a {type(args).__name__}: put them in"
      " a tuple, one element per argument of the step."
    )
  return tuple(args)


def _call(
  function: Callable[..., Any],
  devices: Sequence[jax.Device],
  arguments: dict[str, str],
) -> Any:
  others = list(inspect.signature(function).parameters.values())[1:]
  known = [p.name for p in others if p.kind is not p.VAR_KEYWORD]
  for name in arguments:
    if name not in known and len(known) == len(others):
      raise errors.TargetError(
        f"--arg={name}: {function.__name__} takes no {name}; it takes"
        f" {', '.join(known) or 'none'}."
      )
  return function(devices, **arguments)
