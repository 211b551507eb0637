# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Runs XLA's compiler as far as needed, in a worker or in this process.

    lowered = lowered_lib.LoweredStep(step.lower(*args), cluster)
    module = compiler.schedule(lowered, config)       # to the schedule
    compilation = compiler.compile(lowered, config)   # to the end

A compile to the end gives memory figures and an executable. One that ends after
the scheduler takes a fraction of the time, needs no CUDA toolkit, and is enough
for a search. The form of the program (`rewriting.py`) is applied first; orders,
which act on the result of XLA's scheduler, last.

Workers compile steps and modules for compile-only devices that call nothing in
this process. For live GPUs, which belong to one process, and for CPUs that
stand for GPUs, this process compiles.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
import contextlib
import contextvars
import dataclasses
import math
import re
from typing import Any, Generic, TypeVar

import jax

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
from lagom_xla.jax_internals import request as request_lib
from lagom_xla.passes import combine
from lagom_xla.passes import dead_code
from lagom_xla.passes import fusion_dispatch
from lagom_xla.passes import hlo
from lagom_xla.passes import hlo_pb2
from lagom_xla.passes import in_compile
from lagom_xla.passes import registry
from lagom_xla.passes.program import form as form_lib
from lagom_xla.passes.program import mlir
from lagom_xla.passes.schedule import orders as orders_lib

_T = TypeVar("_T")
_U = TypeVar("_U")

# Makes XLA write its own estimate of each kernel into the module.
ESTIMATES = "xla_gpu_collect_cost_model_stats"
# GPUs for which XLA has no tables; asking again costs a compile.
_gpus_without: set[str] = set()
# XLA's error for a product that it can compile only where GPUs time kernels,
# and the remedy.
_NO_TILES = "Couldn't find output tile sizes"
_TILES_REMEDY = (
  "\n  [without autotuning XLA uses Triton for this matmul and has no tiles"
  " for its shape: set XLA_FLAGS=--xla_gpu_enable_triton_gemm=false to use"
  " cuBLAS]"
)

# Whether XLA drops code behind barriers: full compiles of JAX 0.10.2 have it.
_DROPS_DEAD_CODE = jax.__version_info__ >= (0, 11)

# By default each process of a job autotunes a part of each module, and waits
# for the others' parts.
_ALONE: lowered_lib.Options = {"xla_gpu_shard_autotuning": False}
_is_alone = contextvars.ContextVar("_is_alone", default=False)


@contextlib.contextmanager
def alone() -> Generator[None, None, None]:
  """Marks compiles in this thread that no other process of the job makes.

  Otherwise XLA would wait forever for the others' part of the autotuning.
  """
  token = _is_alone.set(True)
  try:
    yield
  finally:
    _is_alone.reset(token)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Pending(Generic[_T]):
  """A compile that was started, if there are workers.

  Attributes:
    result: waits for it, or compiles now if there are no workers.
    drop: gives it up, and cancels it if it has not begun.
  """

  result: Callable[[], _T]
  drop: Callable[[], None] = lambda: None

  def then(self, change: Callable[[_T], _U]) -> Pending[_U]:
    """The same, with its result passed to `change`."""
    return Pending(result=lambda: change(self.result()), drop=self.drop)


def schedule(
  lowered: lowered_lib.Lowered,
  config: config_lib.XlaConfig = config_lib.DEFAULT,
  *,
  must_begin: bool = False,
) -> hlo.Module:
  """Compiles up to the schedule, with XLA's estimates where it has them.

  With `must_begin` it never starts from a fused module, in which instructions
  have other names. Raises what `target.Target.schedule` does.
  """
  return start(lowered, config, must_begin=must_begin).result()


def start(
  lowered: lowered_lib.Lowered,
  config: config_lib.XlaConfig = config_lib.DEFAULT,
  *,
  must_begin: bool = False,
) -> Pending[hlo.Module]:
  """Starts `schedule`; raises errors found before XLA runs."""
  asked = _asked(lowered, config, is_run=False, must_begin=must_begin)
  begun = _with_what_xla_has(_start_to_schedule, asked)
  return begun.then(
    lambda module: orders_lib.apply(lowered.with_paths(module), config.orders)
  )


def start_before_combining(
  lowered: lowered_lib.Lowered,
  config: config_lib.XlaConfig = config_lib.DEFAULT,
) -> Pending[hlo.Module]:
  """Starts a compile that ends where XLA would combine collectives.

  The result names the collectives for combine groups; the config's own groups
  are ignored.
  """
  asked = _Asked(
    words=_words_for(lowered, config),
    lowered=lowered_lib.in_form(lowered, config.program),
    config=dataclasses.replace(config, combine_groups=None),
    options=config.options,
  )
  # Options must differ from a compile to the end, whose executable JAX would
  # reuse without compiling.
  return _start_to(registry.Stage.PRE_SCHEDULER, asked.over({ESTIMATES: False}))


def compile(  # pylint: disable=redefined-builtin
  lowered: lowered_lib.Lowered,
  config: config_lib.XlaConfig = config_lib.DEFAULT,
  *,
  must_begin: bool = False,
) -> lowered_lib.Compilation:
  """Compiles to the end; arguments and errors are those of `schedule`.

  Also raises a CompileError if XLA cannot generate code for the GPU, if this
  JAX would drop donation, or if combine groups or orders had no effect.
  """
  return start_to_the_end(lowered, config, must_begin=must_begin).result()


def start_to_the_end(
  lowered: lowered_lib.Lowered,
  config: config_lib.XlaConfig = config_lib.DEFAULT,
  *,
  must_begin: bool = False,
) -> Pending[lowered_lib.Compilation]:
  """Starts `compile`; raises errors found before XLA runs."""
  obstacle = lowered.cluster.gpu.compile_obstacle
  if obstacle:
    raise errors.CompileError(
      f"Cannot compile to the end for {lowered.cluster.name}: {obstacle}. You"
      " can still inspect and tune its schedule."
    )
  asked = _asked(lowered, config, is_run=lowered.is_run, must_begin=must_begin)

  def checked(compilation: lowered_lib.Compilation) -> lowered_lib.Compilation:
    orders_lib.check_followed(compilation.module, config.orders)
    groups = config.combine_groups
    # On CPUs the pass itself combines, and leaves no trace.
    if groups is not None and asked.lowered.platform == "cuda":
      combine.check_acted(compilation.module, groups)
    lowered.with_paths(compilation.module)
    return compilation

  if asked.lowered.workers is None:
    return _start_to_the_end(asked, estimates=False).then(checked)
  return _with_what_xla_has(_start_to_the_end, asked).then(checked)


def generates_code(
  lowered: lowered_lib.Lowered, options: lowered_lib.Options
) -> bool:
  """Whether a compile to the end generates code, here or in a worker."""
  pool = lowered.workers
  is_wanted = pool is None or pool.generates_code
  return is_wanted or not xla.can_end_before_code(options)


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Asked:
  """What XLA is asked to compile.

  Attributes:
    lowered: what to compile, in the config's form.
    config: what XLA gets besides it.
    options: all XLA options, in place of the config's.
    words: the beginning of an error message.
    shares_fusion: whether it may share a fused module with other compiles of
      the same program.
    must_begin: whether it never starts from another's fused module.
    keeps_names: whether instructions must have the names that a job sees.
    chooses_tiles: whether XLA chooses tiles, though nothing needs them.
  """

  lowered: lowered_lib.Lowered
  config: config_lib.XlaConfig
  options: lowered_lib.Options
  words: str
  shares_fusion: bool = False
  must_begin: bool = False
  keeps_names: bool = False
  chooses_tiles: bool = False

  def over(self, options: lowered_lib.Options) -> _Asked:
    """The same on top of other options."""
    return dataclasses.replace(self, options={**options, **self.options})

  def all_options(self, *, generates_code: bool) -> lowered_lib.Options:
    """The options, with those that skip work that needs a GPU."""
    options = deviceless.asked(
      self.lowered,
      {**_ALONE, **self.options} if _is_alone.get() else self.options,
      keeps_names=self.keeps_names,
      chooses_tiles=self.chooses_tiles,
      generates_code=generates_code,
    )
    profile = self.config.scheduler_profile
    if profile is None:
      return options
    return {**options, request_lib.PROFILE: profile.encode()}


def _asked(
  lowered: lowered_lib.Lowered,
  config: config_lib.XlaConfig,
  *,
  is_run: bool,
  must_begin: bool,
) -> _Asked:
  """Prepares a compile: applies the form, and collects the options.

  A pass may make XLA forget donated inputs (`registry.keeps_donation`); then
  XLA would schedule for more memory than the step needs. If the executable is
  not run, the compile starts again from the module that the pass would return,
  which itself lists donated inputs.
  """
  words = _words_for(lowered, config)
  lowered = lowered_lib.in_form(lowered, config.program)
  left = dataclasses.replace(config, program=form_lib.AS_WRITTEN)
  groups = config.combine_groups
  if groups is not None:
    options = combine.options(groups, config.options)
    if not (is_run or registry.keeps_donation()):
      module = start_before_combining(lowered, left).result()
      rewritten = hlo.load(combine.rewrite(module, groups))
      lowered = lowered_lib.LoweredModule(rewritten, lowered.cluster)
      groups = None
    left = dataclasses.replace(left, options=options, combine_groups=groups)
  return _Asked(
    lowered=lowered,
    config=left,
    options=left.options,
    words=words,
    # Combine groups act before fusion, so that no other config can share it.
    shares_fusion=config.combine_groups is None,
    # All are compared with the default, and profiles and orders use its names.
    must_begin=must_begin or config.is_default or config.goes_by_names,
    # Orders name bitcasts, too, and may order a form's strands.
    keeps_names=bool(config.orders)
    or (must_begin and not config.program.is_as_written),
  )


def _words_for(
  lowered: lowered_lib.Lowered, config: config_lib.XlaConfig
) -> str:
  """The beginning of an error message about a compile."""
  asked = [f"{name}={value!r}" for name, value in config.options.items()]
  if config.scheduler_profile is not None:
    asked.append("a scheduler profile")
  if config.combine_groups is not None:
    asked.append(f"{len(config.combine_groups)} combine groups")
  if not config.program.is_as_written:
    asked.append(rewriting.in_words(config.program))
  if config.orders:
    asked.append(orders_lib.in_words(config.orders))
  what = f" with {', '.join(asked)}" if asked else ""
  return f"XLA could not compile for {lowered.cluster.name}{what}"


@contextlib.contextmanager
def _on_failure(asked: _Asked) -> Iterator[None]:
  """Makes a compile's errors say what was asked for, and why it failed."""
  asked_for = asked.words
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
    cluster = asked.lowered.cluster
    held, num_bytes = max(
      _largest_array(str(error)),
      _arguments(asked.lowered),
      key=lambda of_gpu: of_gpu[1],
    )
    if num_bytes > cluster.gpu.hbm_bytes:
      raise errors.CompileError(
        f"{asked.lowered.name} does not fit on {cluster.name}: a GPU would hold"
        f" {held}, {num_bytes / 1e9:,.1f} GB, but has only"
        f" {cluster.gpu.hbm_bytes / 1e9:,.1f} GB. XLA could not compile it."
      ) from error
    remedy = _TILES_REMEDY if _NO_TILES in str(error) else ""
    raise errors.CompileError(
      f"{asked_for}: {errors.message(error)}{remedy}"
    ) from error


def _largest_array(text: str) -> tuple[str, float]:
  """The largest array in an error of XLA, and its bytes."""
  found = {
    array: math.prod(map(int, sizes.split(","))) * hlo.element_bits(name) / 8
    for array, name, sizes in re.findall(r"\b(([a-z]\w+)\[(\d[\d,]*)\])", text)
  }
  return max(found.items(), key=lambda item: item[1], default=("", 0.0))


_TENSOR = re.compile(r"tensor<((?:\d+x)*)(complex<)?[a-z]+(\d+)")


def _arguments(lowered: lowered_lib.Lowered) -> tuple[str, float]:
  """A program's arguments, in words, and the least bytes of them on a GPU."""
  main = mlir.functions_by_name(lowered.stablehlo.operation)["main"]
  taken, _, _ = str(main.attributes["function_type"]).partition("->")
  num_bits = sum(
    math.prod(int(size) for size in sizes.split("x") if size)
    * max(int(bits), 8)
    * (2 if is_complex else 1)
    for sizes, is_complex, bits in _TENSOR.findall(taken)
  )
  part = num_bits / 8 / lowered.cluster.num_devices
  return "its part of the arguments", part


# Starts a compile, with or without XLA's estimates.
_Start = Callable[["_Asked", bool], Pending[_T]]


def _with_what_xla_has(start: _Start[_T], asked: _Asked) -> Pending[_T]:
  """A compile with XLA's estimates and tiles, if XLA has them.

  A config may set the option for estimates itself. Only XLA's defaults are
  checked for tiles.
  """
  if not asked.config.is_default:
    return _with_estimates_if_any(start, asked)
  with_tiles = dataclasses.replace(
    asked, options={}, shares_fusion=False, chooses_tiles=True
  )
  return propagated_if_refused(
    lambda: _with_estimates_if_any(start, asked),
    lambda: _start_to_schedule(with_tiles, estimates=False),
    asked.lowered,
  )


def _with_estimates_if_any(start: _Start[_T], asked: _Asked) -> Pending[_T]:
  """A compile with XLA's estimates, or without if it has no tables."""
  gpu = asked.lowered.cluster.gpu.name
  is_decided = ESTIMATES in asked.config.options or gpu in _gpus_without
  first = start(asked, not is_decided)

  def result() -> _T:
    try:
      return first.result()
    except errors.CompileError as error:
      if is_decided:
        raise
      found = start(asked, False).result()
      # An abort concerns this module; missing tables concern all.
      if not isinstance(error, errors.CompileAbortedError):
        _gpus_without.add(gpu)
      return found

  return Pending(result=result, drop=first.drop)


def propagated_if_refused(
  run: Callable[[], Pending[_T]],
  check: Callable[[], Pending[Any]],
  lowered: lowered_lib.Lowered,
) -> Pending[_T]:
  """A compile of XLA's defaults, repeated if XLA has no tiles for its fusions.

  Only with workers, which run `check` in parallel; otherwise it would take
  twice as long.
  """
  if lowered.workers is None or not deviceless.tiles_may_be_refused(lowered):
    return run()
  first, checked = run(), check()

  def result() -> _T:
    try:
      checked.result()
    except errors.CompileError as error:
      if deviceless.note_refusal(error, lowered):
        first.drop()
        return run().result()
    return first.result()  # Other errors come from here, too.

  def drop() -> None:
    first.drop()
    checked.drop()

  return Pending(result=result, drop=drop)


def _start_to_schedule(asked: _Asked, estimates: bool) -> Pending[hlo.Module]:
  """Starts a compile up to the schedule, with groups but without orders."""
  asked = asked.over({ESTIMATES: estimates})
  return _start_to(registry.Stage.POST_SCHEDULER, asked)


def _start_to(stage: registry.Stage, asked: _Asked) -> Pending[hlo.Module]:
  """Starts a compile up to a stage, with groups but without orders."""

  def of_worker(result: job_lib.Result) -> hlo.Module:
    proto = None
    if result.module is not None:
      proto = hlo_pb2.HloModuleProto.FromString(result.module)
    return _scheduled(asked, proto)

  return _there_or_here(stage, asked, of_worker, lambda: _to_here(stage, asked))


def _start_to_the_end(
  asked: _Asked, estimates: bool
) -> Pending[lowered_lib.Compilation]:
  """Starts a compile to the end, with a config's groups and orders.

  A worker returns the schedule, too. Code is never generated from a fused
  module.
  """
  lowered = asked.lowered
  has_code = generates_code(lowered, asked.options)
  with_code = asked.over(lowered.options_to_the_end)
  there = (with_code if has_code else asked).over({ESTIMATES: estimates})
  there = dataclasses.replace(there, must_begin=asked.must_begin or has_code)

  def of_worker(result: job_lib.Result) -> lowered_lib.Compilation:
    assert result.module is not None
    proto = hlo_pb2.HloModuleProto.FromString(result.module)
    module = hlo.Module(proto, lowered.cluster.num_devices)
    return lowered_lib.Compilation(module=module, peak_bytes=result.peak_bytes)

  return _there_or_here(
    None, there, of_worker, lambda: _to_the_end_here(with_code)
  )


def _there_or_here(
  stage: registry.Stage | None,
  asked: _Asked,
  of_worker: Callable[[job_lib.Result], _T],
  compile_here: Callable[[], _T],
) -> Pending[_T]:
  """Starts a compile in a worker, or in this process if there is none.

  It ends at a stage, None for the end. `of_worker` converts a worker's result,
  and `compile_here` compiles the same in this process.
  """
  pool = asked.lowered.workers
  if pool is None or not pool.is_usable:
    return Pending(result=compile_here)
  job = _job(stage, asked)
  if job is None:
    return Pending(result=compile_here)
  future = pool.submit(job)

  def result() -> _T:
    try:
      with _on_failure(asked):
        outcome = future.result()
    except errors.WorkerError:
      outcome = None
    finally:
      pool.forget(job)
    return compile_here() if outcome is None else of_worker(outcome)

  return Pending(result=result, drop=lambda: pool.drop(job))


def _job(stage: registry.Stage | None, asked: _Asked) -> job_lib.Job | None:
  """The job for a worker; None if only this process can compile it."""
  lowered, config = asked.lowered, asked.config
  if not deviceless.is_compile_only(lowered):
    return None
  needs_code = generates_code(lowered, asked.options)
  options = asked.all_options(generates_code=needs_code and stage is None)
  # Ends where JAX would call XLA, without JAX's own cache.
  with caches.persistent_off(), _on_failure(asked):
    request = lowered.request(options)
  if request is None:
    return None
  job = job_lib.Job(
    name=lowered.name,
    cluster=lowered.cluster,
    request=request,
    stage=stage,
    groups=config.combine_groups,
    orders=config.orders if stage is None else {},
    needs_code=needs_code,
    # Reports name source lines of the default schedule.
    keeps_lines=config.is_default and not asked.chooses_tiles,
  )
  # Orders replace the pass that shows the schedule.
  shares_fusion = asked.shares_fusion and not job.orders
  if not (shares_fusion and fused_lib.may_share(options)):
    return job
  with caches.persistent_off():
    early = lowered.request(fused_lib.options_before_fusion(options))
  assert early is not None
  # Equal for jobs that XLA fuses alike, whatever their stage.
  alike = dataclasses.replace(job.to_schedule, request=early, keeps_lines=False)
  return dataclasses.replace(
    job, fusion=f"{alike.digest}-fused", must_begin=asked.must_begin
  )


def _to_here(stage: registry.Stage, asked: _Asked) -> hlo.Module:
  name = asked.lowered.name
  # A cached executable would not be scheduled again.
  with caches.persistent_off(), _on_failure(asked):
    with in_compile.grouped(name, asked.config.combine_groups):
      proto = in_compile.run_to(
        stage, lambda: _run(asked, generates_code=False), name
      )
  return _scheduled(asked, proto)


def _scheduled(
  asked: _Asked, proto: hlo_pb2.HloModuleProto | None
) -> hlo.Module:
  if proto is None:
    raise errors.CompileError(
      f"{asked.words}: XLA finished without scheduling a module named"
      f" {asked.lowered.name}."
    )
  module = hlo.Module(proto, asked.lowered.cluster.num_devices)
  if _DROPS_DEAD_CODE:
    module = dead_code.drop(module)
  return fusion_dispatch.apply(module)


def _to_the_end_here(asked: _Asked) -> lowered_lib.Compilation:
  lowered, config = asked.lowered, asked.config
  if config.orders:
    lowered = lowered.copied()  # JAX's cached executable has another order.
    asked = dataclasses.replace(asked, lowered=lowered)
  # Executables for compile-only devices can be stored but not loaded.
  can_load = devices_lib.is_live(lowered.cluster) and not config.orders
  cache = contextlib.nullcontext() if can_load else caches.persistent_off()
  with cache, _on_failure(asked):
    with (
      in_compile.grouped(
        lowered.name,
        # XLA has combiners only for GPUs.
        config.combine_groups if lowered.platform == "cuda" else None,
        must_keep_donation=True,
      ),
      in_compile.reordered(
        lowered.name, config.orders, platform=lowered.platform
      ),
    ):
      executable = _run(asked, generates_code=True)
  return lowered.compilation(executable)


def _run(asked: _Asked, *, generates_code: bool) -> object:
  """Runs XLA's compiler in this process."""
  options = asked.all_options(generates_code=generates_code)
  return asked.lowered.run_compiler(options)
