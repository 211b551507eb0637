# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""The run of one job, in a worker."""

from __future__ import annotations

from collections.abc import Callable, Iterator
import contextlib
import dataclasses
import pathlib
from typing import Any

from lagom_xla import errors
from lagom_xla import temporary
from lagom_xla.compile import devices as devices_lib
from lagom_xla.compile.fused import after_fusion
from lagom_xla.compile.fused import proof
from lagom_xla.compile.fused import to_the_end
from lagom_xla.compile.workers import job as job_lib
from lagom_xla.compile.xla import before_code
from lagom_xla.compile.xla import estimates
from lagom_xla.compile.xla import memory_stats
from lagom_xla.jax_internals import request as request_lib
from lagom_xla.passes import hlo_pb2
from lagom_xla.passes import in_compile
from lagom_xla.passes import registry

_Show = Callable[[job_lib.Shown], None]


def run(job: job_lib.Job, show: _Show = lambda _: None) -> job_lib.Result:
  """Compiles a job as far as it asks for.

  Args:
    job: the job.
    show: called with its schedule on the way, if it shows that.

  Raises:
    LagomError: one of our passes refused.
    Exception: XLA refused.
  """
  if job.fused is None:
    return _from_the_beginning(job, show)
  fused = hlo_pb2.HloModuleProto.FromString(job.fused)
  # What XLA refuses, it says of a compile from the beginning.
  with contextlib.suppress(errors.CompileError):
    found = _from_fused(job, fused, show)
    if found is not None:
      return dataclasses.replace(found, is_from_fused=True)
  return _from_the_beginning(job, show)


def _from_the_beginning(job: job_lib.Job, show: _Show) -> job_lib.Result:
  if job.stage is None:
    return _to_the_end(job, show)
  if job.leads:
    return _leading(job)
  with in_compile.grouped(job.name, job.groups):
    return _scheduled(
      in_compile.run_to(job.stage, lambda: _compile(job, job.request), job.name)
    )


def _leading(job: job_lib.Job) -> job_lib.Result:
  """A schedule that goes on from the fused module as others will, if it may."""
  begun = after_fusion.from_the_beginning(job.name, job.cluster, job.request)
  proven = proof.proven(begun, job.cluster, job.request)
  if proven is None:
    return _scheduled(begun.scheduled)
  scheduled = begun.scheduled if job.must_begin else proven.scheduled
  return dataclasses.replace(
    _scheduled(scheduled),
    fused=proven.fused.SerializeToString(),
    is_from_fused=not job.must_begin,
  )


def _compile(job: job_lib.Job, request: request_lib.Request) -> Any:
  return request_lib.compile(request, devices_lib.devices(job.cluster))


def _scheduled(proto: hlo_pb2.HloModuleProto | None) -> job_lib.Result:
  module = None if proto is None else proto.SerializeToString()
  return job_lib.Result(module=module)


def _from_fused(
  job: job_lib.Job, fused: hlo_pb2.HloModuleProto, show: _Show
) -> job_lib.Result | None:
  """What a fused module gives; None where XLA may make something else."""
  if job.stage is not None:
    found = after_fusion.from_fused(fused, job.cluster, job.request)
    return None if found is None else _scheduled(found)
  ended = to_the_end.from_fused(fused, job.cluster, job.request)
  if ended is None:
    return None
  if job.shows:
    scheduled = ended.scheduled.SerializeToString()
    show(job_lib.Shown(module=scheduled, is_from_fused=True))
  return job_lib.Result(
    module=ended.runs.SerializeToString(), peak_bytes=ended.peak_bytes
  )


def _to_the_end(job: job_lib.Job, show: _Show) -> job_lib.Result:
  """Compiles as far as there is something to know, whatever it shows."""
  with temporary.folder() as folder:
    with (
      in_compile.grouped(job.name, job.groups, must_keep_donation=True),
      in_compile.reordered(job.name, job.orders),
      _showing(job, show) as schedules,
    ):
      assigned = _assigned(job, folder)
    estimates.take_out(assigned.module)
    result = job_lib.Result(
      module=assigned.module.SerializeToString(),
      peak_bytes=assigned.peak_bytes,
    )
    if not job.leads:
      return result
    begun = after_fusion.Begun(
      scheduled=schedules[0] if schedules else None,
      fused=after_fusion.written(folder),
    )
  proven = proof.proven(begun, job.cluster, job.request)
  if proven is None:
    return result
  return dataclasses.replace(result, fused=proven.fused.SerializeToString())


def _assigned(job: job_lib.Job, folder: pathlib.Path) -> before_code.Assigned:
  """The module that runs and its memory, without code where that is enough."""
  request = job.request
  if job.leads:
    writing = after_fusion.options(job.name, folder)
    request = request_lib.with_options(request, writing, None)
  if job.needs_code:
    return _of_executable(_compile(job, request))
  ending = before_code.options(job.name, folder)
  request = request_lib.with_options(request, ending, None)
  return before_code.run(folder, lambda: _compile(job, request))


@contextlib.contextmanager
def _showing(
  job: job_lib.Job, show: _Show
) -> Iterator[list[hlo_pb2.HloModuleProto]]:
  """Shows a job's schedule, if it is to; gives it, once it is there."""
  schedules: list[hlo_pb2.HloModuleProto] = []
  if not job.shows:
    yield schedules
    return

  def note(module: hlo_pb2.HloModuleProto) -> None:
    if not schedules:
      schedules.append(module)
      show(job_lib.Shown(module=module.SerializeToString()))

  with in_compile.shown(registry.Stage.POST_SCHEDULER, note, job.name):
    yield schedules


def _of_executable(executable: Any) -> before_code.Assigned:
  (module,) = executable.hlo_modules()
  serialized = module.as_serialized_hlo_module_proto()
  return before_code.Assigned(
    module=hlo_pb2.HloModuleProto.FromString(serialized),
    peak_bytes=memory_stats.peak_bytes(executable.get_compiled_memory_stats()),
  )
