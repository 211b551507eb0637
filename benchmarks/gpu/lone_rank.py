# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Lone rank: makes a NCCL communicator of one GPU, which loads the tuner.

python -m benchmarks.gpu.lone_rank LIBRARY
"""

from __future__ import annotations

import ctypes
import sys


def main() -> None:
  """Makes the communicator, and says what NCCL returned."""
  library = ctypes.CDLL(sys.argv[1])
  communicator, device = ctypes.c_void_p(), ctypes.c_int(0)
  status = library.ncclCommInitAll(
    ctypes.byref(communicator), 1, ctypes.byref(device)
  )
  print(f"ncclCommInitAll returned {status}", flush=True)
  sys.exit(status)


if __name__ == "__main__":
  main()
