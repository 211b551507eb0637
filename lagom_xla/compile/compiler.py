# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""XLA's compiler, run as far as is needed.

    lowered = lowered_lib.LoweredStep(step.lower(*args), cluster)
    module = compiler.schedule(lowered, config)       # to the schedule
    compilation = compiler.compile(lowered, config)   # to the end

A compile to the end gives memory figures and an executable. One that ends after
the scheduler takes a fraction of the time, needs no CUDA toolkit, and is all
that a search needs.

The form of the program (`rewriting.py`) comes first; all else acts on what the
rewrite made. Orders come last, and act on what XLA's scheduler made.
"""

from __future__ import annotations

import contextlib
import dataclasses
from typing import Any

from lagom_xla import errors
from lagom_xla.compile import config as config_lib
from lagom_xla.compile import devices as devices_lib
from lagom_xla.compile import lowered as lowered_lib
from lagom_xla.compile import persistent_cache
from lagom_xla.compile import sentences
from lagom_xla.passes import combine
from lagom_xla.passes import hlo
from lagom_xla.passes import in_compile
from lagom_xla.passes import registry
from lagom_xla.passes.program import form as form_lib
from lagom_xla.passes.schedule import orders as orders_lib

# Makes XLA write its own estimate of each kernel into a schedule. It has the
# tables for some GPUs only; for others the module comes without estimates.
ESTIMATES = "xla_gpu_collect_cost_model_stats"
# Those for which XLA was seen to have no tables; asking again costs a compile.
_gpus_without_estimates: set[str] = set()


def schedule(
  lowered: lowered_lib.Lowered,
  config: config_lib.XlaConfig = config_lib.DEFAULT,
) -> hlo.Module:
  """Compiles up to the schedule, with XLA's estimates where it has them.

  Args:
    lowered: what to compile.
    config: what XLA gets beside it.

  Raises:
    CompileError: XLA refused, or never scheduled a module of that name.
    CombineError: the module cannot have these combine groups.
    ProgramError: the program cannot have this form.
    ScheduleError: the schedule cannot have these orders.
  """
  asked_for = sentences.asked_for(lowered, config)
  module = _schedule(lowered, config, asked_for)
  return orders_lib.apply(module, config.orders)


def _schedule(
  lowered: lowered_lib.Lowered, config: config_lib.XlaConfig, asked_for: str
) -> hlo.Module:
  """XLA's schedule, in XLA's order."""
  lowered, config = _resolved(lowered, config, is_run=False)

  def run(estimates: bool) -> hlo.Module:
    options = {ESTIMATES: estimates, **config.options}
    with in_compile.grouped(lowered.name, config.combine_groups):
      return _run_to(
        registry.Stage.POST_SCHEDULER, lowered, config, options, asked_for
      )

  gpu = lowered.cluster.gpu.name
  if ESTIMATES in config.options or gpu in _gpus_without_estimates:
    return run(estimates=False)
  try:
    return run(estimates=True)
  except errors.CompileError:
    scheduled = run(estimates=False)
  _gpus_without_estimates.add(gpu)
  return scheduled


def before_combining(
  lowered: lowered_lib.Lowered,
  config: config_lib.XlaConfig = config_lib.DEFAULT,
) -> hlo.Module:
  """Compiles until XLA would combine collectives.

  What comes of it names the collectives that combine groups may have; the
  config's own groups play no part.

  Raises:
    CompileError: XLA refused, or never had a module of that name.
    ProgramError: the program cannot have this form.
  """
  asked_for = sentences.asked_for(lowered, config)
  lowered = lowered_lib.in_form(lowered, config.program)
  # Never the options of a compile to the end: JAX remembers its executable,
  # and would have nothing left to compile.
  options = {ESTIMATES: False, **config.options}
  return _run_to(
    registry.Stage.PRE_SCHEDULER, lowered, config, options, asked_for
  )


def compile(  # pylint: disable=redefined-builtin
  lowered: lowered_lib.Lowered,
  config: config_lib.XlaConfig = config_lib.DEFAULT,
) -> lowered_lib.Compilation:
  """Compiles to the end.

  Raises:
    CompileError: XLA refused, or cannot generate code for the GPU; or the
      module donates inputs, and combine groups or orders would make this JAX
      forget that; or the pass that sets combine groups or orders was not run.
    CombineError: the module cannot have these combine groups.
    ProgramError: the program cannot have this form.
    ScheduleError: the schedule cannot have these orders.
  """
  cluster = lowered.cluster
  obstacle = cluster.gpu.compile_obstacle
  if obstacle:
    raise errors.CompileError(
      f"No full compile for {cluster.name}: {obstacle}. Its schedule can"
      " still be inspected and tuned."
    )
  asked_for = sentences.asked_for(lowered, config)
  groups = config.combine_groups
  lowered, config = _resolved(lowered, config, is_run=lowered.is_run)
  options = {**lowered.options_to_the_end, **config.options}
  if config.orders:
    lowered = lowered.copied()  # What JAX remembers has another order.
  # The executable of a compile-only device can be stored, but not loaded.
  can_load = devices_lib.is_live(cluster) and not config.orders
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
      executable = _run_compiler(lowered, config, options)
  compilation = lowered.compilation(executable)
  orders_lib.check_followed(compilation.module, config.orders)
  is_seen = combine.labels(compilation.module, groups or ())
  # On CPUs the pass itself combines, and leaves nothing to know it by.
  if groups is not None and lowered.platform == "cuda" and not is_seen:
    raise errors.CompileError(
      f"XLA compiled {lowered.name} without running the pass that sets combine"
      " groups; make the plan without them."
    )
  return compilation


def _resolved(
  lowered: lowered_lib.Lowered, config: config_lib.XlaConfig, *, is_run: bool
) -> tuple[lowered_lib.Lowered, config_lib.XlaConfig]:
  """The program in its form, and with no pass of ours that loses donation.

  Where a pass makes XLA forget donated inputs (`registry.keeps_donation`), a
  compile whose executable nobody runs starts anew from the module that the pass
  would return: it says itself what is donated. XLA schedules by the memory that
  a step needs, which is another where donated inputs are forgotten.
  """
  groups = config.combine_groups
  lowered = lowered_lib.in_form(lowered, config.program)
  config = dataclasses.replace(config, program=form_lib.AS_WRITTEN)
  if groups is None:
    return lowered, config
  if not (is_run or registry.keeps_donation()):
    module = before_combining(lowered, config)
    rewritten = hlo.load(combine.rewrite(module, groups))
    lowered = lowered_lib.LoweredModule(rewritten, lowered.cluster)
    groups = None
  return lowered, config_lib.XlaConfig(
    options=combine.options(config.combine_groups or (), config.options),
    combine_groups=groups,
    scheduler_profile=config.scheduler_profile,
    orders=config.orders,
  )


def _run_to(
  stage: registry.Stage,
  lowered: lowered_lib.Lowered,
  config: config_lib.XlaConfig,
  options: lowered_lib.Options,
  asked_for: str,
) -> hlo.Module:
  # What comes out of the cache is not scheduled any more.
  with persistent_cache.off(), sentences.on_failure(asked_for):
    proto = in_compile.run_to(
      stage, lambda: _run_compiler(lowered, config, options), lowered.name
    )
  if proto is None:
    raise errors.CompileError(
      f"{asked_for}: XLA finished without scheduling a module called"
      f" {lowered.name}."
    )
  return hlo.Module(proto, lowered.cluster.num_devices)


def _run_compiler(
  lowered: lowered_lib.Lowered,
  config: config_lib.XlaConfig,
  options: lowered_lib.Options,
) -> Any:
  profile = config.scheduler_profile
  return lowered.run_compiler(
    options, None if profile is None else profile.encode()
  )
