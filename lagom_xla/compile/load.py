# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Targets as they are named on the command line.

    step.hlo.xz              an HLO module; an optimized one is only read
    train.py:train_step      a function that, given the cluster's devices,
                             returns (jitted step, its arguments)
    train.py:step            a jitted step, beside a `step_args(devices)` that
                             returns its arguments

Arguments are arrays or `jax.ShapeDtypeStruct`s, sharded over those devices.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
import importlib.util
import inspect
import pathlib
import sys
import types
from typing import Any

import jax

from lagom_xla import cluster as cluster_lib
from lagom_xla import errors
from lagom_xla.compile import _jax
from lagom_xla.compile import devices as devices_lib
from lagom_xla.compile import nnx_step
from lagom_xla.compile import target as target_lib
from lagom_xla.passes import hlo


def load(
  text: str,
  cluster: cluster_lib.Cluster,
  *,
  arguments: Mapping[str, str] | None = None,
) -> target_lib.Target:
  """Loads a target named on the command line.

  Args:
    text: see the module's docstring.
    cluster: what to compile it for.
    arguments: more keyword arguments for the Python function.

  Raises:
    TargetError: there is no such target, or it does not give a jitted step.
    HloError: the HLO file cannot be read.
  """
  path, _, function = text.rpartition(":")
  if function and path.endswith(".py"):
    return _from_python(text, path, function, cluster, dict(arguments or {}))
  if text.endswith((".py", ".py:")):
    raise errors.TargetError(
      f"{text} names a file but no function: say"
      f" {text.removesuffix(':')}:FUNCTION."
    )
  if arguments:
    raise errors.TargetError(f"{text} is an HLO module and takes no --arg.")
  return target_lib.of_module(hlo.load(pathlib.Path(text)), cluster, name=text)


def _from_python(
  text: str,
  path: str,
  function: str,
  cluster: cluster_lib.Cluster,
  arguments: dict[str, str],
) -> target_lib.Target:
  file = pathlib.Path(path)
  if not file.is_file():
    raise errors.TargetError(f"There is no file {path}.")
  module = _import(file)
  found = getattr(module, function, None)
  if found is None:
    raise errors.TargetError(f"{path} defines no {function}.")
  devices = devices_lib.devices(cluster)
  try:
    step, args = _step_and_args(text, module, function, devices, arguments)
    lowered = nnx_step.lowered_inside(step.lower(*args))
  except (errors.TargetError, errors.CompileError):
    raise
  except (Exception, SystemExit) as error:
    raise errors.TargetError(
      f"{text} raised {_describe(error, file)}"
    ) from error
  if _jax.client_of(lowered) is not devices[0].client:
    raise errors.TargetError(
      f"{text} has arguments that are not on the devices of {cluster.name}:"
      " shard them over the `devices` that its function gets."
    )
  return target_lib.of_step(lowered, cluster, name=text)


def _import(file: pathlib.Path) -> types.ModuleType:
  """Imports a file as Python would run it: beside its siblings."""
  sys.path.insert(0, str(file.parent.resolve()))
  name = f"lagom_xla_target_{file.stem}"
  spec = importlib.util.spec_from_file_location(name, file)
  assert spec is not None and spec.loader is not None
  module = importlib.util.module_from_spec(spec)
  sys.modules[name] = module
  try:
    spec.loader.exec_module(module)
  except (Exception, SystemExit) as error:
    raise errors.TargetError(
      f"{file} cannot be imported: {_describe(error, file)}"
    ) from error
  return module


def _step_and_args(
  text: str,
  module: types.ModuleType,
  function: str,
  devices: Sequence[jax.Device],
  arguments: dict[str, str],
) -> tuple[Any, tuple[Any, ...]]:
  found = getattr(module, function)
  if _is_jitted(found):
    make_args = getattr(module, f"{function}_args", None)
    if make_args is None:
      raise errors.TargetError(
        f"{text} is jitted, but its arguments are not known: define"
        f" {function}_args(devices) beside it, which returns a tuple of"
        " arrays or jax.ShapeDtypeStructs sharded over those devices."
      )
    args = _call(make_args, devices, arguments)
    return found, _as_tuple(f"{text}_args", args)
  _check_takes_devices(text, found)
  returned = _call(found, devices, arguments)
  if not (isinstance(returned, tuple) and len(returned) == 2):
    raise errors.TargetError(
      f"{text} returned a {type(returned).__name__}; it must return"
      " (jitted step, tuple of its arguments)."
    )
  step, args = returned
  if not _is_jitted(step):
    raise errors.TargetError(
      f"{text} returned a step that is not jitted (a"
      f" {type(step).__name__}): wrap it in jax.jit."
    )
  return step, _as_tuple(text, args)


def _as_tuple(text: str, args: Any) -> tuple[Any, ...]:
  # Named tuples are left alone: they are one argument, such as a train state.
  if type(args) not in (tuple, list):
    raise errors.TargetError(
      f"{text} returned its arguments as a {type(args).__name__}: put them in"
      " a tuple, one element per argument of the step."
    )
  return tuple(args)


def _is_jitted(function: Any) -> bool:
  return callable(getattr(function, "lower", None))


def _check_takes_devices(text: str, function: Any) -> None:
  """A step that somebody forgot to jit takes no `devices`."""
  if not callable(function):
    raise errors.TargetError(
      f"{text} is of type {type(function).__name__}, not a function."
    )
  first = next(iter(inspect.signature(function).parameters), None)
  if first != "devices":
    raise errors.TargetError(
      f"{text} is not jitted: wrap it in jax.jit, and define"
      f" {text.rpartition(':')[2]}_args(devices) beside it; or make it a"
      " function of `devices` that returns (jitted step, its arguments)."
    )


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


def _describe(error: BaseException, file: pathlib.Path) -> str:
  """An error's type, first line, and innermost line of the user's file."""
  message, line = errors.first_line(error), None
  if isinstance(error, SyntaxError):
    message, line = error.msg, error.lineno
  trace = error.__traceback__
  while trace is not None:
    if pathlib.Path(trace.tb_frame.f_code.co_filename).name == file.name:
      line = trace.tb_lineno
    trace = trace.tb_next
  place = f"{file}:{line}" if line else str(file)
  return f"{type(error).__name__}: {message} ({place})"
