# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Targets: what a user names to inspect or tune.

A step or an unoptimized HLO module, which XLA schedules under a config, or a
scheduled HLO module, which is only read. `load.py` makes targets from names on
the command line.
"""

from __future__ import annotations

import abc
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
import contextlib
import dataclasses
import math
from typing import Any, Self

import jax

from lagom_xla import cluster as cluster_lib
from lagom_xla import errors
from lagom_xla.compile import compiler
from lagom_xla.compile import config as config_lib
from lagom_xla.compile import lowered as lowered_lib
from lagom_xla.compile import nnx_step
from lagom_xla.compile import pool as pool_lib
from lagom_xla.compile import rewriting
from lagom_xla.compile import unoptimized
from lagom_xla.compile import watching
from lagom_xla.jax_internals import lowerings
from lagom_xla.jax_internals import request as request_lib
from lagom_xla.passes import collectives
from lagom_xla.passes import hlo
from lagom_xla.passes.program import form as form_lib
from lagom_xla.passes.program.slices import chains as chains_lib
from lagom_xla.passes.schedule import orders as orders_lib

_DEFAULT = config_lib.DEFAULT
# Seen in modules of jaxlib 0.10.2 for CPUs (xla/service/cpu/
# backend_config.proto), and in dumps of libtpu.
_CPU_FIELDS = frozenset(["outer_dimension_partitions", "onednn_matmul_config"])
_TPU_FIELDS = frozenset(["scoped_memory_configs", "window_config"])
_TPU_CALLS = frozenset(["tpu_custom_call"])


@dataclasses.dataclass(frozen=True, kw_only=True)
class Target(abc.ABC):
  """Something to inspect and tune, for one cluster.

  Attributes:
    name: as the user named it.
    cluster: what it is compiled for.
    must_begin: see `from_the_beginning`.
  """

  name: str
  cluster: cluster_lib.Cluster
  must_begin: bool = False

  @property
  def is_read_only(self) -> bool:
    """Whether no config can change it, because it is already scheduled."""
    return False

  @property
  def handed(self) -> request_lib.Handed | None:
    """What JAX passes to XLA for it; None if it is not compiled."""
    return None

  @property
  def jit_options(self) -> Mapping[str, Any]:
    """The compiler_options of its `jax.jit`, as they are written there."""
    return {}

  @property
  def obstacle(self) -> str | None:
    """Why it cannot be compiled to the end; None if it can."""
    return self.cluster.gpu.compile_obstacle

  @property
  def num_workers(self) -> int:
    """Processes that compile it in parallel; 0 if only this one does."""
    return 0

  @property
  def ends_before_code(self) -> bool:
    """Whether a compile to the end takes little longer than a schedule."""
    return False

  @abc.abstractmethod
  def schedule(self, config: config_lib.XlaConfig = _DEFAULT) -> hlo.Module:
    """The module as XLA schedules it under a config.

    Raises:
      CompileError: XLA failed.
      CombineError: the module cannot have these combine groups.
      ProgramError: the program cannot have this form.
      ScheduleError: the schedule cannot have these orders.
    """

  def with_workers(self, workers: pool_lib.Pool) -> Self:
    """The target, compiled in these processes if possible."""
    del workers
    return self

  def from_the_beginning(self) -> Self:
    """The target, with all compiles from the beginning.

    Otherwise they may start from a fused module, which takes a tenth of the
    time, but changes names of instructions and may break ties differently.
    """
    # Only workers start from fused modules.
    if self.must_begin or not self.num_workers:
      return self
    return dataclasses.replace(self, must_begin=True)

  @contextlib.contextmanager
  def begun(self) -> Iterator[None]:
    """Starts what every tuning needs, in the workers.

    That is the schedule and the compile to the end under XLA's defaults, and
    `identity`, to be used inside the block.
    """
    # A compile to the end returns the schedule, too.
    first = compiler.start if self.obstacle else compiler.start_to_the_end
    with (
      self._starting(first, [_DEFAULT]),
      self._starting(compiler.start_before_combining, [_DEFAULT]),
    ):
      yield

  def started(
    self, configs: Iterable[config_lib.XlaConfig]
  ) -> contextlib.AbstractContextManager[None]:
    """Starts to schedule configs, in the workers.

        with target.started(configs):
          for config in configs:
            module = target.schedule(config)

    Inside, `schedule` waits only for the rest of a compile. At the end of the
    block, those that have not begun are cancelled. Without workers nothing is
    started. Errors are left to `schedule`.
    """
    return self._starting(compiler.start, configs, must_begin=self.must_begin)

  def compiling(
    self, config: config_lib.XlaConfig
  ) -> contextlib.AbstractContextManager[None]:
    """Starts a compile to the end, if there is a worker; see `started`."""
    return self._starting(
      compiler.start_to_the_end, [config], must_begin=self.must_begin
    )

  def _starting(
    self,
    start: Callable[..., compiler.Pending[Any]],
    configs: Iterable[config_lib.XlaConfig],
    **how: bool,
  ) -> contextlib.AbstractContextManager[None]:
    """Starts compiles if there are workers; drops them after the block."""
    del start, configs, how
    return contextlib.nullcontext()

  @abc.abstractmethod
  def compile(
    self, config: config_lib.XlaConfig = _DEFAULT
  ) -> lowered_lib.Compilation:
    """A compile to the end.

    Raises:
      CompileError: there is an obstacle, or XLA failed.
      LagomError: see `schedule`.
    """

  @abc.abstractmethod
  def outcome(self, form: form_lib.Form) -> form_lib.Outcome:
    """The effect of a form on the program, without compiling it.

    If the program cannot have the form, it has reasons instead of actions.
    """

  @abc.abstractmethod
  def chains(self) -> tuple[chains_lib.Chain, ...]:
    """The chains of the unchanged program that could be cut in pieces."""

  def digest(self, form: form_lib.Form) -> str:
    """Equal for forms in which the program is the same."""
    return repr(rewriting.key(form))

  def schedule_with_chains(
    self, config: config_lib.XlaConfig = _DEFAULT
  ) -> hlo.Module:
    """The schedule, with the labels of collectives' chains.

    They are in the frontend attribute `slices.cut.CHAIN`, separated by commas.
    """
    return self.schedule(config)

  @abc.abstractmethod
  def identity(self) -> hlo.Module:
    """The module whose fingerprint identifies this target.

    If possible it is the one before XLA combines and schedules: later passes
    depend on whether XLA can time kernels on a GPU.
    """


@dataclasses.dataclass(frozen=True, kw_only=True)
class _LoweredTarget(Target):
  """A lowered program, which XLA compiles under a config.

  Compiles for CPUs that stand for GPUs cannot end at the schedule, so they go
  to the end.

  Attributes:
    lowered: the program.
  """

  lowered: lowered_lib.Lowered

  @property
  def num_workers(self) -> int:
    workers = self.lowered.workers
    return 0 if workers is None else workers.max_workers

  @property
  def handed(self) -> request_lib.Handed:
    return self.lowered.handed

  @property
  def jit_options(self) -> Mapping[str, Any]:
    return self.lowered.jit_options

  @property
  def ends_before_code(self) -> bool:
    return not (self.obstacle or compiler.generates_code(self.lowered, {}))

  @property
  def _is_stand_in(self) -> bool:
    return self.lowered.platform == "cpu"

  def with_workers(self, workers: pool_lib.Pool) -> Self:
    program: Any = self.lowered
    lowered = dataclasses.replace(program, workers=workers)
    return dataclasses.replace(self, lowered=lowered)

  @contextlib.contextmanager
  def _starting(
    self,
    start: Callable[..., compiler.Pending[Any]],
    configs: Iterable[config_lib.XlaConfig],
    **how: bool,
  ) -> Iterator[None]:
    with contextlib.ExitStack() as begun:
      for config in configs if self.num_workers else ():
        # `schedule` raises the error later.
        with contextlib.suppress(errors.LagomError):
          begun.callback(start(self.lowered, config, **how).drop)
      yield

  def schedule(self, config: config_lib.XlaConfig = _DEFAULT) -> hlo.Module:
    if self._is_stand_in:
      return self.compile(config).module
    with watching.watched(config, self.cluster.name):
      return compiler.schedule(self.lowered, config, must_begin=self.must_begin)

  def compile(
    self, config: config_lib.XlaConfig = _DEFAULT
  ) -> lowered_lib.Compilation:
    with watching.watched(config, self.cluster.name, is_to_the_end=True):
      return compiler.compile(self.lowered, config, must_begin=self.must_begin)

  def with_program(self, stablehlo: Any) -> Self:
    """The target with another program that its user could write."""
    program: Any = self.lowered
    lowered = program.with_program(stablehlo)
    return dataclasses.replace(self, lowered=lowered)

  def outcome(self, form: form_lib.Form) -> form_lib.Outcome:
    return self.lowered.rewritten(form)[1]

  def chains(self) -> tuple[chains_lib.Chain, ...]:
    return self.lowered.chains()

  def digest(self, form: form_lib.Form) -> str:
    return lowerings.digest(self.lowered.rewritten(form)[0].stablehlo)

  def schedule_with_chains(
    self, config: config_lib.XlaConfig = _DEFAULT
  ) -> hlo.Module:
    with watching.watched(config, self.cluster.name):
      return compiler.schedule(self.lowered.with_chains_tagged(), config)

  def identity(self) -> hlo.Module:
    if self._is_stand_in:
      return self.schedule()
    return compiler.start_before_combining(self.lowered).result()


@dataclasses.dataclass(frozen=True, kw_only=True)
class StepTarget(_LoweredTarget):
  """A step that this process lowered."""

  lowered: lowered_lib.LoweredStep


@dataclasses.dataclass(frozen=True, kw_only=True)
class ModuleTarget(_LoweredTarget):
  """An HLO module that XLA has not optimized yet."""

  lowered: lowered_lib.LoweredModule


@dataclasses.dataclass(frozen=True, kw_only=True)
class _ScheduledTarget(Target):
  """A module that XLA has already scheduled; only orders can change it.

  XLA options have no effect on it.
  """

  module: hlo.Module

  @property
  def is_read_only(self) -> bool:
    return True

  @property
  def obstacle(self) -> str | None:
    return f"{self.name} is already scheduled"

  def schedule(self, config: config_lib.XlaConfig = _DEFAULT) -> hlo.Module:
    rewriting.check(self.name, config.program, self.outcome(config.program))
    if config.combine_groups is not None:
      raise errors.CompileError(
        f"{self.name} is already scheduled, so its collectives cannot be"
        " combined in another way. Name a dump before_optimizations."
      )
    return orders_lib.apply(self.module, config.orders)

  def compile(
    self, config: config_lib.XlaConfig = _DEFAULT
  ) -> lowered_lib.Compilation:
    raise errors.CompileError(
      f"{self.obstacle}: name a dump before_optimizations."
    )

  def outcome(self, form: form_lib.Form) -> form_lib.Outcome:
    del form
    return form_lib.Outcome.refused(self.name, "it is already scheduled")

  def chains(self) -> tuple[chains_lib.Chain, ...]:
    return ()

  def identity(self) -> hlo.Module:
    return self.module


def of_step(
  lowered: Any,
  cluster: cluster_lib.Cluster,
  *,
  name: str,
  names: Sequence[str] = (),
) -> StepTarget:
  """A target from a step lowered by `jax.jit` or `nnx.jit`.

  The last `names` are those of its flat arguments, if JAX's own are not the
  user's.

  Raises:
    TargetError: the step is for another number of devices.
  """
  lowered = nnx_step.lowered_inside(lowered)
  count = num_devices(lowered)
  if count != cluster.num_devices:
    raise errors.TargetError(
      f"{name} is sharded over {count} of the {cluster.num_devices}"
      f" devices of {cluster.name}: shard its arguments over all of them, or"
      " name a smaller cluster."
    )
  step = lowered_lib.LoweredStep(lowered, cluster, names)
  return StepTarget(name=name, cluster=cluster, lowered=step)


def of_sent(step: lowered_lib.SentStep) -> Target:
  """A target from a step that another process lowered."""
  return _LoweredTarget(name="the step", cluster=step.cluster, lowered=step)


def of_module(
  module: hlo.Module,
  cluster: cluster_lib.Cluster,
  *,
  name: str,
  jit_options: lowered_lib.Options | None = None,
) -> Target:
  """A target from a module: scheduled ones are read, others are compiled.

  For a step's module, `jit_options` are the step's compiler_options.

  Raises:
    CompileError: the module is for another number of devices.
    TargetError: it was not optimized for GPUs.
  """
  if unoptimized.partitioner(module) is None:
    count, how = collectives.num_devices(module), "was partitioned for"
  else:
    count, how = unoptimized.num_devices(module), "is sharded over"
  count = module.num_partitions or count
  if count is not None and count != cluster.num_devices:
    raise errors.CompileError(
      f"{module.name} {how} {count} device{'s' * (count != 1)}, but"
      f" {cluster.name} has {cluster.num_devices}. Name a cluster with"
      f" {count}."
    )
  if module.is_scheduled:
    _check_is_gpu(module)
    return _ScheduledTarget(name=name, cluster=cluster, module=module)
  _check_needs_no_python(module)
  lowered = lowered_lib.LoweredModule(
    module, cluster, options_of_jit=jit_options or {}
  )
  return ModuleTarget(name=name, cluster=cluster, lowered=lowered)


def num_devices(lowered: jax.stages.Lowered) -> int:
  """Devices that a step is lowered for."""
  stablehlo = lowered.compiler_ir("stablehlo")
  assert stablehlo is not None
  attributes = stablehlo.operation.attributes
  return math.prod(
    attributes[name].value
    for name in ("mhlo.num_partitions", "mhlo.num_replicas")
    if name in attributes
  )


# Custom calls to Python at an address in the process that lowered the module ->
# what makes them.
_PARTITIONERS = {
  "CustomSPMDPartitioning": (
    "jax.experimental.custom_partitioning, used by cuDNN attention and"
    " Transformer Engine"
  ),
  "InspectSharding": "jax.debug.inspect_array_sharding",
}


def _check_needs_no_python(module: hlo.Module) -> None:
  """Raises a TargetError if a module calls into its program's process."""
  targets = {i.custom_call_target for i in module.instructions}
  for name in _PARTITIONERS.keys() & targets:
    raise errors.TargetError(
      f"{module.name} calls partitioners in Python ({name}:"
      f" {_PARTITIONERS[name]}), which exist only in the process that lowered"
      " it: name the step itself, or a dump after_spmd_partitioner."
    )


def _check_is_gpu(module: hlo.Module) -> None:
  """Raises a TargetError if an optimized module is for another platform."""
  for computation in module.computations.values():
    for instruction in computation.instructions:
      fields = module.backend_config(instruction).keys()
      if instruction.custom_call_target in _TPU_CALLS or fields & _TPU_FIELDS:
        platform = "TPUs"
      elif fields & _CPU_FIELDS:
        platform = "CPUs"
      else:
        continue
      raise errors.TargetError(
        f"{module.name} was optimized for {platform}, not for GPUs (see"
        f" {instruction.name} in {computation.name}): name the step itself, or"
        " a dump before_optimizations."
      )
