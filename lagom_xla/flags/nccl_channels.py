# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""The cap on channels of NCCL collectives: XLA's option and NCCL's variable.

XLA passes its option to NCCL when an executable first needs a communicator,
which then keeps it (AcquireGpuClique in xla/backends/gpu/collectives/
gpu_cliques.cc). So it belongs in XLA_FLAGS, for all executables of a process.
It changes no compiled module. 0 leaves the number to NCCL, or on Blackwell from
NCCL 2.28 on to XLA: 32 (nccl_collectives.cc).

NCCL's variable overrides XLA's option, and also caps a table's channels.
"""

from __future__ import annotations

from collections.abc import Mapping

from lagom_xla.flags import environment

OPTION = "xla_gpu_nccl_collective_max_nchannels"
# Maximum number of channels (CTAs) of a communicator.
VARIABLE = "NCCL_MAX_CTAS"


def most(options: Mapping[str, object]) -> int | None:
  """The cap that a step has with these options and this XLA_FLAGS."""
  value = str(options.get(OPTION, environment.value(OPTION)))
  return int(value) if value.isdecimal() and int(value) else None


def variables(max_channels: int | None) -> Mapping[str, str]:
  """The variables that set a cap; none for no cap."""
  return {} if max_channels is None else {VARIABLE: str(max_channels)}


def missing(options: Mapping[str, object]) -> str:
  """A plan's cap as a flag; "" if XLA_FLAGS has it or there is none."""
  if most(options) == most({}):
    return ""
  return f"--{OPTION}={options[OPTION]}"
