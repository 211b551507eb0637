# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""CPU devices whose programs are compiled in less time than they save.

XLA makes the same HLO of a program at each level. What is compared here, bits
or numbers within bounds, comes from programs that were compiled alike, and a
program of a test runs a few times: optimized machine code never pays.
"""

from __future__ import annotations

import importlib.metadata
import os

import jax

_DEVICES = "--xla_force_host_platform_device_count="
# Without most of LLVM's optimizations, and in one piece: each program is small.
_QUICK = (
  "--xla_backend_optimization_level=0",
  "--xla_llvm_disable_expensive_passes=true",
  "--xla_cpu_parallel_codegen_split_count=1",
)
# Emitters that go through MLIR, and take four times as long as the older ones.
# JAX 0.12 has no others, and XLA ends a process for a flag it does not know.
_NEW_EMITTERS = "xla_cpu_use_fusion_emitters"


def start_cpus(num_devices: int) -> None:
  """Starts JAX on as many CPU devices, whose compiles are quick from then on.

  XLA reads its flags when it starts, and never again. What is in XLA_FLAGS
  after that is what tests have a user set: nothing but the devices.
  """
  devices = f"{_DEVICES}{num_devices}"
  os.environ["XLA_FLAGS"] = f"{devices} {flags()}"
  assert len(jax.devices()) == num_devices
  os.environ["XLA_FLAGS"] = devices


def flags() -> str:
  """What makes compiles for CPUs quick in another process."""
  new = (f"--{name}=false" for name in as_users_compile())
  return " ".join((*_QUICK, *new))


def as_users_compile() -> dict[str, bool]:
  """Options of a step that is traced: launches have their instructions' names.

  With the older emitters, fusions run as calls of other names.
  """
  has_both = importlib.metadata.version("jaxlib").startswith("0.10.")
  return {_NEW_EMITTERS: True} if has_both else {}
