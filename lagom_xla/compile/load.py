# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Loads targets that are named on the command line.

    step.hlo.xz              an HLO module; optimized ones are only read
    train.py:train_step      a function that, given the cluster's devices,
                             returns (jitted step, its arguments), and a
                             dict of keyword arguments if the step has some
    train.py:step            a jitted step, beside a `step_args(devices)` that
                             returns its arguments
    package.module:step      either, in a module that can be imported

Arguments are arrays or `jax.ShapeDtypeStruct`s, sharded over those devices. A
function may also return a context manager that yields (step, arguments), inside
which the step is lowered (for a mesh or axis rules that tracing needs), or an
object whose `lower()` takes no arguments.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
import contextlib
import ctypes
import dataclasses
import functools
import gc
import inspect
import pathlib
import types
from typing import Any
import warnings

import jax

from lagom_xla import cluster as cluster_lib
from lagom_xla import errors
from lagom_xla.compile import devices as devices_lib
from lagom_xla.compile import nnx_step
from lagom_xla.compile import source
from lagom_xla.compile import target as target_lib
from lagom_xla.compile import unoptimized
from lagom_xla.jax_internals import lowerings
from lagom_xla.jax_internals import request as request_lib
from lagom_xla.jax_internals import shapes
from lagom_xla.passes import hlo

# Suffixes of file names in a folder of dumps, best first: only the first can be
# tuned.
_ENDS = (
  "before_optimizations",
  "after_spmd_partitioner",
  "after_optimizations",
)
# Lines of a program that a warning names.
_MOST_PLACES = 3


def load(
  text: str,
  cluster: cluster_lib.Cluster,
  *,
  arguments: Mapping[str, str] | None = None,
) -> target_lib.Target:
  """Loads a target named on the command line, to be compiled for a cluster.

  `arguments` are more keyword arguments for the Python function.

  Raises:
    TargetError: there is no such target, or it returns no jitted step.
    HloError: the HLO file cannot be read.
  """
  place, _, function = text.rpartition(":")
  is_file = place.endswith(".py")
  if is_python(text):
    devices_lib.stand_in_with_cpus(cluster)
    source.leave_out_own_frames()

    def loaded() -> target_lib.Target:
      file = pathlib.Path(place) if is_file else None
      module = source.of_file(file) if file else source.of_module(place)
      if not hasattr(module, function):
        raise errors.TargetError(f"{place} defines no {function}.")
      found = _StepFunction(text, module, function, dict(arguments or {}))
      return _from_python(found, file, cluster, lost)

    with (
      lowerings.lost_memory_kinds() as lost,
      lowerings.platform_told() as told,
    ):
      try:
        target = loaded()
      except errors.LagomError as error:
        if not told.places:
          raise
        # It may use GPUs, which are not here.
        told.answer = "cpu"
        target = loaded()
        _warn_of_platform(told.places, error)
    _give_back_memory()
    return target
  if text.endswith((".py", ".py:")):
    raise errors.TargetError(
      f"{text} names a file but no function: write"
      f" {text.removesuffix(':')}:FUNCTION."
    )
  if arguments:
    raise errors.TargetError(f"{text} is an HLO module and takes no --arg.")
  return target_lib.of_module(_module(pathlib.Path(text)), cluster, name=text)


def _module(file: pathlib.Path) -> hlo.Module:
  if not file.is_dir():
    return hlo.load_apart(file)
  modules = [p for p in file.iterdir() if p.is_file()]
  for end in _ENDS:
    found = [
      p for p in modules if p.name.endswith((f"{end}.txt", f"{end}.hlo.pb"))
    ]
    if found:
      largest = max(found, key=lambda path: (path.stat().st_size, path.name))
      such_as = f", such as {largest}"
      break
  else:
    such_as = ""
  raise errors.HloError(
    f"{file} is a folder: name the file of your step in it{such_as}."
  )


def is_python(text: str) -> bool:
  """Whether the text names a Python target."""
  place, _, function = text.rpartition(":")
  is_module = all(part.isidentifier() for part in place.split("."))
  return bool(function) and (place.endswith(".py") or is_module)


def _unbound(step: Any) -> tuple[Any, tuple[Any, ...], dict[str, Any]]:
  """A step without its binding, and the arguments that it was bound to."""
  if isinstance(step, functools.partial):
    inner, args, kwargs = _unbound(step.func)
    return inner, args + step.args, {**kwargs, **step.keywords}
  if isinstance(step, types.MethodType):
    inner, args, kwargs = _unbound(step.__func__)
    return inner, (*args, step.__self__), kwargs
  return step, (), {}


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Step:
  """A step with its arguments: lowered, or traced for another platform."""

  lower: Callable[[], Any]
  trace: Callable[[], Any] | None = None


@dataclasses.dataclass(frozen=True)
class _StepFunction:
  """A function or a jitted step in the user's module, which `text` names."""

  text: str
  module: types.ModuleType
  name: str
  arguments: dict[str, str]

  @contextlib.contextmanager
  def step(self, devices: Sequence[jax.Device]) -> Iterator[_Step]:
    """The step for these devices, in the context to lower it in."""
    found = getattr(self.module, self.name)
    if _is_jitted(_unbound(found)[0]):
      yield _with_args(found, self._args_beside(devices), {})
      return
    returned = _call(self.text, found, devices, self.arguments)
    if isinstance(returned, contextlib.AbstractContextManager):
      with returned as yielded:
        yield _step(self.text, yielded)
    else:
      yield _step(self.text, returned)

  def _args_beside(self, devices: Sequence[jax.Device]) -> tuple[Any, ...]:
    make_args = getattr(self.module, f"{self.name}_args", None)
    if make_args is None:
      raise errors.TargetError(
        f"{self.text} is jitted, but its arguments are unknown: define"
        f" {self.name}_args(devices) in the same module, returning a tuple of"
        " arrays or jax.ShapeDtypeStructs sharded over those devices."
      )
    text = f"{self.text}_args"
    return _as_tuple(text, _call(text, make_args, devices, self.arguments))


def _step(text: str, returned: Any) -> _Step:
  if isinstance(returned, tuple) and len(returned) in (2, 3):
    step, args, kwargs = (*returned, {})[:3]
    if not _is_jitted(_unbound(step)[0]) or isinstance(
      step, jax.stages.Compiled
    ):
      raise errors.TargetError(
        f"{text} returned a step that is not jitted (a {type(step).__name__}):"
        " return what jax.jit returned, with all of its arguments."
      )
    args = _as_tuple(text, args)
    if not isinstance(kwargs, dict):
      raise errors.TargetError(
        f"{text} returned a {type(kwargs).__name__} after its arguments: put"
        " positional arguments in a tuple and keyword arguments in a dict after"
        " it."
      )
    return _with_args(step, args, kwargs)
  if isinstance(nnx_step.inside(returned), jax.stages.Lowered):
    return _Step(lower=lambda: returned)
  if _is_jitted(returned) and not _takes_arguments(returned.lower):
    return _Step(lower=returned.lower)
  raise errors.TargetError(
    f"{text} returned a {type(returned).__name__}; it must return"
    " (jitted step, tuple of its arguments), or a context manager that yields"
    " them (made with contextlib.contextmanager), or an object whose lower()"
    " takes no arguments."
  )


def _with_args(
  step: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> _Step:
  step, bound, by_name = _unbound(step)
  args, kwargs = bound + args, {**by_name, **kwargs}
  if not isinstance(step, jax.stages.Wrapped):
    args, kwargs = _named(step, args, kwargs)
  trace = getattr(step, "trace", None)
  return _Step(
    lower=functools.partial(step.lower, *args, **kwargs),
    trace=functools.partial(trace, *args, **kwargs) if trace else None,
  )


def _named(
  step: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
  """Arguments for a step that filters them, with the user's names."""
  try:
    parameters = [*inspect.signature(step).parameters]
  except (TypeError, ValueError):
    parameters = []

  def named(path: tuple[Any, ...], leaf: Any) -> Any:
    _, first, *rest = path
    number = getattr(first, "idx", None)
    if number is None:
      name = first.key
    elif number < len(parameters):
      name = parameters[number]
    else:
      name = f"args[{number}]"
    return shapes.named(f"{name}{jax.tree_util.keystr(tuple(rest))}", leaf)

  return jax.tree_util.tree_map_with_path(named, (args, kwargs))


def _is_jitted(function: Any) -> bool:
  # A class whose instances have `lower` counts as a function that makes a step.
  is_class = isinstance(function, type)
  return not is_class and callable(getattr(function, "lower", None))


def _takes_arguments(function: Callable[..., Any]) -> bool:
  # The `lower` of a jitted step takes any arguments.
  return any(
    parameter.default is parameter.empty
    and parameter.kind is not parameter.VAR_KEYWORD
    for parameter in inspect.signature(function).parameters.values()
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
  text: str,
  function: Callable[..., Any],
  devices: Sequence[jax.Device],
  arguments: dict[str, str],
) -> Any:
  if not callable(function):
    raise errors.TargetError(
      f"{text} is of type {type(function).__name__}, not a function."
    )
  try:
    inspect.signature(function).bind(devices, **arguments)
  except TypeError as error:
    # It may also be a step that is not jitted.
    name = text.rpartition(":")[2].removesuffix("_args")
    given = "".join(f" and --arg={name}" for name in arguments) or " alone"
    raise errors.TargetError(
      f"{text} cannot be called with the devices{given}: {error}. If it is the"
      " step, wrap it in jax.jit and define"
      f" {name}_args(devices) in the same module. If it takes the devices and"
      " returns (jitted step, its arguments), pass its other arguments with"
      " --arg=NAME=VALUE."
    ) from error
  return function(devices, **arguments)


def _from_python(
  found: _StepFunction,
  file: pathlib.Path | None,
  cluster: cluster_lib.Cluster,
  lost_kinds: Collection[str],
) -> target_lib.Target:
  devices = devices_lib.devices(cluster)
  try:
    with lowerings.without_callbacks():
      target = _lowered(found, devices, devices, cluster)
      if lost_kinds:
        return _on_cpus(found, devices, cluster, lost_kinds)
      return target
  except (errors.TargetError, errors.CompileError):
    raise
  except (Exception, SystemExit) as error:
    what = source.described(error, file, getattr(found.module, found.name))
    raise errors.TargetError(f"{found.text} raised {what}") from error


def _lowered(
  function: _StepFunction,
  step_devices: Sequence[jax.Device],
  devices: Sequence[jax.Device],
  cluster: cluster_lib.Cluster,
) -> target_lib.Target:
  """The target, lowered in its own context.

  A step sharded over CPUs, one per GPU, such as by a mesh made at import, is
  lowered for GPUs without devices: to HLO, which XLA partitions.
  """
  with function.step(step_devices) as step:
    with shapes.asked() as names:
      lowered = nnx_step.lowered_inside(step.lower())
    client = lowerings.client_of(lowered)
    num_devices = target_lib.num_devices(lowered)
    if client is devices[0].client:
      return target_lib.of_step(
        lowered, cluster, name=function.text, names=tuple(names)
      )
    if step.trace and num_devices == cluster.num_devices:
      for_gpus = step.trace().lower(lowering_platforms=("cuda",))
      lowered = nnx_step.lowered_inside(for_gpus)
      module = hlo.load(lowerings.serialized_hlo(lowered))
      program: Any = lowered.compiler_ir("stablehlo")
      unoptimized.into_hlo(program, module)
      return target_lib.of_module(
        module,
        cluster,
        name=function.text,
        jit_options=request_lib.jit_options(lowered),
      )
  problem = (
    f"{function.text} has arguments that are not on the devices of"
    f" {cluster.name}: shard them over the `devices` that the function gets"
  )
  if num_devices not in (1, cluster.num_devices):
    problem += (
      f"; they span {num_devices:,} devices, but a mesh made at import must"
      f" span all {cluster.num_devices:,} of jax.devices()"
    )
  if not step.trace:
    problem += "; pass them to jax.pmap with devices=devices"
  raise errors.TargetError(f"{problem}.")


def _on_cpus(
  found: _StepFunction,
  devices: Sequence[jax.Device],
  cluster: cluster_lib.Cluster,
  lost_kinds: Collection[str],
) -> target_lib.Target:
  """The target, lowered over CPUs, which have its shardings' memory kinds."""
  kinds = " and ".join(sorted(lost_kinds))
  try:
    cpus = jax.devices("cpu")[: cluster.num_devices]
    target = _lowered(found, cpus, devices, cluster)
  except errors.TargetError as error:
    raise errors.TargetError(
      f"{found.text} puts arrays into {kinds}, which JAX drops for devices that"
      " are not here: return (step of jax.jit or nnx.jit, tuple of its"
      " arguments), which can be lowered over CPUs, or name a dump of it."
    ) from error
  warnings.warn(
    f"{found.text} puts arrays into {kinds}, which JAX drops for devices that"
    " are not here: it was lowered over CPUs instead, and is tuned without"
    " forms.",
    RuntimeWarning,
    stacklevel=2,
  )
  return target


def _warn_of_platform(
  told: Collection[tuple[str, int]], because: errors.LagomError
) -> None:
  """Warns that the program may differ from the one that runs on GPUs."""
  places = [f"{pathlib.Path(file).name}:{line}" for file, line in told]
  if len(places) > _MOST_PLACES:
    places[_MOST_PLACES:] = [f"{len(places) - _MOST_PLACES:,} more"]
  cause = because.__cause__ or because
  why = "".join(str(cause).splitlines()[:1])
  warnings.warn(
    f"{' and '.join(places)} asked JAX for the platform and got"
    f' "cpu", because "gpu" ended in {type(cause).__name__}: {why}. If your'
    " program chooses by it, for example an attention kernel, then this is not"
    " the program that runs on GPUs: choose by the platform of the `devices`"
    " that your function gets, or by an argument (--arg).",
    RuntimeWarning,
    stacklevel=3,
  )


def _give_back_memory() -> None:
  """Frees the arrays that a target made for lowering.

  Models have reference cycles, and glibc keeps freed memory.
  """
  if not jax.live_arrays():
    return
  gc.collect()
  if trim := getattr(ctypes.CDLL(None), "malloc_trim", None):
    trim(0)
