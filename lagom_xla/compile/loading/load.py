# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Targets as they are named on the command line.

    step.hlo.xz              an HLO module; an optimized one is only read
    train.py:train_step      a function that, given the cluster's devices,
                             returns (jitted step, its arguments), and a
                             dict of keyword arguments if the step has some
    train.py:step            a jitted step, beside a `step_args(devices)` that
                             returns its arguments
    package.module:step      either, in a module that can be imported

Arguments are arrays or `jax.ShapeDtypeStruct`s, sharded over those devices. A
function may also return a context manager that yields (step, arguments), inside
which the step is lowered; or whatever has a `lower()` without arguments.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
import pathlib
from typing import Any
import warnings

import jax

from lagom_xla import cluster as cluster_lib
from lagom_xla import errors
from lagom_xla.compile import devices as devices_lib
from lagom_xla.compile.loading import dumps
from lagom_xla.compile.loading import own_frames
from lagom_xla.compile.loading import source
from lagom_xla.compile.loading import step_function
from lagom_xla.compile.loading import unused_devices
from lagom_xla.compile.lowering import memory_kinds
from lagom_xla.compile.lowering import nnx_step
from lagom_xla.compile.targets import target as target_lib
from lagom_xla.jax_internals import debug_callbacks
from lagom_xla.jax_internals import lost_memory_kinds
from lagom_xla.jax_internals import lowerings
from lagom_xla.passes import hlo
from lagom_xla.passes.program.stablehlo import functions


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
  place, _, function = text.rpartition(":")
  is_file = place.endswith(".py")
  if is_python(text):
    devices_lib.stand_in_with_cpus(cluster)
    file = pathlib.Path(place) if is_file else None
    with lost_memory_kinds.noticed() as lost:
      module = source.of_file(file) if file else source.of_module(place)
      if not hasattr(module, function):
        raise errors.TargetError(f"{place} defines no {function}.")
      found = step_function.StepFunction(
        text, module, function, dict(arguments or {})
      )
      return _from_python(found, file, cluster, lost)
  if text.endswith((".py", ".py:")):
    raise errors.TargetError(
      f"{text} names a file but no function: say"
      f" {text.removesuffix(':')}:FUNCTION."
    )
  if arguments:
    raise errors.TargetError(f"{text} is an HLO module and takes no --arg.")
  return target_lib.of_module(_module(pathlib.Path(text)), cluster, name=text)


def _module(file: pathlib.Path) -> hlo.Module:
  if file.is_dir():
    found = dumps.largest(file)
    such_as = f", such as {found}" if found else ""
    raise errors.HloError(
      f"{file} is a folder: name the file of your step in it{such_as}."
    )
  try:
    return hlo.load(file)
  except errors.HloError as error:
    found = dumps.of_same_module(file)
    if found in (None, file):
      raise
    raise errors.HloError(f"{error} The module is in {found}.") from error


def is_python(text: str) -> bool:
  """Whether a target is named that a program lowers, for any devices."""
  place, _, function = text.rpartition(":")
  return bool(function) and (place.endswith(".py") or _is_module_name(place))


def _is_module_name(place: str) -> bool:
  return all(part.isidentifier() for part in place.split("."))


def _from_python(
  found: step_function.StepFunction,
  file: pathlib.Path | None,
  cluster: cluster_lib.Cluster,
  lost_kinds: Collection[str],
) -> target_lib.Target:
  devices = devices_lib.devices(cluster)
  own_frames.leave_out()
  try:
    with debug_callbacks.without_callbacks():
      target = _lowered(found, devices, devices, cluster)
      if lost_kinds:
        return _on_cpus(found, devices, cluster, lost_kinds)
      return target
  except (errors.TargetError, errors.CompileError):
    raise
  except (Exception, SystemExit) as error:
    what = source.described(error, file)
    if isinstance(error, TypeError):
      what += _on_text(error, found.arguments)
    raise errors.TargetError(f"{found.text} raised {what}") from error


def _on_text(error: TypeError, arguments: Mapping[str, str]) -> str:
  """What helps where a number was meant, and --arg gave text."""
  message = str(error)
  for name, text in arguments.items():
    is_number = text.replace(".", "", 1).isdecimal()
    if is_number and ("str" in message or repr(text) in message):
      number = "int" if text.isdecimal() else "float"
      return f" [--arg gives text: {number}({name}) where a number is meant]"
  return ""


def _lowered(
  found: step_function.StepFunction,
  given: Sequence[jax.Device],
  devices: Sequence[jax.Device],
  cluster: cluster_lib.Cluster,
) -> target_lib.Target:
  """The target, lowered in the context that it asks for.

  What was sharded over as many CPUs, such as a mesh made at import, is lowered
  for GPUs without their devices: to HLO, which XLA partitions.
  """
  with found.step(given) as step:
    lowered = nnx_step.lowered_inside(step.lower())
    client = lowerings.client_of(lowered)
    num_devices = target_lib.num_devices(lowered)
    if client is devices[0].client:
      unused_devices.warn_of(lowered, found.text)
      return target_lib.of_step(lowered, cluster, name=found.text)
    if step.trace and num_devices == cluster.num_devices:
      for_gpus = step.trace().lower(lowering_platforms=("cuda",))
      lowered = nnx_step.lowered_inside(for_gpus)
      module = hlo.load(lowerings.serialized_hlo(lowered))
      program: Any = lowered.compiler_ir("stablehlo")
      memory_kinds.into_hlo(program, module)
      return target_lib.of_module(module, cluster, name=found.text)
  if num_devices == 1 and _uses_no_argument(lowered):
    raise errors.TargetError(
      f"{found.text} uses none of its arguments and shards nothing itself, so"
      " that JAX lowers it for one device: have it work on its arguments, or"
      " put jax.lax.with_sharding_constraint on what it makes."
    )
  what = (
    f"{found.text} has arguments that are not on the devices of {cluster.name}:"
    " shard them over the `devices` that its function gets"
  )
  if num_devices not in (1, cluster.num_devices):
    what += (
      f"; they are over {num_devices:,} devices, where a mesh that is made at"
      f" import must be of all {cluster.num_devices:,} of jax.devices()"
    )
  if not step.trace:
    what += "; jax.pmap takes them as devices=devices"
  raise errors.TargetError(f"{what}.")


def _on_cpus(
  found: step_function.StepFunction,
  devices: Sequence[jax.Device],
  cluster: cluster_lib.Cluster,
  lost_kinds: Collection[str],
) -> target_lib.Target:
  """The target, lowered over CPUs, which have the memories of its shardings.

  Raises:
    TargetError: it cannot be.
  """
  kinds = " and ".join(sorted(lost_kinds))
  try:
    cpus = jax.devices("cpu")[: cluster.num_devices]
    target = _lowered(found, cpus, devices, cluster)
  except errors.TargetError as error:
    raise errors.TargetError(
      f"{found.text} shards arrays into {kinds}, which JAX forgets of devices"
      " that are not here: have it return (jitted step, tuple of its"
      " arguments), so that it can be lowered over as many CPUs, or name a"
      " dump of it."
    ) from error
  warnings.warn(
    f"{found.text} shards arrays into {kinds}, which JAX forgets of devices"
    " that are not here: it is lowered over CPUs in their place, and tuned"
    " without forms.",
    RuntimeWarning,
    stacklevel=2,
  )
  return target


def _uses_no_argument(lowered: jax.stages.Lowered) -> bool:
  """Whether JAX left all arguments of a step out, or it has none."""
  module: Any = lowered.compiler_ir("stablehlo")
  main = functions.by_name(module.operation)["main"]
  return not main.regions[0].blocks[0].arguments
