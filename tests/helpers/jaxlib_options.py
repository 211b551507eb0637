# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""XLA options in tests, under the names of either version of jaxlib.

Assertions about names hold for jaxlib 0.10.2 and 0.12; if these differ, a test
checks which one it has.
"""

from __future__ import annotations

from lagom_xla.flags import debug_options

LEVEL = "xla_gpu_autotune_level"
GATHER = "xla_gpu_all_gather_combine_threshold_bytes"
UNROLLING = "xla_gpu_enable_while_loop_unrolling"
BUFFERS = "xla_gpu_enable_command_buffer"
OLD = "xla_gpu_enable_pipelined_all_gather"
NEW = "xla_gpu_pipeline_all_gather"
IS_NEW = debug_options.find(NEW) is not None


def option(name: str) -> debug_options.Option:
  found = debug_options.find(name)
  assert found is not None
  return found
