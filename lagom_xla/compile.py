# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Compiles a train step for a cluster, with or without the cluster's GPUs.

XLA's GPU compiler needs a description of the GPU, not the GPU. On a machine
that has the cluster's devices they are used; anywhere else the devices are
compile-only ones. Both give the same schedule but for what autotuning decides:
without a GPU, matrix products keep XLA's default tiles.

    devices = compile.devices(cluster)
    lowered = step.lower(*args)              # args sharded over those devices
    compiled = compile.compile_step(lowered, cluster)

Two depths: a full compile gives memory figures and an executable; with
`schedule_only` the compile ends behind the scheduler, several times sooner,
which is all that a search needs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
import contextlib
import dataclasses
import os
from typing import Any, TypeVar

import jax
from jax.experimental import topologies
from jax.experimental.compilation_cache import compilation_cache

from lagom_xla import cluster as cluster_lib
from lagom_xla.passes import hlo
from lagom_xla.passes import pjrt_transform
from lagom_xla.passes import registry

_Executable = TypeVar("_Executable")

Options = Mapping[str, bool | int | float | str | bytes]

# Makes XLA write its own estimate of each kernel into the module. It has the
# tables for some GPUs only; for others the module comes without estimates.
COST_ESTIMATES: Options = {"xla_gpu_collect_cost_model_stats": True}
_NO_ESTIMATES: Options = {"xla_gpu_collect_cost_model_stats": False}


class CompileError(RuntimeError):
  """A compile that failed; the message starts with what was asked for."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Compilation:
  """What a compile gave.

  Attributes:
    module: the scheduled module.
    compiled: the executable; None when only the schedule was asked for.
    peak_bytes: device memory that a step needs at its peak, by XLA's own
      buffer assignment; None without a full compile.
  """

  module: hlo.Module
  compiled: jax.stages.Compiled | None
  peak_bytes: int | None


class _ScheduleReached(Exception):  # noqa: N818
  """Ends a compile from inside, once the schedule is there."""


def devices(cluster: cluster_lib.Cluster) -> Sequence[jax.Device]:
  """The cluster's devices: live ones if they are here, else compile-only.

  Raises:
    CompileError: no CUDA plugin is installed, or XLA refuses the cluster.
  """
  # Without this the plugin refuses to load where there is no CUDA driver; JAX
  # reads it when it starts.
  os.environ.setdefault("JAX_SKIP_CUDA_CONSTRAINTS_CHECK", "1")
  live = _live_devices(cluster)
  if live:
    return live
  if pjrt_transform.plugin_path() is None:
    raise CompileError(
      f"Cannot compile for {cluster.name}: JAX's CUDA plugin is not"
      " installed. Install it with `pip install 'lagom-xla[aot]'` (compiling"
      " without a GPU) or `pip install 'lagom-xla[cuda13]'` (on GPUs)."
    )
  try:
    topology = topologies.get_topology_desc(
      platform="cuda",
      topology_name="",
      target_config=cluster.gpu.target_config(),
      topology=f"1x{cluster.num_nodes}x{cluster.gpus_per_node}",
    )
  except NotImplementedError as error:
    raise CompileError(
      f"Cannot compile for {cluster.name}: JAX started without its CUDA"
      " plugin. Set JAX_SKIP_CUDA_CONSTRAINTS_CHECK=1 before JAX is first"
      " used."
    ) from error
  except jax.errors.JaxRuntimeError as error:
    raise CompileError(
      f"XLA refuses to describe {cluster.name}: {_reason(error)}"
    ) from error
  return topology.devices


def _live_devices(cluster: cluster_lib.Cluster) -> Sequence[jax.Device]:
  """This process group's GPUs, where they are the cluster's."""
  if jax.default_backend() != "gpu":
    return ()
  found = jax.devices()
  is_same = len(found) == cluster.num_devices and all(
    cluster.gpu.device_name == device.device_kind for device in found
  )
  return found if is_same else ()


def compile_step(
  lowered: jax.stages.Lowered,
  cluster: cluster_lib.Cluster,
  *,
  options: Options | None = None,
  schedule_only: bool = False,
) -> Compilation:
  """Compiles a lowered step.

  Args:
    lowered: `jitted.lower(*args)`, with arguments sharded over `devices`.
    cluster: what it was lowered for.
    options: XLA options on top of the defaults.
    schedule_only: stop behind the scheduler.

  Raises:
    CompileError: XLA refused; the message says what was asked for.
  """
  options = dict(options or {})

  def compile_with(options: Any) -> jax.stages.Compiled:
    return lowered.compile(compiler_options=options)

  if schedule_only:
    proto = schedule(
      compile_with,
      _module_name(lowered),
      cluster,
      options,
    )
    return Compilation(
      module=hlo.Module(proto, cluster.num_devices),
      compiled=None,
      peak_bytes=None,
    )
  compiled = compile_fully(compile_with, cluster, options)
  memory = compiled.memory_analysis()
  return Compilation(
    module=hlo.load(compiled),
    compiled=compiled,
    peak_bytes=peak_bytes(memory) if memory is not None else None,
  )


def compile_fully(
  compile_fn: Callable[[Options], _Executable],
  cluster: cluster_lib.Cluster,
  options: Options,
) -> _Executable:
  """Runs a compile to its end.

  Args:
    compile_fn: compiles with the options it is given.
    cluster: what is compiled for.
    options: XLA options on top of the defaults.

  Raises:
    CompileError: XLA refused, or cannot generate code for the GPU.
  """
  obstacle = cluster.gpu.compile_obstacle
  if obstacle:
    raise CompileError(
      f"No full compile for {cluster.name}: {obstacle}. Its schedule can"
      " still be inspected and tuned."
    )
  asked_for = describe(cluster, options)
  _check_values(options, asked_for)
  # The executable of a compile-only device can be stored, but not loaded.
  is_live = bool(_live_devices(cluster))
  try:
    with contextlib.nullcontext() if is_live else _no_persistent_cache():
      return compile_fn(options)
  except Exception as error:
    raise CompileError(f"{asked_for}: {_reason(error)}") from error


def schedule(
  compile_fn: Callable[[Options], Any],
  name: str,
  cluster: cluster_lib.Cluster,
  options: Options,
) -> hlo.hlo_pb2.HloModuleProto:
  """Runs a compile up to its schedule.

  Cost estimates are left out where XLA has none for the GPU.

  Args:
    compile_fn: starts the compile with the options it is given.
    name: name of the module that is wanted; XLA also compiles small ones.
    cluster: what is compiled for.
    options: XLA options on top of the defaults.

  Raises:
    CompileError: XLA refused, or never scheduled a module of that name.
  """
  # Never the options of a full compile: JAX remembers its executable, and would
  # have nothing left to schedule.
  options = {**_NO_ESTIMATES, **options}
  asked_for = describe(cluster, options)
  _check_values(options, asked_for)
  try:
    return _schedule(lambda: compile_fn(options), name, asked_for)
  except CompileError:
    if not COST_ESTIMATES.items() <= options.items():
      raise
  return schedule(compile_fn, name, cluster, {**options, **_NO_ESTIMATES})


def _schedule(
  compile_fn: Callable[[], Any], name: str, asked_for: str
) -> hlo.hlo_pb2.HloModuleProto:
  scheduled: list[hlo.hlo_pb2.HloModuleProto] = []

  def stop(serialized: bytes) -> None:
    module = hlo.hlo_pb2.HloModuleProto.FromString(serialized)
    if module.name == name:
      scheduled.append(module)
      raise _ScheduleReached

  try:
    with (
      # What comes out of the cache is not scheduled any more.
      _no_persistent_cache(),
      registry.transformation(
        stop, stage=registry.Stage.POST_SCHEDULER, platform="cuda"
      ),
    ):
      compile_fn()
  except Exception as error:
    if not scheduled:
      raise CompileError(f"{asked_for}: {_reason(error)}") from error
  if not scheduled:
    raise CompileError(
      f"{asked_for}: XLA finished without scheduling a module called {name}."
    )
  return scheduled[0]


@contextlib.contextmanager
def _no_persistent_cache() -> Iterator[None]:
  """Switches JAX's persistent compilation cache off for a compile."""
  config: Any = jax.config
  if not config.jax_compilation_cache_dir:
    yield
    return
  was_enabled = config.jax_enable_compilation_cache
  jax.config.update("jax_enable_compilation_cache", False)
  # JAX decides once whether it has a cache; this makes it decide anew.
  compilation_cache.reset_cache()
  try:
    yield
  finally:
    jax.config.update("jax_enable_compilation_cache", was_enabled)
    compilation_cache.reset_cache()


def describe(cluster: cluster_lib.Cluster, options: Options) -> str:
  """The beginning of an error message about a compile."""
  asked = ", ".join(
    f"{name}={value!r}"
    for name, value in options.items()
    if name not in COST_ESTIMATES
  )
  return f"XLA could not compile for {cluster.name}" + (
    f" with {asked}" if asked else ""
  )


def _check_values(options: Options, asked_for: str) -> None:
  for name, value in options.items():
    if not isinstance(value, bool | int | float | str | bytes):
      raise CompileError(
        f"{asked_for}: {name} must be a bool, int, float or str, and is of"
        f" type {type(value).__name__}."
      )


def peak_bytes(memory: Any) -> int:
  """Peak device memory of a `CompiledMemoryStats`."""
  peak = getattr(memory, "peak_memory_in_bytes", 0)
  return peak or (
    memory.argument_size_in_bytes
    + memory.output_size_in_bytes
    - memory.alias_size_in_bytes
    + memory.temp_size_in_bytes
  )


def _module_name(lowered: jax.stages.Lowered) -> str:
  module: Any = lowered.compiler_ir("stablehlo")
  return module.operation.attributes["sym_name"].value


def _reason(error: BaseException) -> str:
  """The first line of XLA's own message, cut to a readable length."""
  lines = [line for line in str(error).splitlines() if line.strip()]
  return lines[0][:600] if lines else type(error).__name__
