# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Requests to XLA: the inputs that JAX passes to a compile, as data.

Any process can compile a request, without the user's code.

For a lowered step, a stand-in for its client records what JAX passes. For a
module without a traced function, the request is made here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
import dataclasses
import hashlib
from typing import Any

import jax
from jax._src import compiler
from jax._src import xla_bridge
from jax._src.interpreters import mlir
from jax._src.lib import _jax
from jax._src.lib import xla_client
from jaxlib.mlir import ir
from jaxlib.mlir import passmanager
import numpy as np

from lagom_xla import errors
from lagom_xla.jax_internals import caches
from lagom_xla.jax_internals import lowerings

# JAX's compiler option for a profile of costs for XLA's scheduler.
PROFILE = "fdo_profile"


class Recorded(BaseException):
  """Ends a compile and carries its inputs; nothing else catches it."""


class Recorder:
  """Stands in for a client, and records what it is asked to compile."""

  def __init__(self, client: Any):
    self._client = client

  def __getattr__(self, name: str) -> Any:
    return getattr(self._client, name)

  def compile(
    self,
    module: ir.Module,
    executable_devices: Any,
    compile_options: Any,
    host_callbacks: Sequence[Any] = (),
  ) -> Any:
    """Raises `Recorded`."""
    del module
    device_ids = tuple(device.id for device in executable_devices)
    raise Recorded(compile_options, device_ids, bool(host_callbacks))

  # JAX calls this on clients that are not compile-only.
  compile_and_load = compile


def stablehlo_of_hlo(serialized: bytes) -> ir.Module:
  """Converts a serialized HloModuleProto to StableHLO.

  Raises whatever jaxlib raises for a module that it cannot convert.
  """
  return module(_jax.mlir.hlo_to_stablehlo(serialized))


@dataclasses.dataclass(frozen=True, kw_only=True)
class Program:
  """The module of a request.

  Attributes:
    bytecode: the module as MLIR bytecode.
    content_digest: a hash of the module without source files and lines.
  """

  bytecode: bytes
  content_digest: str


@dataclasses.dataclass(frozen=True, kw_only=True)
class Request:
  """The inputs of a compile, as data for any process.

  Attributes:
    program: the module.
    options: a serialized CompileOptionsProto without overrides, as the proto
      would lose their order.
    overrides: XLA option -> value, on top of `options`.
    device_ids: IDs of the devices to compile for, in order.
  """

  program: Program
  options: bytes
  overrides: tuple[tuple[str, bool | int | float | str], ...]
  device_ids: tuple[int, ...]


# The custom call of `jax.experimental.custom_partitioning`, used by cuDNN's
# attention; it holds addresses of Python functions.
_PARTITIONED_BY_PYTHON = b"CustomSPMDPartitioning"


def program(module: ir.Module) -> Program:
  """Converts a module for a request."""
  bytecode = mlir.module_to_bytecode(module)
  with mlir.make_ir_context():
    parsed = ir.Module.parse(bytecode)
    # XLA names instructions after JAX's name stacks, which are in locations.
    digest = hashlib.sha256("\n".join(_names(parsed)).encode())
    strip = passmanager.PassManager.parse("builtin.module(strip-debuginfo)")
    strip.run(parsed.operation)
    digest.update(mlir.module_to_bytecode(parsed))
  return Program(bytecode=bytecode, content_digest=digest.hexdigest())


def _names(module: ir.Module) -> list[str]:
  """The names in locations, without files, lines and columns."""
  names: list[str] = []

  def visit(operation: ir.Operation) -> ir.WalkResult:
    names.append(_name(operation.location))
    for region in operation.regions:
      for block in region:
        names.extend(_name(value.location) for value in block.arguments)
    return ir.WalkResult.ADVANCE

  module.operation.walk(visit)
  return names


def _name(location: ir.Location) -> str:
  if isinstance(location, ir.NameLoc):
    return location.name_str
  of_lines = (ir.UnknownLoc, ir.FileLineColLoc, ir.CallSiteLoc)
  return "" if isinstance(location, of_lines) else str(location)


def module(stablehlo: bytes) -> ir.Module:
  """Parses a module from MLIR bytecode."""
  with mlir.make_ir_context():
    return ir.Module.parse(stablehlo)


def with_options(request: Request, options: Mapping[str, Any]) -> Request:
  """A request with more XLA options, and a profile if `PROFILE` is one."""
  parsed = xla_client.CompileOptions.ParseFromString(request.options)
  overrides = {**dict(request.overrides), **options}
  profile = overrides.pop(PROFILE, None)
  if profile is not None:
    parsed.executable_build_options.fdo_profile = profile
  return dataclasses.replace(
    request,
    options=parsed.SerializeAsString(),
    overrides=tuple(overrides.items()),
  )


def of_step(
  lowered: jax.stages.Lowered, options: Mapping[str, Any], module: Program
) -> Request | None:
  """The request of JAX's compile of a lowered step; compiles nothing.

  None if the step, or its partitioning in XLA, calls back into this process.
  `options` are the compiler_options of `jax.stages.Lowered.compile`.
  """
  if _PARTITIONED_BY_PYTHON in module.bytecode:
    return None
  handed, device_ids, has_callbacks = _handed(lowered, options)
  return None if has_callbacks else _request(handed, device_ids, module)


def _handed(
  lowered: jax.stages.Lowered, options: Mapping[str, Any]
) -> tuple[Any, tuple[int, ...], bool]:
  """JAX's inputs to XLA besides the module: options, devices, callbacks."""
  recorder = Recorder(lowerings.client_of(lowered))
  recorded = lowerings.with_client(lowered, recorder)
  try:
    recorded.compile(compiler_options=dict(options))
  except Recorded as call:
    return call.args
  raise errors.UnsupportedError(
    f"JAX {jax.__version__} compiled a step without calling its client."
  )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Handed:
  """JAX's inputs to XLA besides a module and its devices.

  Attributes:
    options: a serialized CompileOptionsProto, with JAX's settings.
    read: the result of `read`, with XLA_FLAGS alone.
    jit: the compiler_options of `jax.jit`.
    disabled: XLA's disabled passes.
  """

  options: bytes
  read: bytes
  jit: Mapping[str, Any]
  disabled: str


def handed_for(lowered: jax.stages.Lowered) -> Handed:
  """JAX's inputs to XLA for a lowered step."""
  with caches.persistent_off():
    options, _, _ = _handed(lowered, {})
  return _as_data(options, jit_options(lowered))


def handed_for_any(jit: Mapping[str, Any] | None = None) -> Handed:
  """JAX's inputs for any step of this process; makes XLA read XLA_FLAGS.

  `jit` are the compiler_options of its `jax.jit`.
  """
  options = compiler.get_compile_options(
    num_replicas=1, num_partitions=1, env_options_overrides=dict(jit or {})
  )
  return _as_data(options, jit or {})


def handed_by(request: Request) -> Handed:
  """JAX's inputs in a request without options of ours."""
  options = _options_of(request)
  return _as_data(options, {})


def _as_data(options: Any, jit: Mapping[str, Any]) -> Handed:
  debug_options = options.executable_build_options.debug_options
  return Handed(
    options=options.SerializeAsString(),
    read=read(),
    # JAX keeps some of them apart from XLA's options.
    jit={**jit, **dict(options.env_option_overrides)},
    disabled=debug_options.xla_disable_hlo_passes,
  )


def read() -> bytes:
  """A serialized CompileOptionsProto of XLA_FLAGS, which XLA reads once."""
  return xla_client.CompileOptions().SerializeAsString()


def jit_options(lowered: jax.stages.Lowered) -> Mapping[str, Any]:
  """The compiler_options of the `jax.jit` of a lowered step."""
  lowering: Any = lowered._lowering
  return dict(lowering._compiler_options_kvs)


def of_stablehlo(
  module: Program,
  devices: Sequence[jax.Device],
  options: Mapping[str, Any],
  *,
  partitioner: str | None,
) -> Request:
  """The request for a module without a traced function.

  `partitioner` is "shardy" or "gspmd"; None for the program of one device.
  """
  overrides: Any = dict(options)
  profile = overrides.pop(PROFILE, None)
  compile_options = compiler.get_compile_options(
    num_replicas=1,
    num_partitions=len(devices),
    device_assignment=np.arange(len(devices)).reshape(1, -1),
    env_options_overrides=overrides,
    fdo_profile=profile,
    backend=devices[0].client,
  )
  build_options = compile_options.executable_build_options
  build_options.use_spmd_partitioning = partitioner is not None
  build_options.use_shardy_partitioner = partitioner == "shardy"
  # As jit does for results without a given sharding.
  build_options.allow_spmd_sharding_propagation_to_output = [True]
  device_ids = tuple(device.id for device in devices)
  return _request(compile_options, device_ids, module)


def has_started() -> bool:
  """Whether JAX has a backend, so that XLA has read XLA_FLAGS."""
  return xla_bridge.backends_are_initialized()


def compile(request: Request, devices: Sequence[jax.Device]) -> Any:
  """Compiles a request, for compile-only devices or this process's CPUs."""
  options = _options_of(request)
  by_id = {device.id: device for device in devices}
  chosen = tuple(by_id[device_id] for device_id in request.device_ids)
  client = devices[0].client
  is_cpu = client.platform == "cpu"
  compile_ = client.compile_and_load if is_cpu else client.compile
  return compile_(
    module(request.program.bytecode), xla_client.DeviceList(chosen), options
  )


def options_for_partitioned(request: Request) -> bytes:
  """A serialized CompileOptionsProto for the program of one device."""
  options = _options_of(request)
  build_options = options.executable_build_options
  build_options.use_spmd_partitioning = False
  build_options.use_shardy_partitioner = False
  return options.SerializeAsString()


def _options_of(request: Request) -> Any:
  options = xla_client.CompileOptions.ParseFromString(request.options)
  options.env_option_overrides = list(request.overrides)
  return options


def _request(
  options: Any, device_ids: tuple[int, ...], program: Program
) -> Request:
  overrides = tuple(options.env_option_overrides)
  options.env_option_overrides = []
  return Request(
    program=program,
    options=options.SerializeAsString(),
    overrides=overrides,
    device_ids=device_ids,
  )
