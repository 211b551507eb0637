# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Proof that XLA makes the same of a fused module as of its program.

Without it nobody goes on from there.
"""

from __future__ import annotations

import dataclasses

from lagom_xla import cluster as cluster_lib
from lagom_xla import errors
from lagom_xla.compile.fused import after_fusion
from lagom_xla.jax_internals import request as request_lib
from lagom_xla.passes import hlo_pb2
from lagom_xla.passes.schedule import digest


@dataclasses.dataclass(frozen=True, kw_only=True)
class Proven:
  """A fused module that anybody may go on from.

  Attributes:
    fused: the module.
    scheduled: what XLA schedules from it.
  """

  fused: hlo_pb2.HloModuleProto
  scheduled: hlo_pb2.HloModuleProto


def proven(
  begun: after_fusion.Begun,
  cluster: cluster_lib.Cluster,
  request: request_lib.Request,
) -> Proven | None:
  """Sees whether XLA makes the same of a fused module as of its program.

  Args:
    begun: what a compile from the beginning gave.
    cluster: what it was compiled for.
    request: what XLA got, but for the options that had the module written down.

  Returns:
    None where there is no such module, or XLA makes something else of it.
  """
  if begun.scheduled is None or begun.fused is None:
    return None
  try:
    again = after_fusion.from_fused(begun.fused, cluster, request)
  except (errors.CompileError, errors.UnsupportedError):
    return None
  if again is None:
    return None
  if digest.of_content(again) != digest.of_content(begun.scheduled):
    return None
  return Proven(fused=begun.fused, scheduled=again)
