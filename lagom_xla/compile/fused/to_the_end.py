# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Compiles to the end that start from a fused module.

A step that is short of memory is judged by what runs, with what XLA computes
again, and by its peak of memory. XLA does that to a schedule, whatever the
schedule was made from.
"""

from __future__ import annotations

import dataclasses

from lagom_xla import cluster as cluster_lib
from lagom_xla import temporary
from lagom_xla.compile.fused import remaining_passes
from lagom_xla.compile.xla import before_code
from lagom_xla.compile.xla import estimates
from lagom_xla.compile.xla import pjrt_compile
from lagom_xla.jax_internals import request as request_lib
from lagom_xla.passes import hlo_pb2
from lagom_xla.passes import in_compile
from lagom_xla.passes import registry


@dataclasses.dataclass(frozen=True, kw_only=True)
class Ended:
  """What a compile to the end gave.

  Attributes:
    scheduled: the module as scheduled, with XLA's estimates.
    runs: the module that runs.
    peak_bytes: device memory at the peak of a step.
  """

  scheduled: hlo_pb2.HloModuleProto
  runs: hlo_pb2.HloModuleProto
  peak_bytes: int


def from_fused(
  fused: hlo_pb2.HloModuleProto,
  cluster: cluster_lib.Cluster,
  request: request_lib.Request,
) -> Ended | None:
  """What XLA makes of a fused module, before it generates code.

  Args:
    fused: of `after_fusion.from_the_beginning`.
    cluster: what it is compiled for.
    request: what XLA would get to compile it from the beginning.

  Returns:
    None where XLA shows no schedule on its way.

  Raises:
    Exception: XLA refused.
  """
  shown: list[hlo_pb2.HloModuleProto] = []
  with (
    temporary.folder() as folder,
    in_compile.shown(registry.Stage.POST_SCHEDULER, shown.append, fused.name),
  ):
    ending = request_lib.with_options(
      request, before_code.options(fused.name, folder), None
    )
    serialized = fused.SerializeToString()
    options = remaining_passes.options(fused, cluster, ending)
    assigned = before_code.run(
      folder, lambda: pjrt_compile.compile_hlo(cluster, serialized, options)
    )
  if not shown:
    return None
  estimates.take_out(assigned.module)
  return Ended(
    scheduled=shown[0],
    runs=assigned.module,
    peak_bytes=assigned.peak_bytes,
  )
