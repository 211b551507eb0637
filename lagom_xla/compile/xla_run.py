# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""A run of XLA, in a worker or in this process.

What can be sent to a worker is: a step or a module for compile-only devices
that calls nothing in this process. Live GPUs belong to one process, which then
compiles, too; so it does for CPUs that stand for GPUs.
"""

from __future__ import annotations

import contextlib
import dataclasses

import jax

from lagom_xla import errors
from lagom_xla.compile import after_fusion
from lagom_xla.compile import config as config_lib
from lagom_xla.compile import devices as devices_lib
from lagom_xla.compile import lowered as lowered_lib
from lagom_xla.compile import pending as pending_lib
from lagom_xla.compile import persistent_cache
from lagom_xla.compile import sentences
from lagom_xla.compile.workers import job as job_lib
from lagom_xla.passes import hlo
from lagom_xla.passes import in_compile
from lagom_xla.passes import registry


def start_to(
  stage: registry.Stage,
  lowered: lowered_lib.Lowered,
  config: config_lib.XlaConfig,
  options: lowered_lib.Options,
  asked_for: str,
  *,
  shares_fusion: bool = False,
  must_begin: bool = False,
) -> pending_lib.Pending[hlo.Module]:
  """Starts a compile up to a stage, with a config's groups but not its orders.

  Args:
    stage: where it ends.
    lowered: what to compile, in the config's form.
    config: what XLA gets beside it.
    options: all XLA options; the config's have no part in it.
    asked_for: the beginning of an error message.
    shares_fusion: whether others of the same program may go on from its fused
      module, and it from theirs.
    must_begin: whether it never goes on from another's.

  Raises:
    CompileError: XLA refuses the options.
  """

  def finish(proto: hlo.hlo_pb2.HloModuleProto | None) -> hlo.Module:
    if proto is None:
      raise errors.CompileError(
        f"{asked_for}: XLA finished without scheduling a module called"
        f" {lowered.name}."
      )
    return hlo.Module(proto, lowered.cluster.num_devices)

  def here() -> hlo.Module:
    # What comes out of the cache is not scheduled any more.
    with persistent_cache.off(), sentences.on_failure(asked_for):
      with in_compile.grouped(lowered.name, config.combine_groups):
        proto = in_compile.run_to(
          stage, lambda: run(lowered, config, options), lowered.name
        )
    return finish(proto)

  sent = _send(
    stage,
    lowered,
    config,
    options,
    asked_for,
    shares_fusion=shares_fusion,
    must_begin=must_begin,
  )
  if sent is None:
    return pending_lib.Pending(result=here)

  def there() -> hlo.Module:
    try:
      module = sent.result().module
    except errors.WorkerError:
      return here()
    parse = hlo.hlo_pb2.HloModuleProto.FromString
    return finish(None if module is None else parse(module))

  return pending_lib.Pending(result=there, drop=sent.drop)


def start_to_the_end(
  lowered: lowered_lib.Lowered,
  config: config_lib.XlaConfig,
  options: lowered_lib.Options,
  asked_for: str,
) -> pending_lib.Pending[lowered_lib.Compilation]:
  """Starts a compile to the end, with a config's groups and orders.

  Raises:
    CompileError: XLA refuses the options.
  """

  def here() -> lowered_lib.Compilation:
    return _to_the_end_here(lowered, config, options, asked_for)

  sent = _send(None, lowered, config, options, asked_for)
  if sent is None:
    return pending_lib.Pending(result=here)

  def there() -> lowered_lib.Compilation:
    try:
      result = sent.result()
    except errors.WorkerError:
      return here()
    assert result.module is not None
    return lowered_lib.uncalled(
      result.module, lowered.cluster, result.peak_bytes
    )

  return pending_lib.Pending(result=there, drop=sent.drop)


def _to_the_end_here(
  lowered: lowered_lib.Lowered,
  config: config_lib.XlaConfig,
  options: lowered_lib.Options,
  asked_for: str,
) -> lowered_lib.Compilation:
  if config.orders:
    lowered = lowered.copied()  # What JAX remembers has another order.
  # The executable of a compile-only device can be stored, but not loaded.
  can_load = devices_lib.is_live(lowered.cluster) and not config.orders
  cache = contextlib.nullcontext() if can_load else persistent_cache.off()
  with cache, sentences.on_failure(asked_for):
    with (
      in_compile.grouped(
        lowered.name,
        config.combine_groups,
        platform=lowered.platform,
        must_keep_donation=True,
      ),
      in_compile.reordered(
        lowered.name, config.orders, platform=lowered.platform
      ),
    ):
      executable = run(lowered, config, options)
  return lowered.compilation(executable)


def run(
  lowered: lowered_lib.Lowered,
  config: config_lib.XlaConfig,
  options: lowered_lib.Options,
) -> object:
  """Runs XLA's compiler in this process."""
  return lowered.run_compiler(options, _profile(config))


def _send(
  stage: registry.Stage | None,
  lowered: lowered_lib.Lowered,
  config: config_lib.XlaConfig,
  options: lowered_lib.Options,
  asked_for: str,
  *,
  shares_fusion: bool = False,
  must_begin: bool = False,
) -> pending_lib.Pending[job_lib.Result] | None:
  """A compile in a worker; None where only this process can compile it."""
  pool = lowered.workers
  if pool is None or not pool.is_usable or not _is_compile_only(lowered):
    return None
  # It ends where JAX would call XLA, in that JAX's own cache has no part.
  with persistent_cache.off(), sentences.on_failure(asked_for):
    request = lowered.request(options, _profile(config))
  if request is None:
    return None
  job = job_lib.Job(
    name=lowered.name,
    cluster=lowered.cluster,
    request=request,
    stage=stage,
    groups=config.combine_groups,
    orders=config.orders if stage is None else {},
    # Reports name lines of the step as it runs by default.
    keeps_lines=config.is_default,
  )
  if shares_fusion and after_fusion.is_possible(options):
    fusion = _fusion(job, lowered, options)
    job = dataclasses.replace(job, fusion=fusion, must_begin=must_begin)
  future = pool.submit(job)

  def result() -> job_lib.Result:
    try:
      with sentences.on_failure(asked_for):
        return future.result()
    finally:
      pool.forget(job)

  return pending_lib.Pending(result=result, drop=lambda: pool.drop(job))


def _fusion(
  job: job_lib.Job, lowered: lowered_lib.Lowered, options: lowered_lib.Options
) -> str:
  """What jobs share that XLA fuses alike."""
  with persistent_cache.off():
    request = lowered.request(after_fusion.before(options), None)
  if request is None:
    return ""
  before = dataclasses.replace(job, request=request, keeps_lines=False)
  return f"{before.digest}-fused"


def _is_compile_only(lowered: lowered_lib.Lowered) -> bool:
  """Whether nothing in this process takes part, neither GPUs nor CPUs.

  A GPU that is here times kernels, though it is compiled for others.
  """
  return lowered.platform == "cuda" and jax.default_backend() != "gpu"


def _profile(config: config_lib.XlaConfig) -> bytes | None:
  profile = config.scheduler_profile
  return None if profile is None else profile.encode()
