# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""XLA options that make NCCL run all-reduces of any size."""

from __future__ import annotations

from collections.abc import Mapping

from lagom_xla.flags import debug_options
from lagom_xla.flags import xla_kernels


def options() -> Mapping[str, bool | str]:
  """The options of the installed jaxlib; from 0.12 on, it lists kinds."""
  if debug_options.find(xla_kernels.KERNELS) is not None:
    return {xla_kernels.KERNELS: ""}
  return {"xla_gpu_unsupported_use_all_reduce_one_shot_kernel": False}
