# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""XLA's options to run collectives in its own kernels instead of NCCL's.

For small all-reduces XLA chooses at compile time, and the module shows it. For
a ragged-all-to-all it chooses at run time, and no module shows it.
"""

from __future__ import annotations

from collections.abc import Mapping

from lagom_xla import errors
from lagom_xla.flags import collective_routes
from lagom_xla.flags import debug_options
from lagom_xla.flags import environment

EXCHANGES = "xla_gpu_unsupported_use_ragged_all_to_all_one_shot_kernel"
# Lists the kinds for which XLA may compile such kernels, from JAX 0.12 on.
KERNELS = "xla_gpu_experimental_use_collective_kernels"
# Without this JAX 0.12 fails if NCCL would have to replace a kernel.
_FALLBACK = "xla_gpu_allow_ragged_all_to_all_nccl_send_recv_fallback"
# Lists the kinds whose kernels may span processes of a host, from JAX 0.12 on.
_ACROSS = "xla_gpu_unsupported_use_cross_host_one_shot_kernel"

# The kernel of JAX 0.12 that exchanges symmetric buffers.
ON_DEVICE = "xla_gpu_experimental_ragged_all_to_all_use_device_kernel"
# Maximum ranks of XLA's kernel: up to JAX 0.10.2, and now (openxla/xla#47283).
_MOST_EXCHANGING = 8, 32

# Options that a schedule does not show.
UNSEEN = (EXCHANGES, _FALLBACK)


def without_exchanges() -> Mapping[str, bool]:
  """The options that make NCCL run ragged-all-to-alls."""
  fallback = {_FALLBACK: True} if _is_known(_FALLBACK) else {}
  return {EXCHANGES: False, **fallback}


def off(options: Mapping[str, object]) -> frozenset[str]:
  """Kinds for which XLA does not choose its own kernel at run time.

  Args:
    options: of the step's compile, besides XLA_FLAGS.
  """
  value = str(options.get(EXCHANGES, environment.value(EXCHANGES)))
  is_off = value.lower() in ("false", "0")
  return frozenset(["ragged-all-to-all"] if is_off else [])


def span_processes(kind: str) -> bool:
  """Whether XLA's kernel for a kind may span several processes."""
  if not _is_known(_ACROSS):
    return False
  value = environment.value(_ACROSS)
  if value is None:
    return True
  named = [name.strip().upper() for name in value.split(",")]
  own = kind.replace("-", "").upper()
  return bool({own, "ALLCOLLECTIVES"}.intersection(named))


def most_exchanging() -> int:
  """The maximum ranks of a ragged-all-to-all in XLA's kernel."""
  return _MOST_EXCHANGING[_is_known(_ACROSS)]


def exchanges_on_device(options: Mapping[str, object]) -> bool:
  """Whether XLA's device kernel runs ragged-all-to-alls.

  It has no effect without symmetric buffers (marin#7891).

  Args:
    options: of the step's compile, besides XLA_FLAGS.
  """
  has_windows = collective_routes.has_windows("ragged-all-to-all", options)
  return has_windows and collective_routes.is_on(ON_DEVICE, options)


def _is_known(name: str) -> bool:
  """Whether the installed jaxlib has an option."""
  try:
    return debug_options.find(name) is not None
  except errors.OptionsError:
    return False
