# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""The run of one job, in a worker."""

from __future__ import annotations

import contextlib
import dataclasses
from typing import Any

from lagom_xla import errors
from lagom_xla.compile import _jax_request
from lagom_xla.compile import after_fusion
from lagom_xla.compile import devices as devices_lib
from lagom_xla.compile import memory_stats
from lagom_xla.compile.workers import job as job_lib
from lagom_xla.passes import hlo_pb2
from lagom_xla.passes import in_compile


def run(job: job_lib.Job) -> job_lib.Result:
  """Compiles a job as far as it asks for.

  Raises:
    LagomError: one of our passes refused.
    Exception: XLA refused.
  """
  devices = devices_lib.devices(job.cluster)

  def compile_() -> Any:
    return _jax_request.compile(job.request, devices)

  if job.leads:
    begun = after_fusion.from_the_beginning(job.name, job.cluster, job.request)
    fused = None if begun.fused is None else begun.fused.SerializeToString()
    return dataclasses.replace(_scheduled(begun.scheduled), fused=fused)
  if job.fused is not None:
    fused = hlo_pb2.HloModuleProto.FromString(job.fused)
    # What XLA refuses, it says of a compile from the beginning.
    with contextlib.suppress(errors.CompileError):
      found = after_fusion.from_fused(fused, job.cluster, job.request)
      if found is not None:
        return _scheduled(found)
  is_to_the_end = job.stage is None
  with (
    in_compile.grouped(job.name, job.groups, must_keep_donation=is_to_the_end),
    in_compile.reordered(job.name, job.orders),
  ):
    if job.stage is None:
      return _to_the_end(compile_())
    return _scheduled(in_compile.run_to(job.stage, compile_, job.name))


def _scheduled(proto: hlo_pb2.HloModuleProto | None) -> job_lib.Result:
  module = None if proto is None else proto.SerializeToString()
  return job_lib.Result(module=module)


def _to_the_end(executable: Any) -> job_lib.Result:
  (module,) = executable.hlo_modules()
  return job_lib.Result(
    module=module.as_serialized_hlo_module_proto(),
    peak_bytes=memory_stats.peak_bytes(executable.get_compiled_memory_stats()),
  )
