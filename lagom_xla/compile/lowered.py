# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Lowered programs for XLA: steps, modules, and steps sent as data.

    lowered.write_step(step, cluster, folder)     # in the training process
    step = lowered.read_step(folder)              # in one that only searches

A sent step has StableHLO, with donation and shardings, and compile options, but
never the user's code.
"""

from __future__ import annotations

import abc
from collections.abc import Mapping, Sequence
import dataclasses
import functools
import pathlib
import pickle
from typing import TYPE_CHECKING, Any, Self

import jax

from lagom_xla import cluster as cluster_lib
from lagom_xla import errors
from lagom_xla.compile import devices as devices_lib
from lagom_xla.compile import nnx_step
from lagom_xla.compile import pool as pool_lib
from lagom_xla.compile import rewriting
from lagom_xla.compile import unoptimized
from lagom_xla.compile import xla
from lagom_xla.jax_internals import caches
from lagom_xla.jax_internals import lowerings
from lagom_xla.jax_internals import request as request_lib
from lagom_xla.passes import hlo
from lagom_xla.passes.program import form as form_lib
from lagom_xla.passes.program import rewrite as rewrite_lib
from lagom_xla.passes.program.slices import chains as chains_lib

# XLA's options, and `request.PROFILE`.
Options = Mapping[str, bool | int | float | str | bytes]

_NO_FORM = (
  "it is HLO that is not partitioned yet; name the step itself, or a dump"
  " after_spmd_partitioner"
)

_FILE = "step.pickle"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Compilation:
  """Result of a compile to the end.

  Attributes:
    module: the module that runs.
    peak_bytes: peak device memory of a step, by XLA's buffer assignment; None
      if unknown.
    compiled: the executable; None if nothing calls it.
  """

  module: hlo.Module
  peak_bytes: int | None
  compiled: jax.stages.Compiled | None = None


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class Lowered(abc.ABC):
  """A program that XLA compiles for a cluster.

  Attributes:
    options_to_the_end: XLA options without which it cannot be compiled to the
      end.
    workers: processes to compile in; None for this one.
  """

  options_to_the_end: Options = dataclasses.field(default_factory=dict)
  workers: pool_lib.Pool | None = None

  if TYPE_CHECKING:  # A field of each subclass, after the program.

    @property
    def cluster(self) -> cluster_lib.Cluster:
      """What it is compiled for."""
      ...

  @property
  def name(self) -> str:
    """Name of its HLO module; XLA also compiles small ones with other names."""
    return self.stablehlo.operation.attributes["sym_name"].value

  @property
  @abc.abstractmethod
  def stablehlo(self) -> Any:
    """The program; read-only."""

  @property
  @abc.abstractmethod
  def platform(self) -> str:
    """XLA's platform: "cuda", or "cpu" if CPUs stand for GPUs."""

  @property
  def jit_options(self) -> Options:
    """The compiler_options of its `jax.jit`, where they are known."""
    return {}

  @property
  @abc.abstractmethod
  def is_run(self) -> bool:
    """Whether the executable of a compile can run in this process."""

  def run_compiler(self, options: Options) -> Any:
    """Runs XLA's compiler; pass the executable to `compilation`."""
    request = self.request(options)
    assert request is not None
    return request_lib.compile(request, self._devices)

  @functools.cached_property
  def _devices(self) -> Sequence[jax.Device]:
    if self.platform == "cuda":
      return devices_lib.devices(self.cluster)
    devices_lib.stand_in_with_cpus(self.cluster)
    return jax.devices("cpu")

  @abc.abstractmethod
  def request(self, options: Options) -> request_lib.Request | None:
    """The input of `run_compiler`; None if only this process can compile it."""

  @functools.cached_property
  def handed(self) -> request_lib.Handed:
    """What JAX passes to XLA for it besides the module."""
    with caches.persistent_off():
      request = self.request({})
    assert request is not None
    return request_lib.handed_by(request)

  def compilation(self, executable: Any) -> Compilation:
    """The module and memory of an executable."""
    found = xla.assigned(executable)
    module = hlo.Module(found.module, self.cluster.num_devices)
    return Compilation(module=module, peak_bytes=found.peak_bytes)

  @property
  def has_forms(self) -> bool:
    """Whether forms apply: it is a JAX program, or already partitioned."""
    return True

  def rewritten(self, form: form_lib.Form) -> tuple[Self, form_lib.Outcome]:
    """The program in a form, and the outcome; the same objects each time."""
    if not self.has_forms:
      return self, form_lib.Outcome.refused(self.name, _NO_FORM)
    key = rewriting.key(form)
    if key not in self._forms:
      rewritten, outcome = rewrite_lib.rewrite(self.stablehlo, form)
      program = self.with_program(rewritten) if outcome.actions else self
      self._forms[key] = program, outcome
    return self._forms[key]

  def with_paths(self, module: hlo.Module) -> hlo.Module:
    """A module of this program, whose arguments have their user's paths."""
    return module

  def copied(self) -> Self:
    """The same program, without a cached executable in JAX."""
    return self

  def chains(self) -> tuple[chains_lib.Chain, ...]:
    """The chains that could be cut in pieces."""
    return chains_lib.find(self.stablehlo) if self.has_forms else ()

  def with_chains_tagged(self) -> Self:
    """The program with each collective's chains in its attributes."""
    if not self.has_forms:
      return self
    return self.with_program(rewrite_lib.with_chains_tagged(self.stablehlo))

  @abc.abstractmethod
  def with_program(self, stablehlo: Any) -> Self:
    """A copy with another program."""

  @functools.cached_property
  def _forms(self) -> dict[object, tuple[Self, form_lib.Outcome]]:
    return {}

  @functools.cached_property
  def _sent(self) -> request_lib.Program:
    return request_lib.program(self.stablehlo)


def in_form(lowered: Lowered, form: form_lib.Form) -> Lowered:
  """A program in a form; raises a ProgramError if it cannot have it."""
  if form.is_as_written:
    return lowered
  program, outcome = lowered.rewritten(form)
  rewriting.check(lowered.name, form, outcome)
  return program


@dataclasses.dataclass(frozen=True, eq=False)
class LoweredStep(Lowered):
  """A jitted step, lowered for a cluster's devices."""

  step: jax.stages.Lowered
  cluster: cluster_lib.Cluster
  names: Sequence[str] = ()

  @property
  def stablehlo(self) -> Any:
    """JAX's own module, which must not be changed."""
    return self.step.compiler_ir("stablehlo")

  @property
  def platform(self) -> str:
    """The platform that it was lowered for."""
    return _platform(self.step)

  @property
  def is_run(self) -> bool:
    """Whether its devices are here."""
    return self.platform == "cpu" or devices_lib.is_live(self.cluster)

  def run_compiler(self, options: Options) -> jax.stages.Compiled:
    """Compiles through JAX, which caches executables by module."""
    compiler_options: Any = dict(options)
    return self.step.compile(compiler_options)

  def request(self, options: Options) -> request_lib.Request | None:
    """JAX's request to XLA; None for a step that calls into Python."""
    return request_lib.of_step(self.step, options, self._sent)

  @property
  def jit_options(self) -> Options:
    """The compiler_options that it was lowered with."""
    return request_lib.jit_options(self.step)

  @functools.cached_property
  def handed(self) -> request_lib.Handed:
    """JAX's inputs to XLA; also for a step that calls into Python."""
    return request_lib.handed_for(self.step)

  def compilation(self, executable: jax.stages.Compiled) -> Compilation:
    """The module and memory of one of JAX's executables, with it."""
    memory = executable.memory_analysis()
    return Compilation(
      module=hlo.load(executable),
      compiled=executable,
      peak_bytes=None if memory is None else xla.peak_bytes(memory),
    )

  def with_paths(self, module: hlo.Module) -> hlo.Module:
    """Names what is in modules, such as Flax's, as the user does."""
    for parameter in module.entry.parameters:
      number = parameter.parameter_number
      if number < len(self._names):
        parameter.metadata.op_name = self._names[number]
        continue
      end, path = self._paths[number] if number < len(self._paths) else ("", "")
      if path and parameter.metadata.op_name.endswith(end):
        root = parameter.metadata.op_name.removesuffix(end)
        parameter.metadata.op_name = f"{root}{path}"
    return module

  @functools.cached_property
  def _paths(self) -> Sequence[tuple[str, str]]:
    paths = nnx_step.paths(self.step)
    return [paths[number] for number in lowerings.kept_arguments(self.step)]

  @functools.cached_property
  def _names(self) -> Sequence[str]:
    names = self.names[-self.step.in_tree.num_leaves :]
    if len(set(names)) < self.step.in_tree.num_leaves:
      return ()
    return [names[number] for number in lowerings.kept_arguments(self.step)]

  def copied(self) -> Self:
    """The step with its own copy of the module, JAX's cache key."""
    return dataclasses.replace(self, step=lowerings.copied(self.step))

  def with_program(self, stablehlo: Any) -> Self:
    """A copy with another program in place of the step's own."""
    step = lowerings.with_module(self.step, stablehlo)
    return dataclasses.replace(self, step=step)


@dataclasses.dataclass(frozen=True, eq=False)
class LoweredModule(Lowered):
  """An unoptimized HLO module, or its StableHLO in another form.

  If it is not partitioned yet, XLA does that, and it has no forms.

  Unknown library calls, such as Transformer Engine's attention, stay as they
  are, as a schedule needs no code for them. A compile to the end, which only
  gives the module's memory, mocks them.
  """

  module: hlo.Module
  cluster: cluster_lib.Cluster
  rewritten_program: Any = None
  options_of_jit: Options = dataclasses.field(
    default_factory=dict, kw_only=True
  )
  options_to_the_end: Options = dataclasses.field(
    default_factory=lambda: {"xla_gpu_mock_custom_calls": True}, kw_only=True
  )

  @property
  def name(self) -> str:
    """The module's name."""
    return self.module.name

  @functools.cached_property
  def stablehlo(self) -> Any:
    """The module as StableHLO, in its form."""
    return self.rewritten_program or unoptimized.stablehlo_of(self.module)

  @property
  def platform(self) -> str:
    """Always "cuda"."""
    return "cuda"

  @property
  def jit_options(self) -> Options:
    """The compiler_options of its step."""
    return self.options_of_jit

  @property
  def is_run(self) -> bool:
    """Always false: there are no arguments to run it with."""
    return False

  @property
  def has_forms(self) -> bool:
    """Whether it is already partitioned."""
    return self._partitioner is None

  @functools.cached_property
  def _partitioner(self) -> str | None:
    return unoptimized.partitioner(self.module)

  def request(self, options: Options) -> request_lib.Request:
    """The request for the module, with its partitioner."""
    return request_lib.of_stablehlo(
      self._sent,
      self._devices,
      {**self.jit_options, **options},
      partitioner=self._partitioner,
    )

  @functools.cached_property
  def handed(self) -> request_lib.Handed:
    """JAX's inputs to XLA, with the options of its step; no partitioner."""
    return request_lib.handed_for_any(self.jit_options)

  def with_program(self, stablehlo: Any) -> Self:
    """A copy with another program in place of the module's."""
    return dataclasses.replace(self, rewritten_program=stablehlo)


@dataclasses.dataclass(frozen=True, eq=False)
class SentStep(Lowered):
  """A step that another process lowered.

  Attributes:
    sent: the request that the other process would make.
    lowered_for: the platform.
  """

  sent: request_lib.Request
  lowered_for: str
  cluster: cluster_lib.Cluster

  @functools.cached_property
  def stablehlo(self) -> Any:
    """The program that was sent."""
    return request_lib.module(self.sent.program.bytecode)

  @property
  def platform(self) -> str:
    """The platform that it was lowered for."""
    return self.lowered_for

  @property
  def is_run(self) -> bool:
    """As for the step itself, so that plans agree."""
    return self.platform == "cpu"

  def request(self, options: Options) -> request_lib.Request:
    """The request that was sent, with these options."""
    return request_lib.with_options(self.sent, options)

  def with_program(self, stablehlo: Any) -> Self:
    """A copy with another program in place of the one that was sent."""
    program = request_lib.program(stablehlo)
    sent = dataclasses.replace(self.sent, program=program)
    return dataclasses.replace(self, sent=sent)


def write_step(
  lowered: Any, cluster: cluster_lib.Cluster, folder: pathlib.Path
) -> None:
  """Writes a lowered step to a folder that exists, for `read_step`.

  Raises:
    TargetError: it calls back into this process.
    OSError: the folder cannot be written.
  """
  step = nnx_step.lowered_inside(lowered)
  with caches.persistent_off():
    program: Any = step.compiler_ir("stablehlo")
    request = request_lib.of_step(step, {}, request_lib.program(program))
  if request is None:
    raise errors.TargetError(
      "The step calls back into Python, as jax.debug.print does, so no other"
      " process can compile it: remove the callbacks to have it tuned."
    )
  sent = SentStep(request, _platform(step), cluster)
  (folder / _FILE).write_bytes(pickle.dumps(sent))


def read_step(folder: pathlib.Path) -> SentStep:
  """Reads what `write_step` wrote; an OSError if there is nothing."""
  return pickle.loads((folder / _FILE).read_bytes())


def _platform(step: jax.stages.Lowered) -> str:
  return "cpu" if lowerings.client_of(step).platform == "cpu" else "cuda"
