# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""XLA's own estimates of what instructions take, as it writes them down.

Asked to (xla_gpu_collect_cost_model_stats), XLA's cost models write what they
believe into the backend_config of kernels and collectives, as a list of
entries called `reification_cost`. The entry "sol" is of the speed-of-light
model, by which its scheduler decides.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def time_us(backend_config: Mapping[str, Any]) -> float | None:
  """The speed-of-light estimate of an instruction, in microseconds.

  Args:
    backend_config: of the instruction, as JSON.

  Returns:
    None where XLA wrote none.
  """
  for entry in backend_config.get("reification_cost", ()):
    if entry.get("name") == "sol":
      return float(entry.get("exec_time_us", 0.0))  # 0 is left out.
  return None
