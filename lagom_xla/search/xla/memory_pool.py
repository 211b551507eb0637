# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""JAX's memory pool: how much of a GPU's memory a step may use.

XLA's allocator takes a share of the GPU's memory, by default 75 %; an
environment variable changes it (jaxlib/xla_client.py). With
XLA_PYTHON_CLIENT_PREALLOCATE=false the pool grows up to the same size
(CreateBFCAllocator in xla/pjrt/gpu/gpu_helpers.cc). The platform allocator has
no pool, and unified memory may exceed the GPU's.
"""

from __future__ import annotations

import math
import os

from lagom_xla import errors
from lagom_xla.costs import in_words

# The first replaces the second, which jaxlib deprecates.
_VARIABLES = ("XLA_CLIENT_MEM_FRACTION", "XLA_PYTHON_CLIENT_MEM_FRACTION")
_DEFAULT_SHARE = 0.75


def share() -> float:
  """The share of a GPU's memory that JAX's pool may take in this process.

  Raises:
    FlagsError: a variable holds no valid share.
  """
  allocator = os.environ.get("XLA_PYTHON_CLIENT_ALLOCATOR", "")
  if allocator.lower() == "platform":
    return 1.0
  name, text = next(
    ((n, v) for n in _VARIABLES if (v := os.environ.get(n))),
    ("", str(_DEFAULT_SHARE)),
  )
  try:
    value = float(text)
  except ValueError:
    value = math.nan
  if not 0 < value < math.inf:
    raise errors.FlagsError(
      f"{name} is {text!r}; set it to the share of a GPU's memory that JAX may"
      " take, such as 0.9."
    )
  is_unified = os.environ.get("TF_FORCE_UNIFIED_MEMORY", "").lower()
  if is_unified in ("1", "true"):
    return max(value, 1.0)
  return min(value, 1.0)


def num_bytes(device_bytes: int) -> int:
  """The pool's size on a GPU with this much memory, in bytes."""
  return int(share() * device_bytes)


def of_a_gpu(device_bytes: int) -> str:
  """The memory that a step may use, in words."""
  # GPUs are sold by GiB: an H100 of 80 GB has 79.1 of them.
  whole = f"{in_words.gigabytes(device_bytes)} ({device_bytes / 2**30:.1f} GiB)"
  if share() == 1:
    return f"the {whole} of a GPU"
  pool = in_words.gigabytes(num_bytes(device_bytes))
  return f"the {pool} that JAX takes of {whole} per GPU"


def advice(needed_bytes: int, device_bytes: int) -> str:
  """How to let JAX take `needed_bytes`; "" if it can or the GPU has less."""
  if not num_bytes(device_bytes) < needed_bytes <= device_bytes:
    return ""
  return f" Set {_VARIABLES[1]} to let JAX take more than {share():.0%}."
