# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""The cap on the channels of NCCL's collectives: XLA's option, NCCL's variable.

XLA hands its own on to NCCL when an executable is the first to need a
communicator, which then keeps it (AcquireGpuClique in xla/backends/gpu/
collectives/gpu_cliques.cc), so it is for XLA_FLAGS: all executables of a
process have it then. It changes no compiled module. 0 leaves NCCL its own
number, and on Blackwell, from NCCL 2.28 on, XLA's: 32 (nccl_collectives.cc).

NCCL's variable bounds a table's channels, and NCCL takes it in place of XLA's.
"""

from __future__ import annotations

from collections.abc import Mapping

from lagom_xla.flags import environment

OPTION = "xla_gpu_nccl_collective_max_nchannels"
# The most channels (CTAs) that a communicator may use.
VARIABLE = "NCCL_MAX_CTAS"


def most(options: Mapping[str, object]) -> int | None:
  """The cap under which a step runs with options beside this XLA_FLAGS."""
  value = str(options.get(OPTION, environment.value(OPTION)))
  return int(value) if value.isdecimal() and int(value) else None


def variables(max_channels: int | None) -> Mapping[str, str]:
  """The variables that make NCCL keep to a cap; none for no cap."""
  return {} if max_channels is None else {VARIABLE: str(max_channels)}


def missing(options: Mapping[str, object]) -> str:
  """A plan's cap as a flag; "" where XLA_FLAGS has it, or there is none."""
  if most(options) == most({}):
    return ""
  return f"--{OPTION}={options[OPTION]}"
