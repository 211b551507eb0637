# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""CPU devices with fast compiles, instead of fast programs.

XLA makes the same HLO at each optimization level. Tests compare bits or numbers
of programs compiled at the same level, and run a program only a few times, so
optimized machine code never pays.
"""

from __future__ import annotations

import importlib.metadata
import os

import jax

_DEVICES = "--xla_force_host_platform_device_count="
# Without most LLVM optimizations, and in one piece, because programs are small.
_QUICK = (
  "--xla_backend_optimization_level=0",
  "--xla_llvm_disable_expensive_passes=true",
  "--xla_cpu_parallel_codegen_split_count=1",
)
# Emitters through MLIR, which take four times as long as the older ones. JAX
# 0.12 has no others, and XLA aborts on unknown flags.
_NEW_EMITTERS = "xla_cpu_use_fusion_emitters"


def start_cpus(num_devices: int) -> None:
  """Starts JAX on this many CPU devices, with fast compiles from then on.

  XLA reads its flags only at the start. Afterward XLA_FLAGS has only the
  devices, as tests assume of a user.
  """
  devices = f"{_DEVICES}{num_devices}"
  os.environ["XLA_FLAGS"] = f"{devices} {flags()}"
  assert len(jax.devices()) == num_devices
  os.environ["XLA_FLAGS"] = devices


def flags() -> str:
  """XLA_FLAGS for fast compiles for CPUs in another process."""
  new = (f"--{name}=false" for name in as_users_compile())
  return " ".join((*_QUICK, *new))


def as_users_compile() -> dict[str, bool]:
  """Options of a traced step, so that launches have their instructions' names.

  With the older emitters, fusions run as calls with other names.
  """
  has_both = importlib.metadata.version("jaxlib").startswith("0.10.")
  return {_NEW_EMITTERS: True} if has_both else {}
