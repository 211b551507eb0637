# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""XLA's compiler, run as far as is needed, in a worker or in this process.

    lowered = lowered_lib.LoweredStep(step.lower(*args), cluster)
    module = compiler.schedule(lowered, config)       # to the schedule
    compilation = compiler.compile(lowered, config)   # to the end

A compile to the end gives memory figures and an executable. One that ends after
the scheduler takes a fraction of the time, needs no CUDA toolkit, and is all
that a search needs.

The form of the program (`rewriting.py`) comes first; all else acts on what the
rewrite made. Orders come last, and act on what XLA's scheduler made.

What can be sent to a worker is a step or a module for compile-only devices that
calls nothing in this process. Live GPUs belong to one process, which then
compiles, too; so it does for CPUs that stand for GPUs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
import contextlib
import dataclasses
from typing import Any, Generic, TypeVar

from lagom_xla import cluster as cluster_lib
from lagom_xla import errors
from lagom_xla.compile import config as config_lib
from lagom_xla.compile import deviceless
from lagom_xla.compile import devices as devices_lib
from lagom_xla.compile import fused as fused_lib
from lagom_xla.compile import job as job_lib
from lagom_xla.compile import lowered as lowered_lib
from lagom_xla.compile import rewriting
from lagom_xla.compile import xla
from lagom_xla.jax_internals import caches
from lagom_xla.passes import combine
from lagom_xla.passes import hlo
from lagom_xla.passes import in_compile
from lagom_xla.passes import registry
from lagom_xla.passes.program import form as form_lib
from lagom_xla.passes.schedule import orders as orders_lib

_T = TypeVar("_T")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Pending(Generic[_T]):
  """A compile that was begun, where there are workers.

  Attributes:
    result: waits for it; without workers, compiles only now.
    drop: lets go of it, and keeps it from being begun if it is not yet.
  """

  result: Callable[[], _T]
  drop: Callable[[], None] = lambda: None


@contextlib.contextmanager
def dropped_at_the_end(pending: Iterable[Pending[Any]]) -> Iterator[None]:
  """Drops compiles at the end of a block."""
  try:
    yield
  finally:
    for one in pending:
      one.drop()


@dataclasses.dataclass(frozen=True, kw_only=True)
class Asked:
  """What XLA is asked to compile.

  Attributes:
    lowered: what to compile, in the config's form.
    config: what XLA gets beside it.
    options: all XLA options; the config's have no part in it.
    words: the beginning of an error message.
    shares_fusion: whether others of the same program may go on from its fused
      module, and it from theirs.
    must_begin: whether it never goes on from another's.
    keeps_names: whether all instructions have the names that a job sees.
    chooses_tiles: whether XLA chooses tiles, though nobody needs them.
  """

  lowered: lowered_lib.Lowered
  config: config_lib.XlaConfig
  options: lowered_lib.Options
  words: str
  shares_fusion: bool = False
  must_begin: bool = False
  keeps_names: bool = False
  chooses_tiles: bool = False


# What XLA says of a program that it compiles where GPUs time kernels, and what
# to do about it where there are none.
_REMEDIES = {
  "Couldn't find output tile sizes": (
    "where nothing is autotuned, XLA takes Triton for this product and has no"
    " tiles for its shape: set XLA_FLAGS=--xla_gpu_enable_triton_gemm=false,"
    " which leaves products to cuBLAS"
  ),
}


def _words_for(
  lowered: lowered_lib.Lowered, config: config_lib.XlaConfig
) -> str:
  """The beginning of an error message about a compile.

  Raises:
    CompileError: an option has a value of a type that XLA has no options of.
  """
  asked = [f"{name}={value!r}" for name, value in config.options.items()]
  if config.scheduler_profile is not None:
    asked.append("a scheduler profile")
  if config.combine_groups is not None:
    asked.append(f"{len(config.combine_groups)} combine groups")
  if not config.program.is_as_written:
    asked.append(rewriting.in_words(config.program))
  if config.orders:
    asked.append(orders_lib.in_words(config.orders))
  text = f"XLA could not compile for {lowered.cluster.name}"
  if asked:
    text += f" with {', '.join(asked)}"
  for name, value in config.options.items():
    if not isinstance(value, bool | int | float | str):
      raise errors.CompileError(
        f"{text}: {name} must be a bool, int, float or str, and is of type"
        f" {type(value).__name__}."
      )
  return text


@contextlib.contextmanager
def _on_failure(asked_for: str) -> Iterator[None]:
  """Says of whatever a compile raises what was asked for, and why not."""
  try:
    yield
  except errors.CompileAbortedError as error:
    raise errors.CompileAbortedError(f"{asked_for}: {error}") from error
  except (
    errors.CombineError,
    errors.CompileError,
    errors.ScheduleError,
    errors.WorkerError,
  ):
    raise
  except errors.DonationLostError as error:
    raise errors.CompileError(str(error)) from error
  except Exception as error:
    remedies = "".join(
      f"\n  [{remedy}]"
      for symptom, remedy in _REMEDIES.items()
      if symptom in str(error)
    )
    raise errors.CompileError(
      f"{asked_for}: {errors.message(error)}{remedies}"
    ) from error


def _send(
  stage: registry.Stage | None, asked: Asked
) -> Pending[job_lib.Result] | None:
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
      with _on_failure(asked.words):
        return future.result()
    finally:
      pool.forget(job)

  return Pending(result=result, drop=lambda: pool.drop(job))


def _job(stage: registry.Stage | None, asked: Asked) -> job_lib.Job | None:
  """What a worker gets; None where the program calls this process."""
  lowered, config = asked.lowered, asked.config
  needs_code = generates_code_of(lowered, asked.options)
  options = deviceless.asked(
    lowered,
    asked.options,
    keeps_names=asked.keeps_names,
    chooses_tiles=asked.chooses_tiles,
    generates_code=needs_code and stage is None,
  )
  # It ends where JAX would call XLA, in that JAX's own cache has no part.
  with caches.persistent_off(), _on_failure(asked.words):
    request = lowered.request(options, _profile_of(config))
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
  if not (asked.shares_fusion and fused_lib.may_share(options)):
    return job
  fusion = _fusion(job, lowered, options)
  return dataclasses.replace(job, fusion=fusion, must_begin=asked.must_begin)


def generates_code_of(
  lowered: lowered_lib.Lowered, options: lowered_lib.Options
) -> bool:
  """Whether a compile to the end generates code, wherever it is."""
  pool = lowered.workers
  is_wanted = pool is None or pool.generates_code
  return is_wanted or not xla.can_end_before_code(options)


def _fusion(
  job: job_lib.Job, lowered: lowered_lib.Lowered, options: lowered_lib.Options
) -> str:
  """What jobs share that XLA fuses alike, whichever their stage.

  Args:
    job: one of them.
    lowered: what it compiles.
    options: all that XLA is asked.
  """
  with caches.persistent_off():
    request = lowered.request(fused_lib.options_before_fusion(options), None)
  if request is None:
    return ""
  fused = dataclasses.replace(job.shown, request=request, keeps_lines=False)
  return f"{fused.digest}-fused"


def _profile_of(config: config_lib.XlaConfig) -> bytes | None:
  """A config's scheduler profile as XLA takes it."""
  text = config.scheduler_profile
  return None if text is None else text.encode()


def _start_to(stage: registry.Stage, asked: Asked) -> Pending[hlo.Module]:
  """Starts a compile up to a stage, with a config's groups but not its orders.

  Raises:
    CompileError: XLA refuses the options.
  """

  def of_worker(result: job_lib.Result) -> hlo.Module:
    if result.module is None:
      return _scheduled(asked, None)
    return _scheduled(
      asked, hlo.hlo_pb2.HloModuleProto.FromString(result.module)
    )

  return _there_or_here(
    _send(stage, asked), of_worker, lambda: _to_here(stage, asked)
  )


def _run_to_the_end(
  asked: Asked, *, shown_with: lowered_lib.Options
) -> Pending[lowered_lib.Compilation]:
  """Starts a compile to the end, with a config's groups and orders.

  A worker shows its schedule on the way, to whoever starts that (`start_to`).

  Args:
    asked: what to compile; with the options but for those that code needs.
      What generates code always begins.
    shown_with: what a schedule has on top of these options.

  Raises:
    CompileError: XLA refuses the options.
  """
  lowered = asked.lowered
  generates_code = generates_code_of(lowered, asked.options)
  with_code = dataclasses.replace(
    asked, options={**lowered.options_to_the_end, **asked.options}
  )
  there = with_code if generates_code else asked
  sent = _send(
    None,
    dataclasses.replace(
      there,
      options={**shown_with, **there.options},
      must_begin=asked.must_begin or generates_code,
    ),
  )

  def of_worker(result: job_lib.Result) -> lowered_lib.Compilation:
    assert result.module is not None
    return lowered_lib.uncalled(
      result.module, lowered.cluster, result.peak_bytes
    )

  return _there_or_here(sent, of_worker, lambda: _to_the_end_here(with_code))


def _there_or_here(
  sent: Pending[job_lib.Result] | None,
  of_worker: Callable[[job_lib.Result], _T],
  here: Callable[[], _T],
) -> Pending[_T]:
  """What a worker comes to; what is done here where there is none, or none now.

  Args:
    sent: what was sent to a worker; None where it could not be.
    of_worker: what its result means.
    here: compiles the same in this process.
  """
  if sent is None:
    return Pending(result=here)

  def result() -> _T:
    try:
      found = sent.result()
    except errors.WorkerError:
      return here()
    return of_worker(found)

  return Pending(result=result, drop=sent.drop)


def _to_here(stage: registry.Stage, asked: Asked) -> hlo.Module:
  name = asked.lowered.name
  # What comes out of the cache is not scheduled any more.
  with caches.persistent_off(), _on_failure(asked.words):
    with in_compile.grouped(name, asked.config.combine_groups):
      proto = in_compile.run_to(
        stage, lambda: _run(asked, generates_code=False), name
      )
  return _scheduled(asked, proto)


def _scheduled(
  asked: Asked, proto: hlo.hlo_pb2.HloModuleProto | None
) -> hlo.Module:
  if proto is None:
    raise errors.CompileError(
      f"{asked.words}: XLA finished without scheduling a module called"
      f" {asked.lowered.name}."
    )
  return hlo.Module(proto, asked.lowered.cluster.num_devices)


def _to_the_end_here(asked: Asked) -> lowered_lib.Compilation:
  lowered, config = asked.lowered, asked.config
  if config.orders:
    lowered = lowered.copied()  # What JAX remembers has another order.
    asked = dataclasses.replace(asked, lowered=lowered)
  # The executable of a compile-only device can be stored, but not loaded.
  can_load = devices_lib.is_live(lowered.cluster) and not config.orders
  cache = contextlib.nullcontext() if can_load else caches.persistent_off()
  with cache, _on_failure(asked.words):
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
      executable = _run(asked, generates_code=True)
  return lowered.compilation(executable)


def _run(asked: Asked, *, generates_code: bool) -> object:
  """Runs XLA's compiler in this process."""
  profile = _profile_of(asked.config)
  options = deviceless.asked(
    asked.lowered,
    asked.options,
    keeps_names=asked.keeps_names,
    chooses_tiles=asked.chooses_tiles,
    generates_code=generates_code,
  )
  return asked.lowered.run_compiler(options, profile)


# Has XLA write its own estimate of each kernel into the module.
ESTIMATES = "xla_gpu_collect_cost_model_stats"
# Those for which XLA was seen to have no tables; asking again costs a compile.
_gpus_without: set[str] = set()


def _with_estimates_if_any(
  run: Callable[[bool], Pending[_T]],
  cluster: cluster_lib.Cluster,
  config: config_lib.XlaConfig,
) -> Pending[_T]:
  """A compile with XLA's estimates; without where it has no tables.

  Args:
    run: starts it with estimates, or without.
    cluster: what it is compiled for.
    config: with which; one that sets the option itself has the last word.
  """
  gpu = cluster.gpu.name
  is_asked = ESTIMATES in config.options or gpu in _gpus_without
  first = run(not is_asked)

  def result() -> _T:
    try:
      return first.result()
    except errors.CompileError as error:
      if is_asked:
        raise
      found = run(False).result()
      # An abort is of this module; the tables, of all.
      if not isinstance(error, errors.CompileAbortedError):
        _gpus_without.add(gpu)
      return found

  return Pending(result=result, drop=first.drop)


def propagated_if_refused(
  run: Callable[[], Pending[_T]],
  check: Callable[[], Pending[Any]],
  lowered: lowered_lib.Lowered,
) -> Pending[_T]:
  """A compile of XLA's defaults, again if XLA has no tiles for what it fuses.

  Only where workers look beside it: alone it would take twice as long.

  Args:
    run: starts it.
    check: starts the same with tiles chosen.
    lowered: what is compiled.
  """
  is_known = not deviceless.tiles_may_be_refused(lowered)
  if is_known or lowered.workers is None:
    return run()
  first, checked = run(), check()

  def result() -> _T:
    try:
      checked.result()
    except errors.CompileError as error:
      if not deviceless.note_refusal(error, lowered):
        return first.result()  # It says why itself.
      first.drop()
      return run().result()
    return first.result()

  def drop() -> None:
    first.drop()
    checked.drop()

  return Pending(result=result, drop=drop)


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
) -> Pending[hlo.Module]:
  """Starts what `schedule` does, in a worker where there is one.

  Raises:
    LagomError: as of `schedule`, where it is known before XLA is asked.
  """
  asked = _asked(lowered, config, is_run=False, must_begin=must_begin)

  def run(estimates: bool) -> Pending[hlo.Module]:
    options = {ESTIMATES: estimates, **asked.options}
    return _start_to(
      registry.Stage.POST_SCHEDULER,
      dataclasses.replace(asked, options=options),
    )

  begun = _where_tiles_compile(
    lambda: _with_estimates_if_any(run, lowered.cluster, asked.config),
    asked,
  )

  def result() -> hlo.Module:
    return orders_lib.apply(begun.result(), config.orders)

  return Pending(result=result, drop=begun.drop)


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
) -> Pending[hlo.Module]:
  """Starts what `before_combining` does, in a worker where there is one.

  Raises:
    LagomError: as of `before_combining`, where it is known before XLA is asked.
  """
  words = _words_for(lowered, config)
  lowered = lowered_lib.in_form(lowered, config.program)
  # Never the options of a compile to the end: JAX remembers its executable,
  # and would have nothing left to compile.
  options = {ESTIMATES: False, **config.options}
  alone = dataclasses.replace(config, combine_groups=None)
  asked = Asked(lowered=lowered, config=alone, options=options, words=words)
  return _start_to(registry.Stage.PRE_SCHEDULER, asked)


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
) -> Pending[lowered_lib.Compilation]:
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

  def run(estimates: bool) -> Pending[lowered_lib.Compilation]:
    # A worker shows its schedule, which has estimates.
    shown_with = {ESTIMATES: estimates}
    return _run_to_the_end(asked, shown_with=shown_with)

  begun = (
    run(False)
    if asked.lowered.workers is None
    else _where_tiles_compile(
      lambda: _with_estimates_if_any(run, cluster, asked.config), asked
    )
  )

  def result() -> lowered_lib.Compilation:
    compilation, groups = begun.result(), config.combine_groups
    orders_lib.check_followed(compilation.module, config.orders)
    # On CPUs the pass itself combines, and leaves nothing to know it by.
    if groups is not None and asked.lowered.platform == "cuda":
      combine.check_acted(compilation.module, groups)
    return compilation

  return Pending(result=result, drop=begun.drop)


def _where_tiles_compile(
  run: Callable[[], Pending[_T]], asked: Asked
) -> Pending[_T]:
  """A compile; of XLA's defaults, with tiles propagated if it needs that."""
  if not asked.config.is_default:
    return run()
  with_tiles = dataclasses.replace(
    asked,
    options={ESTIMATES: False},
    shares_fusion=False,
    chooses_tiles=True,
  )
  return propagated_if_refused(
    run,
    lambda: _start_to(registry.Stage.POST_SCHEDULER, with_tiles),
    asked.lowered,
  )


def _asked(
  lowered: lowered_lib.Lowered,
  config: config_lib.XlaConfig,
  *,
  is_run: bool,
  must_begin: bool,
) -> Asked:
  """What XLA is asked, with the config's options and no other."""
  words = _words_for(lowered, config)
  resolved, xla = _resolved(lowered, config, is_run=is_run)
  return Asked(
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
    lowered = lowered_lib.LoweredModule(rewritten, lowered.cluster)
    groups = None
  return lowered, config_lib.XlaConfig(
    options=combine.options(config.combine_groups or (), config.options),
    combine_groups=groups,
    scheduler_profile=config.scheduler_profile,
    orders=config.orders,
  )


def start_all(
  lowered: lowered_lib.Lowered,
  configs: Iterable[config_lib.XlaConfig],
  *,
  must_begin: bool = False,
) -> list[Pending[hlo.Module]]:
  """Starts to schedule configs, but for those that cannot be started.

  Where there are no workers this does nothing.

  Args:
    lowered: the program.
    configs: what XLA gets beside it, one after the other.
    must_begin: see `compiler.schedule`.
  """
  if lowered.workers is None:
    return []
  pending = []
  for config in configs:
    with contextlib.suppress(errors.LagomError):  # `schedule` will say it.
      begun = start(lowered, config, must_begin=must_begin)
      pending.append(begun)
  return pending


def start_first(
  lowered: lowered_lib.Lowered, *, is_full: bool
) -> list[Pending[Any]]:
  """Starts what every tuning needs of a program, under XLA's defaults.

  Where there are no workers this does nothing.

  Args:
    lowered: the program.
    is_full: whether a compile to the end is wanted, too.
  """
  if lowered.workers is None:
    return []
  # One to the end shows the schedule on its way.
  first = start_to_the_end if is_full else start
  return [first(lowered), start_before_combining(lowered)]
