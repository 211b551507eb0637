# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Compiles for workers, and the text of their results."""

from __future__ import annotations

import jax

from lagom_xla import cluster as cluster_lib
from lagom_xla.compile import config as config_lib
from lagom_xla.compile import target as target_lib
from lagom_xla.passes import hlo

H100S = cluster_lib.parse("1x8xh100")
IN_FLIGHT = "xla_gpu_experimental_parallel_collective_overlap_limit"
# A negative number in flight fails one of XLA's checks, which aborts.
ABORTS = config_lib.XlaConfig(options={IN_FLIGHT: -1})
# Time limit for things that a process does immediately.
LONGEST_S = 60


def in_flight(limit: int) -> config_lib.XlaConfig:
  """A config; each is a compile of its own, from one fused module."""
  return config_lib.XlaConfig(options={IN_FLIGHT: limit})


def target(lowered: jax.stages.Lowered) -> target_lib.StepTarget:
  """A step to compile, in this process until it gets workers."""
  return target_lib.of_step(lowered, H100S, name="step")


def text(module: hlo.Module) -> str:
  """A module without its number and those of its stack frames.

  A process numbers modules and frames in the order of their appearance.
  """
  proto = hlo.hlo_pb2.HloModuleProto()
  proto.CopyFrom(module.proto)
  proto.ClearField("id")
  proto.ClearField("stack_frame_index")
  for computation in proto.computations:
    for instruction in computation.instructions:
      instruction.metadata.ClearField("stack_frame_id")
  return str(proto)
