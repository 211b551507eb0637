# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Compiles that workers are given, and the text of what comes out."""

from __future__ import annotations

import jax

from lagom_xla import cluster as cluster_lib
from lagom_xla.compile import config as config_lib
from lagom_xla.compile import target as target_lib
from lagom_xla.passes import hlo

H100S = cluster_lib.parse("1x8xh100")
IN_FLIGHT = "xla_gpu_experimental_parallel_collective_overlap_limit"
# XLA checks that as many may be in flight as broadcasts, and ends the process.
ABORTS = config_lib.XlaConfig(options={IN_FLIGHT: -1})
# How long a process may take to do what it does at once.
LONGEST_S = 60


def in_flight(limit: int) -> config_lib.XlaConfig:
  """A config that compiles on their own, from one fused module."""
  return config_lib.XlaConfig(options={IN_FLIGHT: limit})


def target(lowered: jax.stages.Lowered) -> target_lib.StepTarget:
  """A step to compile, here until it is given workers."""
  return target_lib.of_step(lowered, H100S, name="step")


def text(module: hlo.Module) -> str:
  """All of a module but its number, and those of its stack frames.

  A process numbers the modules and the frames that it meets.
  """
  proto = hlo.hlo_pb2.HloModuleProto()
  proto.CopyFrom(module.proto)
  proto.ClearField("id")
  proto.ClearField("stack_frame_index")
  for computation in proto.computations:
    for instruction in computation.instructions:
      instruction.metadata.ClearField("stack_frame_id")
  return str(proto)
