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
from lagom_xla import errors
from lagom_xla.passes import combine
from lagom_xla.passes import hlo
from lagom_xla.passes import in_compile
from lagom_xla.passes import pjrt_transform
from lagom_xla.passes import registry

_Executable = TypeVar("_Executable")

Options = Mapping[str, bool | int | float | str | bytes]

# Makes XLA write its own estimate of each kernel into the module. It has the
# tables for some GPUs only; for others the module comes without estimates.
COST_ESTIMATES: Options = {"xla_gpu_collect_cost_model_stats": True}
_NO_ESTIMATES: Options = {"xla_gpu_collect_cost_model_stats": False}
# Those for which XLA was seen to have no tables; asking again costs a compile.
_gpus_without_estimates: set[str] = set()


@dataclasses.dataclass(frozen=True, kw_only=True)
class Compilation:
  """What a compile gave.

  Attributes:
    module: the scheduled module.
    compiled: the executable; None when only the schedule was asked for, or the
      module came from HLO (`compile_hlo`).
    peak_bytes: device memory that a step needs at its peak, by XLA's own
      buffer assignment; None without a full compile.
  """

  module: hlo.Module
  compiled: jax.stages.Compiled | None
  peak_bytes: int | None


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
    raise errors.CompileError(
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
    raise errors.CompileError(
      f"Cannot compile for {cluster.name}: JAX started without its CUDA"
      " plugin. Set JAX_SKIP_CUDA_CONSTRAINTS_CHECK=1 before JAX is first"
      " used."
    ) from error
  except jax.errors.JaxRuntimeError as error:
    raise errors.CompileError(
      f"XLA refuses to describe {cluster.name}: {errors.first_line(error)}"
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


def is_live(cluster: cluster_lib.Cluster) -> bool:
  """Whether the cluster's GPUs are here, so that a step can run on them."""
  return bool(_live_devices(cluster))


def compile_step(
  lowered: jax.stages.Lowered,
  cluster: cluster_lib.Cluster,
  *,
  options: Options | None = None,
  groups: combine.Groups | None = None,
  schedule_only: bool = False,
) -> Compilation:
  """Compiles a lowered step.

  Args:
    lowered: `jitted.lower(*args)`, with arguments sharded over `devices`.
    cluster: what it was lowered for.
    options: XLA options on top of the defaults.
    groups: collectives to combine; None leaves it to XLA.
    schedule_only: stop behind the scheduler.

  Raises:
    CompileError: XLA refused; the message says what was asked for.
    CombineError: the step cannot have these groups.
  """
  options = dict(options or {})
  name = _module_name(lowered)

  def compile_with(options: Any) -> jax.stages.Compiled:
    return lowered.compile(compiler_options=options)

  if schedule_only:
    proto = schedule(compile_with, name, cluster, options, groups=groups)
    return Compilation(
      module=hlo.Module(proto, cluster.num_devices),
      compiled=None,
      peak_bytes=None,
    )
  compiled = compile_fully(
    compile_with,
    name,
    cluster,
    options,
    groups=groups,
    platform=_platform(lowered),
  )
  memory = compiled.memory_analysis()
  return Compilation(
    module=hlo.load(compiled),
    compiled=compiled,
    peak_bytes=peak_bytes(memory) if memory is not None else None,
  )


def unscheduled_step(
  lowered: jax.stages.Lowered,
  cluster: cluster_lib.Cluster,
  *,
  options: Options | None = None,
) -> hlo.Module:
  """A lowered step as it is before XLA combines its collectives.

  Args:
    lowered: `jitted.lower(*args)`, with arguments sharded over `devices`.
    cluster: what it was lowered for.
    options: XLA options on top of the defaults.

  Raises:
    CompileError: XLA refused; the message says what was asked for.
  """

  def compile_with(options: Any) -> jax.stages.Compiled:
    return lowered.compile(compiler_options=options)

  proto = unscheduled(
    compile_with, _module_name(lowered), cluster, options or {}
  )
  return hlo.Module(proto, cluster.num_devices)


def compile_fully(
  compile_fn: Callable[[Options], _Executable],
  name: str,
  cluster: cluster_lib.Cluster,
  options: Options,
  *,
  groups: combine.Groups | None = None,
  platform: str = "cuda",
) -> _Executable:
  """Runs a compile to its end.

  Args:
    compile_fn: compiles with the options it is given.
    name: name of the module.
    cluster: what is compiled for.
    options: XLA options on top of the defaults.
    groups: collectives to combine; None leaves it to XLA.
    platform: "cuda"; or "cpu", where CPUs stand for the cluster's GPUs.

  Raises:
    CompileError: XLA refused, or cannot generate code for the GPU; or the
      module donates inputs, and groups would make this JAX forget that.
    CombineError: the module cannot have these groups.
  """
  obstacle = cluster.gpu.compile_obstacle
  if obstacle:
    raise errors.CompileError(
      f"No full compile for {cluster.name}: {obstacle}. Its schedule can"
      " still be inspected and tuned."
    )
  asked_for = describe(cluster, options, groups)
  _check_values(options, asked_for)
  if groups is not None:
    options = combine.options(groups, options)
  # The executable of a compile-only device can be stored, but not loaded.
  can_load = is_live(cluster)
  try:
    with (
      contextlib.nullcontext() if can_load else _no_persistent_cache(),
      in_compile.grouped(
        name, groups, platform=platform, must_keep_donation=True
      ),
    ):
      return compile_fn(options)
  except errors.CombineError:
    raise
  except errors.DonationLostError as error:
    raise errors.CompileError(str(error)) from error
  except Exception as error:
    raise errors.CompileError(
      f"{asked_for}: {errors.first_line(error)}"
    ) from error


def schedule(
  compile_fn: Callable[[Options], Any],
  name: str,
  cluster: cluster_lib.Cluster,
  options: Options,
  *,
  groups: combine.Groups | None = None,
) -> hlo.hlo_pb2.HloModuleProto:
  """Runs a compile up to its schedule.

  Cost estimates are left out where XLA has none for the GPU.

  Args:
    compile_fn: starts the compile with the options it is given.
    name: name of the module that is wanted; XLA also compiles small ones.
    cluster: what is compiled for.
    options: XLA options on top of the defaults.
    groups: collectives to combine; None leaves it to XLA.

  Raises:
    CompileError: XLA refused, or never scheduled a module of that name.
    CombineError: the module cannot have these groups.
  """
  asked_for = describe(cluster, options, groups)
  _check_values(options, asked_for)
  if groups is not None:
    options = combine.options(groups, options)

  def run(options: Options) -> hlo.hlo_pb2.HloModuleProto:
    with in_compile.grouped(name, groups):
      return _run_to(
        registry.Stage.POST_SCHEDULER, compile_fn, name, options, asked_for
      )

  if not COST_ESTIMATES.items() <= options.items():
    return run(options)
  without = {**options, **_NO_ESTIMATES}
  if cluster.gpu.name in _gpus_without_estimates:
    return run(without)
  try:
    return run(options)
  except errors.CompileError:
    scheduled = run(without)
  _gpus_without_estimates.add(cluster.gpu.name)
  return scheduled


def unscheduled(
  compile_fn: Callable[[Options], Any],
  name: str,
  cluster: cluster_lib.Cluster,
  options: Options,
) -> hlo.hlo_pb2.HloModuleProto:
  """Runs a compile until XLA would combine collectives.

  What comes of it names the collectives that `schedule` can combine.

  Args:
    compile_fn: starts the compile with the options it is given.
    name: name of the module that is wanted.
    cluster: what is compiled for.
    options: XLA options on top of the defaults.

  Raises:
    CompileError: XLA refused, or never had a module of that name.
  """
  asked_for = describe(cluster, options)
  _check_values(options, asked_for)
  return _run_to(
    registry.Stage.PRE_SCHEDULER, compile_fn, name, options, asked_for
  )


def _run_to(
  stage: registry.Stage,
  compile_fn: Callable[[Options], Any],
  name: str,
  options: Options,
  asked_for: str,
) -> hlo.hlo_pb2.HloModuleProto:
  # Never the options of a full compile: JAX remembers its executable, and would
  # have nothing left to schedule.
  options = {**_NO_ESTIMATES, **options}
  try:
    # What comes out of the cache is not scheduled any more.
    with _no_persistent_cache():
      module = in_compile.run_to(stage, lambda: compile_fn(options), name)
  except errors.CombineError:
    raise
  except Exception as error:
    raise errors.CompileError(
      f"{asked_for}: {errors.first_line(error)}"
    ) from error
  if module is None:
    raise errors.CompileError(
      f"{asked_for}: XLA finished without scheduling a module called {name}."
    )
  return module


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


def describe(
  cluster: cluster_lib.Cluster,
  options: Options,
  groups: combine.Groups | None = None,
) -> str:
  """The beginning of an error message about a compile."""
  asked = ", ".join(
    f"{name}=<{len(value)} bytes>"
    if isinstance(value, bytes)
    else f"{name}={value!r}"
    for name, value in options.items()
    if name not in COST_ESTIMATES
  )
  if groups is not None:
    asked = ", ".join(filter(None, [asked, f"{len(groups)} combine groups"]))
  return f"XLA could not compile for {cluster.name}" + (
    f" with {asked}" if asked else ""
  )


def _check_values(options: Options, asked_for: str) -> None:
  for name, value in options.items():
    if not isinstance(value, bool | int | float | str | bytes):
      raise errors.CompileError(
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


def _platform(lowered: jax.stages.Lowered) -> str:
  backend = lowered._lowering.compile_args["backend"]
  return "cpu" if backend.platform == "cpu" else "cuda"
