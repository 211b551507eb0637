# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Flags, what they set in XLA, and what a check finds of them."""

from __future__ import annotations

from hypothesis import strategies as st

from jaxlib_options import LEVEL
from jaxlib_options import OLD
from lagom_xla.flags import debug_options
from lagom_xla.flags import probe


def values(text: str) -> dict[str, debug_options.Value]:
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


SOME = st.sampled_from(
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
