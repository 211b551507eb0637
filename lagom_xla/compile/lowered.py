# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Lowered programs for XLA: a step, or an unoptimized HLO module."""

from __future__ import annotations

from collections.abc import Mapping
import dataclasses
import functools
from typing import Any, Protocol

import jax

from lagom_xla import cluster as cluster_lib
from lagom_xla.compile import _jax
from lagom_xla.compile import devices as devices_lib
from lagom_xla.compile import rewriting
from lagom_xla.compile import stablehlo as stablehlo_lib
from lagom_xla.passes import hlo
from lagom_xla.passes.program import form as form_lib
from lagom_xla.passes.program import rewrite as rewrite_lib

Options = Mapping[str, bool | int | float | str]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Compilation:
  """What a compile to the end gave.

  Attributes:
    module: the module that runs.
    compiled: the executable; None where it came from an HLO module, which
      nothing calls.
    peak_bytes: device memory that a step needs at its peak, by XLA's own
      buffer assignment; None where XLA does not say.
  """

  module: hlo.Module
  compiled: jax.stages.Compiled | None
  peak_bytes: int | None


class Lowered(Protocol):
  """A program that XLA compiles for a cluster."""

  @property
  def name(self) -> str:
    """Of its HLO module; XLA also compiles small ones of other names."""
    ...

  @property
  def cluster(self) -> cluster_lib.Cluster:
    """What it is compiled for."""
    ...

  @property
  def platform(self) -> str:
    """XLA's platform: "cuda"; or "cpu", where CPUs stand for GPUs."""
    ...

  @property
  def is_run(self) -> bool:
    """Whether what a compile to the end gives can run in this process."""
    ...

  def run_compiler(
    self, options: Options, scheduler_profile: bytes | None
  ) -> Any:
    """Runs XLA's compiler; the executable goes to `compilation`."""
    ...

  def compilation(self, executable: Any) -> Compilation:
    """What an executable holds."""
    ...

  @property
  def options_to_the_end(self) -> Options:
    """XLA options without which it cannot be compiled to the end."""
    ...

  def rewritten(self, form: form_lib.Form) -> rewriting.Rewritten[Lowered]:
    """The program in a form; the same object whenever it is asked for."""
    ...

  def copied(self) -> Lowered:
    """The same program, of which JAX remembers no executable."""
    ...

  @property
  def stablehlo(self) -> Any:
    """The program, for others to read."""
    ...

  def with_chains_tagged(self) -> Lowered:
    """The program with the chains of each collective in its attributes."""
    ...


@dataclasses.dataclass(frozen=True, eq=False)
class LoweredStep:
  """A jitted step, lowered for a cluster's devices; see `Lowered`."""

  step: jax.stages.Lowered
  cluster: cluster_lib.Cluster
  options_to_the_end: Options = dataclasses.field(default_factory=dict)
  _forms: dict[object, rewriting.Rewritten[LoweredStep]] = dataclasses.field(
    default_factory=dict, init=False, repr=False
  )

  @property
  def name(self) -> str:
    """See `Lowered`."""
    return self.stablehlo.operation.attributes["sym_name"].value

  @property
  def stablehlo(self) -> Any:
    """See `Lowered`."""
    return self.step.compiler_ir("stablehlo")

  @property
  def platform(self) -> str:
    """See `Lowered`."""
    is_cpu = _jax.client_of(self.step).platform == "cpu"
    return "cpu" if is_cpu else "cuda"

  @property
  def is_run(self) -> bool:
    """See `Lowered`."""
    return self.platform == "cpu" or devices_lib.is_live(self.cluster)

  def run_compiler(
    self, options: Options, scheduler_profile: bytes | None
  ) -> jax.stages.Compiled:
    """See `Lowered`."""
    all_options: dict[str, Any] = dict(options)
    if scheduler_profile is not None:
      all_options["fdo_profile"] = scheduler_profile
    return self.step.compile(compiler_options=all_options)

  def compilation(self, executable: jax.stages.Compiled) -> Compilation:
    """See `Lowered`."""
    memory = executable.memory_analysis()
    return Compilation(
      module=hlo.load(executable),
      compiled=executable,
      peak_bytes=None if memory is None else _peak_bytes(memory),
    )

  def rewritten(self, form: form_lib.Form) -> rewriting.Rewritten[LoweredStep]:
    """See `Lowered`. JAX remembers executables by module: there is but one."""
    key = rewriting.key(form)
    if key not in self._forms:
      rewritten = rewriting.step(self.step, form)
      self._forms[key] = rewriting.Rewritten(
        program=dataclasses.replace(self, step=rewritten.program),
        outcome=rewritten.outcome,
      )
    return self._forms[key]

  def copied(self) -> LoweredStep:
    """See `Lowered`."""
    return dataclasses.replace(self, step=_jax.copied(self.step))

  def with_chains_tagged(self) -> LoweredStep:
    """See `Lowered`."""
    tagged = rewrite_lib.with_chains_tagged(self.stablehlo)
    return dataclasses.replace(self, step=_jax.with_module(self.step, tagged))


@dataclasses.dataclass(frozen=True, eq=False)
class LoweredModule:
  """A partitioned, unoptimized HLO module; see `Lowered`.

  Library calls that this process does not know, such as Transformer Engine's
  attention, stay as they are: a schedule needs no code for them. A compile to
  the end, which only tells the memory that the module needs, mocks them.

  Attributes:
    module: the module.
    cluster: what it is compiled for.
    options_to_the_end: see `Lowered`.
    platform: see `Lowered`.
    is_run: see `Lowered`.
    rewritten_program: its StableHLO in another form; None for the module's.
  """

  module: hlo.Module
  cluster: cluster_lib.Cluster
  options_to_the_end: Options = dataclasses.field(
    default_factory=lambda: {"xla_gpu_mock_custom_calls": True}
  )
  platform: str = "cuda"
  is_run: bool = False
  rewritten_program: Any = None
  _forms: dict[object, rewriting.Rewritten[LoweredModule]] = dataclasses.field(
    default_factory=dict, init=False, repr=False
  )

  @property
  def name(self) -> str:
    """See `Lowered`."""
    return self.module.name

  @functools.cached_property
  def stablehlo(self) -> Any:
    """See `Lowered`."""
    return self.rewritten_program or stablehlo_lib.of_module(self.module)

  def run_compiler(
    self, options: Options, scheduler_profile: bytes | None
  ) -> Any:
    """See `Lowered`."""
    return _jax.compile_stablehlo(
      self.stablehlo,
      devices_lib.devices(self.cluster),
      options,
      scheduler_profile,
    )

  def compilation(self, executable: Any) -> Compilation:
    """See `Lowered`."""
    (compiled,) = executable.hlo_modules()
    proto = hlo.hlo_pb2.HloModuleProto.FromString(
      compiled.as_serialized_hlo_module_proto()
    )
    return Compilation(
      module=hlo.Module(proto, self.cluster.num_devices),
      compiled=None,
      peak_bytes=_peak_bytes(executable.get_compiled_memory_stats()),
    )

  def rewritten(
    self, form: form_lib.Form
  ) -> rewriting.Rewritten[LoweredModule]:
    """See `Lowered`."""
    key = rewriting.key(form)
    if key not in self._forms:
      rewritten = rewriting.module(self.stablehlo, form)
      self._forms[key] = rewriting.Rewritten(
        program=dataclasses.replace(self, rewritten_program=rewritten.program),
        outcome=rewritten.outcome,
      )
    return self._forms[key]

  def copied(self) -> LoweredModule:
    """See `Lowered`. JAX remembers nothing of what comes as a module."""
    return self

  def with_chains_tagged(self) -> LoweredModule:
    """See `Lowered`."""
    tagged = rewrite_lib.with_chains_tagged(self.stablehlo)
    return dataclasses.replace(self, rewritten_program=tagged)


def in_form(lowered: Lowered, form: form_lib.Form) -> Lowered:
  """A program in a form.

  Raises:
    ProgramError: it cannot have this form.
  """
  if form.is_as_written:
    return lowered
  rewritten = lowered.rewritten(form)
  rewriting.check(lowered.name, form, rewritten.outcome)
  return rewritten.program


def _peak_bytes(memory: Any) -> int:
  """Peak device memory of a `CompiledMemoryStats`."""
  peak = getattr(memory, "peak_memory_in_bytes", 0)
  return peak or (
    memory.argument_size_in_bytes
    + memory.output_size_in_bytes
    - memory.alias_size_in_bytes
    + memory.temp_size_in_bytes
  )
