# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Options of XLA that tests ask for, by the names of either version of jaxlib.

What is asserted of names holds for jaxlib 0.10.2 and 0.12 alike; where they
differ, a test asks which of the two it has.
"""

from __future__ import annotations

from collections.abc import Mapping
import functools
from typing import Any

from hypothesis import strategies as st
import jax

from lagom_xla.flags import debug_options
from lagom_xla.flags import probe

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


def compile_with(options: Mapping[str, Any]) -> jax.stages.Compiled:
  """Compiles for this machine's CPU with XLA options."""
  return _lowered().compile(compiler_options=dict(options))


@functools.cache
def _lowered() -> jax.stages.Lowered:
  return jax.jit(lambda x: x + 1).lower(1.0)


def values(text: str) -> dict[str, debug_options.Value]:
  """Of all options in a process with these flags."""
  (answer,) = probe.ask([text])
  assert not answer.is_fatal, answer.error
  return debug_options.values(answer.compile_options)


def sets(text: str) -> dict[str, object]:
  """The options that flags set; lists without an order, or repetitions."""
  return {
    name: frozenset(str(value).split(",")) if option.is_repeated else value
    for name, value in values(text).items()
    if (option := debug_options.find(name)) is not None
  }


SOME_FLAGS = st.sampled_from(
  [
    f"--{LEVEL}=1",
    f"--{LEVEL}=4",
    f"--{OLD}=true",
    f"--{OLD}=false",
    "--xla_disable_hlo_passes=a",
    "--xla_disable_hlo_passes=b",
    "--xla_gpu_enable_command_buffer=+COLLECTIVES",
    "--xla_gpu_enable_command_buffer=COLLECTIVES",
    "--xla_gpu_enable_command_buffer=+FUSION",
    "--xla_gpu_enable_cudnn_fmha=true",
    "--xla_gpu_analytical_latency_estimator_options=rtt_us=1",
    "--xla_gpu_analytical_latency_estimator_options=rtt_us=2",
    "--xla_dump_to='a b'",
  ]
)
