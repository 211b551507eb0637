# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Lowered programs, which XLA compiles: what each must be able to do."""

from __future__ import annotations

from collections.abc import Mapping
import dataclasses
from typing import Any, Protocol

import jax

from lagom_xla import cluster as cluster_lib
from lagom_xla.compile.lowering import rewriting
from lagom_xla.compile.workers import pool as pool_lib
from lagom_xla.compile.xla import memory_stats
from lagom_xla.jax_internals import request as request_lib
from lagom_xla.passes import hlo
from lagom_xla.passes.program import form as form_lib

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


def uncalled(
  module: bytes, cluster: cluster_lib.Cluster, peak_bytes: int | None
) -> Compilation:
  """A compile whose executable nothing calls.

  Args:
    module: an HloModuleProto, serialized.
    cluster: that it was compiled for.
    peak_bytes: see `Compilation`.
  """
  proto = hlo.hlo_pb2.HloModuleProto.FromString(module)
  return Compilation(
    module=hlo.Module(proto, cluster.num_devices),
    compiled=None,
    peak_bytes=peak_bytes,
  )


def of_executable(executable: Any, cluster: cluster_lib.Cluster) -> Compilation:
  """The same of one of jaxlib's executables."""
  (module,) = executable.hlo_modules()
  memory = executable.get_compiled_memory_stats()
  return uncalled(
    module.as_serialized_hlo_module_proto(),
    cluster,
    memory_stats.peak_bytes(memory),
  )


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

  @property
  def workers(self) -> pool_lib.Pool | None:
    """Processes to compile in; None for this one."""
    ...

  def request(
    self, options: Options, scheduler_profile: bytes | None
  ) -> request_lib.Request | None:
    """What `run_compiler` hands to XLA; None where only this process can."""
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
