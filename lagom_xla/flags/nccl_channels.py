# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""XLA's cap on the channels of NCCL's collectives.

XLA hands it on to NCCL when an executable is the first to need a communicator,
which then keeps it (AcquireGpuClique in xla/backends/gpu/collectives/
gpu_cliques.cc), so it is for XLA_FLAGS: all executables of a process have it
then. It changes no compiled module. 0 leaves NCCL its own number, and on
Blackwell, from NCCL 2.28 on, XLA's: 32 (nccl_collectives.cc).
"""

from __future__ import annotations

from collections.abc import Mapping

from lagom_xla.flags import environment

OPTION = "xla_gpu_nccl_collective_max_nchannels"


def most(options: Mapping[str, object]) -> int | None:
  """The cap under which a step runs; None for none.

  Args:
    options: what is set on top of the XLA_FLAGS of this process.

  Raises:
    FlagsError: XLA_FLAGS names a file that is not there.
  """
  value = str(options.get(OPTION, environment.value(OPTION)))
  return int(value) if value.isdecimal() and int(value) else None
