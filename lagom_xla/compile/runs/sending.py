# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Sending of compiles to workers, where that is possible.

What can be sent is: a step or a module for compile-only devices that calls
nothing in this process. Live GPUs belong to one process, which then compiles,
too; so it does for CPUs that stand for GPUs.
"""

from __future__ import annotations

import dataclasses

from lagom_xla.compile import config as config_lib
from lagom_xla.compile import pending as pending_lib
from lagom_xla.compile.fused import after_fusion
from lagom_xla.compile.lowering import lowered as lowered_lib
from lagom_xla.compile.runs import asked as asked_lib
from lagom_xla.compile.runs import deviceless
from lagom_xla.compile.runs import sentences
from lagom_xla.compile.workers import job as job_lib
from lagom_xla.compile.xla import before_code
from lagom_xla.jax_internals import persistent_cache
from lagom_xla.passes import registry


def send(
  stage: registry.Stage | None, asked: asked_lib.Asked
) -> pending_lib.Pending[job_lib.Result] | None:
  """Starts a compile in a worker.

  Args:
    stage: where it ends; None at the end.
    asked: what to compile.

  Returns:
    None where only this process can compile it.

  Raises:
    CompileError: XLA refuses the options.
  """
  pool = asked.lowered.workers
  if pool is None or not pool.is_usable:
    return None
  if not deviceless.is_compile_only(asked.lowered):
    return None
  job = _job(stage, asked)
  if job is None:
    return None
  future = pool.submit(job)

  def result() -> job_lib.Result:
    try:
      with sentences.on_failure(asked.words):
        return future.result()
    finally:
      pool.forget(job)

  return pending_lib.Pending(result=result, drop=lambda: pool.drop(job))


def _job(
  stage: registry.Stage | None, asked: asked_lib.Asked
) -> job_lib.Job | None:
  """What a worker gets; None where the program calls this process."""
  lowered, config = asked.lowered, asked.config
  needs_code = generates_code(lowered, asked.options)
  options = deviceless.asked(
    lowered,
    asked.options,
    keeps_names=asked.keeps_names,
    chooses_tiles=asked.chooses_tiles,
    generates_code=needs_code and stage is None,
  )
  # It ends where JAX would call XLA, in that JAX's own cache has no part.
  with persistent_cache.off(), sentences.on_failure(asked.words):
    request = lowered.request(options, profile(config))
  if request is None:
    return None
  job = job_lib.Job(
    name=lowered.name,
    cluster=lowered.cluster,
    request=request,
    stage=stage,
    groups=config.combine_groups,
    orders=config.orders if stage is None else {},
    shows=stage is None and not config.orders,
    needs_code=needs_code,
    # Reports name lines of the step as it runs by default.
    keeps_lines=config.is_default and not asked.chooses_tiles,
  )
  if not (asked.shares_fusion and after_fusion.is_possible(options)):
    return job
  fusion = _fusion(job, lowered, options)
  return dataclasses.replace(job, fusion=fusion, must_begin=asked.must_begin)


def generates_code(
  lowered: lowered_lib.Lowered, options: lowered_lib.Options
) -> bool:
  """Whether a compile to the end generates code, wherever it is."""
  pool = lowered.workers
  is_wanted = pool is None or pool.generates_code
  return is_wanted or not before_code.is_possible(options)


def _fusion(
  job: job_lib.Job, lowered: lowered_lib.Lowered, options: lowered_lib.Options
) -> str:
  """What jobs share that XLA fuses alike, whichever their stage.

  Args:
    job: one of them.
    lowered: what it compiles.
    options: all that XLA is asked.
  """
  with persistent_cache.off():
    request = lowered.request(after_fusion.before(options), None)
  if request is None:
    return ""
  fused = dataclasses.replace(job.shown, request=request, keeps_lines=False)
  return f"{fused.digest}-fused"


def profile(config: config_lib.XlaConfig) -> bytes | None:
  """A config's scheduler profile as XLA takes it."""
  text = config.scheduler_profile
  return None if text is None else text.encode()
