# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""The slop factor of XLA's memory limit, under which a step is compiled."""

from __future__ import annotations

from collections.abc import Mapping

from lagom_xla.flags import environment
from lagom_xla.passes.schedule import memory

OPTION = "xla_gpu_memory_limit_slop_factor"


def percent(options: Mapping[str, object]) -> float:
  """The slop factor under which a step is compiled.

  Args:
    options: what is set on top of the XLA_FLAGS of this process.

  Raises:
    FlagsError: XLA_FLAGS names a file that is not there.
  """
  today = environment.value(OPTION) or memory.DEFAULT_SLOP_PERCENT
  return float(str(options.get(OPTION, today)))
