# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""XLA's compiler, run as far as is needed.

    lowered = lowered_step.LoweredStep(step.lower(*args), cluster)
    module = compiler.schedule(lowered, config)       # to the schedule
    compilation = compiler.compile(lowered, config)   # to the end

A compile to the end gives memory figures and an executable. One that ends after
the scheduler takes a fraction of the time, needs no CUDA toolkit, and is all
that a search needs.

The form of the program (`lowering/rewriting.py`) comes first; all else acts on
what the rewrite made. Orders come last, and act on what XLA's scheduler made.
"""

from __future__ import annotations

from collections.abc import Callable
import dataclasses
from typing import TypeVar

from lagom_xla import errors
from lagom_xla.compile import config as config_lib
from lagom_xla.compile import pending as pending_lib
from lagom_xla.compile.lowering import lowered as lowered_lib
from lagom_xla.compile.lowering import lowered_module
from lagom_xla.compile.runs import asked as asked_lib
from lagom_xla.compile.runs import deviceless
from lagom_xla.compile.runs import sentences
from lagom_xla.compile.runs import xla_run
from lagom_xla.compile.xla import estimates as estimates_lib
from lagom_xla.passes import combine
from lagom_xla.passes import hlo
from lagom_xla.passes import registry
from lagom_xla.passes.program import form as form_lib
from lagom_xla.passes.schedule import orders as orders_lib

# What others know it by.
ESTIMATES = estimates_lib.OPTION

_T = TypeVar("_T")


def schedule(
  lowered: lowered_lib.Lowered,
  config: config_lib.XlaConfig = config_lib.DEFAULT,
  *,
  must_begin: bool = False,
) -> hlo.Module:
  """Compiles up to the schedule, with XLA's estimates where it has them.

  Args:
    lowered: what to compile.
    config: what XLA gets beside it.
    must_begin: whether it never goes on from a fused module, in which
      instructions have other names.

  Raises:
    CompileError: XLA refused, or never scheduled a module of that name.
    CombineError: the module cannot have these combine groups.
    ProgramError: the program cannot have this form.
    ScheduleError: the schedule cannot have these orders.
  """
  return start(lowered, config, must_begin=must_begin).result()


def start(
  lowered: lowered_lib.Lowered,
  config: config_lib.XlaConfig = config_lib.DEFAULT,
  *,
  must_begin: bool = False,
) -> pending_lib.Pending[hlo.Module]:
  """Starts what `schedule` does, in a worker where there is one.

  Raises:
    LagomError: as of `schedule`, where it is known before XLA is asked.
  """
  asked = _asked(lowered, config, is_run=False, must_begin=must_begin)

  def run(estimates: bool) -> pending_lib.Pending[hlo.Module]:
    options = {ESTIMATES: estimates, **asked.options}
    return xla_run.start_to(
      registry.Stage.POST_SCHEDULER,
      dataclasses.replace(asked, options=options),
    )

  begun = _where_tiles_compile(
    lambda: estimates_lib.where_there_are(run, lowered.cluster, asked.config),
    asked,
  )

  def result() -> hlo.Module:
    return orders_lib.apply(begun.result(), config.orders)

  return pending_lib.Pending(result=result, drop=begun.drop)


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
  return start_before_combining(lowered, config).result()


def start_before_combining(
  lowered: lowered_lib.Lowered,
  config: config_lib.XlaConfig = config_lib.DEFAULT,
) -> pending_lib.Pending[hlo.Module]:
  """Starts what `before_combining` does, in a worker where there is one.

  Raises:
    LagomError: as of `before_combining`, where it is known before XLA is asked.
  """
  words = sentences.asked_for(lowered, config)
  lowered = lowered_lib.in_form(lowered, config.program)
  # Never the options of a compile to the end: JAX remembers its executable,
  # and would have nothing left to compile.
  options = {ESTIMATES: False, **config.options}
  alone = dataclasses.replace(config, combine_groups=None)
  asked = asked_lib.Asked(
    lowered=lowered, config=alone, options=options, words=words
  )
  return xla_run.start_to(registry.Stage.PRE_SCHEDULER, asked)


def compile(  # pylint: disable=redefined-builtin
  lowered: lowered_lib.Lowered,
  config: config_lib.XlaConfig = config_lib.DEFAULT,
  *,
  must_begin: bool = False,
) -> lowered_lib.Compilation:
  """Compiles to the end.

  Args:
    lowered: what to compile.
    config: what XLA gets beside it.
    must_begin: see `schedule`.

  Raises:
    CompileError: XLA refused, or cannot generate code for the GPU; or the
      module donates inputs, and combine groups or orders would make this JAX
      forget that; or the pass that sets combine groups or orders was not run.
    CombineError: the module cannot have these combine groups.
    ProgramError: the program cannot have this form.
    ScheduleError: the schedule cannot have these orders.
  """
  begun = start_to_the_end(lowered, config, must_begin=must_begin)
  return begun.result()


def start_to_the_end(
  lowered: lowered_lib.Lowered,
  config: config_lib.XlaConfig = config_lib.DEFAULT,
  *,
  must_begin: bool = False,
) -> pending_lib.Pending[lowered_lib.Compilation]:
  """Starts what `compile` does, in a worker where there is one.

  Raises:
    LagomError: as of `compile`, where it is known before XLA is asked.
  """
  cluster = lowered.cluster
  obstacle = cluster.gpu.compile_obstacle
  if obstacle:
    raise errors.CompileError(
      f"No full compile for {cluster.name}: {obstacle}. Its schedule can"
      " still be inspected and tuned."
    )
  asked = _asked(lowered, config, is_run=lowered.is_run, must_begin=must_begin)

  def run(estimates: bool) -> pending_lib.Pending[lowered_lib.Compilation]:
    # A worker shows its schedule, which has estimates.
    shown_with = {ESTIMATES: estimates}
    return xla_run.start_to_the_end(asked, shown_with=shown_with)

  begun = (
    run(False)
    if asked.lowered.workers is None
    else _where_tiles_compile(
      lambda: estimates_lib.where_there_are(run, cluster, asked.config), asked
    )
  )

  def result() -> lowered_lib.Compilation:
    compilation, groups = begun.result(), config.combine_groups
    orders_lib.check_followed(compilation.module, config.orders)
    # On CPUs the pass itself combines, and leaves nothing to know it by.
    if groups is not None and asked.lowered.platform == "cuda":
      combine.check_acted(compilation.module, groups)
    return compilation

  return pending_lib.Pending(result=result, drop=begun.drop)


def _where_tiles_compile(
  run: Callable[[], pending_lib.Pending[_T]], asked: asked_lib.Asked
) -> pending_lib.Pending[_T]:
  """A compile; of XLA's defaults, with tiles propagated if it needs that."""
  if not asked.config.is_default:
    return run()
  with_tiles = dataclasses.replace(
    asked,
    options={ESTIMATES: False},
    shares_fusion=False,
    chooses_tiles=True,
  )
  return deviceless.with_tiles(
    run,
    lambda: xla_run.start_to(registry.Stage.POST_SCHEDULER, with_tiles),
    asked.lowered,
  )


def _asked(
  lowered: lowered_lib.Lowered,
  config: config_lib.XlaConfig,
  *,
  is_run: bool,
  must_begin: bool,
) -> asked_lib.Asked:
  """What XLA is asked, with the config's options and no other."""
  words = sentences.asked_for(lowered, config)
  resolved, xla = _resolved(lowered, config, is_run=is_run)
  return asked_lib.Asked(
    lowered=resolved,
    config=xla,
    options=xla.options,
    words=words,
    # Combine groups are set before fusion, which no other config then shares.
    shares_fusion=config.combine_groups is None,
    # All are compared with the default; profiles and orders go by names.
    must_begin=must_begin or config.is_default or config.goes_by_names,
    # Orders name bitcasts, too, and are those of a form's strands.
    keeps_names=bool(config.orders)
    or (must_begin and not config.program.is_as_written),
  )


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
    lowered = lowered_module.LoweredModule(rewritten, lowered.cluster)
    groups = None
  return lowered, config_lib.XlaConfig(
    options=combine.options(config.combine_groups or (), config.options),
    combine_groups=groups,
    scheduler_profile=config.scheduler_profile,
    orders=config.orders,
  )
