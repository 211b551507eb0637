# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""JAX's private names: all that lagom_xla takes, here and in `_jax_*.py`.

They are those of JAX 0.10.2 to 0.12. What has no public way in is there and
nowhere else: which backend a step was lowered for, compiling StableHLO that no
function was traced to, and what jit does with a signature it has not seen. In
`_jax_debug.py` is how it lowers debug callbacks, in `_jax_executable.py` what
it knows of an executable, in `_jax_request.py` what it hands to XLA for a
compile, in `_jax_store.py` what joins a job's processes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
import copy
from typing import Any

import jax
from jax._src import compiler
from jax._src.interpreters import mlir
from jax._src.lib import _jax
from jax._src.lib import xla_client
from jaxlib.mlir import ir
import numpy as np

from lagom_xla import errors


def client_of(lowered: jax.stages.Lowered) -> Any:
  """The client of the backend that a step was lowered for."""
  return lowered._lowering.compile_args["backend"]


def with_module(
  lowered: jax.stages.Lowered, module: ir.Module
) -> jax.stages.Lowered:
  """A lowered step with another module in place of its own.

  Shardings, donation and the trees of arguments and results are kept, so the
  module must take and return what its own one does.

  Raises:
    UnsupportedError: JAX lowers in another way.
  """
  lowering: Any = copy.copy(lowered._lowering)
  if getattr(lowering, "_hlo", None) is None:
    raise errors.UnsupportedError(
      f"JAX {jax.__version__} keeps a lowered step's module where this"
      " lagom_xla does not know, and cannot be given another one."
    )
  lowering._hlo = module
  lowering._executable = None
  rewritten = copy.copy(lowered)
  rewritten._lowering = lowering
  return rewritten


def copied(lowered: jax.stages.Lowered) -> jax.stages.Lowered:
  """A lowered step with a copy of its module.

  JAX remembers executables by module and options, whatever passes took part.
  """
  module: Any = lowered.compiler_ir("stablehlo")
  with module.context, ir.Location.unknown():
    copy = ir.Module.create()
    for name, attribute in module.operation.attributes.items():
      copy.operation.attributes[name] = attribute
    for operation in module.body.operations:
      copy.body.append(operation.operation.clone())
  return with_module(lowered, copy)


def stablehlo_of_hlo(
  serialized: bytes, edit: Callable[[ir.Module], None]
) -> ir.Module:
  """An HLO module as StableHLO.

  Args:
    serialized: the HloModuleProto.
    edit: changes the module before anybody else sees it.

  Raises:
    Exception: whatever jaxlib raises for a module without such a form.
  """
  converted = _jax.mlir.hlo_to_stablehlo(serialized)
  with mlir.make_ir_context():
    module = ir.Module.parse(converted)
    edit(module)
  return module


def compile_stablehlo(
  module: ir.Module,
  devices: Sequence[jax.Device],
  options: Mapping[str, bool | int | float | str],
  scheduler_profile: bytes | None,
  *,
  partitioner: str | None,
) -> Any:
  """Compiles a module; returns the executable.

  Args:
    module: the module.
    devices: what to compile it for.
    options: XLA's.
    scheduler_profile: costs for XLA's scheduler.
    partitioner: "shardy" or "gspmd"; None for the program of one device.
  """
  return devices[0].client.compile(
    module,
    xla_client.DeviceList(tuple(devices)),
    stablehlo_options(
      devices, options, scheduler_profile, partitioner=partitioner
    ),
  )


def stablehlo_options(
  devices: Sequence[jax.Device],
  options: Mapping[str, bool | int | float | str],
  scheduler_profile: bytes | None,
  *,
  partitioner: str | None,
) -> Any:
  """The CompileOptions of `compile_stablehlo`."""
  overrides: Any = dict(options)
  compile_options = compiler.get_compile_options(
    num_replicas=1,
    num_partitions=len(devices),
    device_assignment=np.arange(len(devices)).reshape(1, -1),
    env_options_overrides=overrides,
    fdo_profile=scheduler_profile,
    backend=devices[0].client,
  )
  build_options = compile_options.executable_build_options
  build_options.use_spmd_partitioning = partitioner is not None
  build_options.use_shardy_partitioner = partitioner == "shardy"
  # As jit does for results whose sharding is not given.
  build_options.allow_spmd_sharding_propagation_to_output = [True]
  return compile_options


def serialized_hlo(lowered: jax.stages.Lowered) -> bytes:
  """The HloModuleProto of a lowered step, serialized."""
  computation: Any = lowered.compiler_ir("hlo")
  return computation.as_serialized_hlo_module_proto()


def num_devices_of_sharding(serialized: bytes) -> int:
  """Devices that a serialized OpSharding splits an array over; 1 for none."""
  proto = xla_client.OpSharding()
  proto.ParseFromString(serialized)
  parts = proto.tuple_shardings or [proto]
  kinds = xla_client.OpSharding.Type
  return max(
    xla_client.HloSharding.from_proto(part).num_devices()
    if part.type == kinds.OTHER
    else 1
    for part in parts
  )


def is_named_sharding(serialized: bytes) -> bool:
  """Whether a serialized OpSharding names the axes of a mesh, as of JAX 0.12.

  GSPMD aborts where it finds one.
  """
  proto = xla_client.OpSharding()
  proto.ParseFromString(serialized)
  return "mesh[" in str(xla_client.HloSharding.from_proto(proto))


def identity_of(lowered: jax.stages.Lowered) -> object:
  """What signatures share that jit would compile only once."""
  return lowered._lowering, lowered.in_tree, lowered.out_tree


def jit_internals(jitted: Any) -> tuple[Any, Callable[..., Any]]:
  """The jit arguments of a jitted function, and its own cache miss.

  Raises:
    UnsupportedError: it is not a function of `jax.jit`, or jit has changed.
  """
  try:
    _ = jax.stages.Lowered._lowering
    return jitted._jit_info, jitted._cache_miss
  except AttributeError as error:
    raise _unsupported(jitted, error) from error


def is_transformed() -> bool:
  """Whether a transformation such as `jax.grad` is going on."""
  from jax._src import core

  return not core.trace_state_clean()


def jit_with(jitted: Any, info: Any, cache_miss: Callable[..., Any]) -> Any:
  """A function of jit's own type, with a cache that it shares with no other.

  Args:
    jitted: the function that it is like.
    info: of `jit_internals`.
    cache_miss: called for each signature that was not seen before.

  Raises:
    UnsupportedError: jit has changed.
  """
  try:
    from jax._src import tree_util
    from jax._src.interpreters import pxla

    return _jax.pjit(
      getattr(jitted, "__name__", "step"),
      jitted._fun,
      cache_miss,
      info.static_argnums,
      info.static_argnames,
      pxla.JitGlobalCppCacheKeys(),
      tree_util.dispatch_registry,
      pxla.cc_shard_arg,
      _jax.PjitFunctionCache(),
    )
  except (ImportError, AttributeError, TypeError) as error:
    raise _unsupported(jitted, error) from error


def _unsupported(jitted: Any, error: Exception) -> errors.UnsupportedError:
  return errors.UnsupportedError(
    f"a {type(jitted).__name__} under JAX {jax.__version__} does not call its"
    f" executables in the way that this lagom_xla knows ({error})"
  )
