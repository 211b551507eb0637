# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Modules that no function was traced to: as StableHLO, and compiled by XLA."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
from jax._src import compiler
from jax._src.interpreters import mlir
from jax._src.lib import _jax
from jax._src.lib import xla_client
from jaxlib.mlir import ir
import numpy as np


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
