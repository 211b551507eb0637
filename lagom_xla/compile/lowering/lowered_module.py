# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""An unoptimized HLO module as a lowered program."""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

from lagom_xla import cluster as cluster_lib
from lagom_xla.compile import devices as devices_lib
from lagom_xla.compile.lowering import lowered
from lagom_xla.compile.lowering import rewriting
from lagom_xla.compile.lowering import shardings
from lagom_xla.compile.lowering import stablehlo as stablehlo_lib
from lagom_xla.compile.workers import pool as pool_lib
from lagom_xla.jax_internals import request as request_lib
from lagom_xla.jax_internals import untraced
from lagom_xla.passes import hlo
from lagom_xla.passes.program import form as form_lib
from lagom_xla.passes.program import outcome as outcome_lib
from lagom_xla.passes.program import rewrite as rewrite_lib

_NO_FORM = (
  "it is HLO that is not partitioned yet; the step itself, or a dump"
  " after_spmd_partitioner, can have forms"
)


@dataclasses.dataclass(frozen=True, eq=False)
class LoweredModule:
  """An unoptimized HLO module; see `lowered.Lowered`.

  XLA partitions it where that was not done yet; then it has no forms, which are
  made from the JAX program or from the program of one device.

  Library calls that this process does not know, such as Transformer Engine's
  attention, stay as they are: a schedule needs no code for them. A compile to
  the end, which only tells the memory that the module needs, mocks them.

  Attributes:
    module: the module.
    cluster: what it is compiled for.
    options_to_the_end: see `lowered.Lowered`.
    platform: see `lowered.Lowered`.
    is_run: see `lowered.Lowered`.
    rewritten_program: its StableHLO in another form; None for the module's.
    workers: see `lowered.Lowered`.
  """

  module: hlo.Module
  cluster: cluster_lib.Cluster
  options_to_the_end: lowered.Options = dataclasses.field(
    default_factory=lambda: {"xla_gpu_mock_custom_calls": True}
  )
  platform: str = "cuda"
  is_run: bool = False
  rewritten_program: Any = None
  workers: pool_lib.Pool | None = None
  _forms: dict[object, rewriting.Rewritten[LoweredModule]] = dataclasses.field(
    default_factory=dict, init=False, repr=False
  )

  @property
  def name(self) -> str:
    """See `lowered.Lowered`."""
    return self.module.name

  @functools.cached_property
  def stablehlo(self) -> Any:
    """See `lowered.Lowered`."""
    return self.rewritten_program or stablehlo_lib.of_module(self.module)

  @property
  def is_partitioned(self) -> bool:
    """Whether the module is the program of one device."""
    return self._partitioner is None

  @functools.cached_property
  def _partitioner(self) -> str | None:
    return shardings.partitioner(self.module)

  def run_compiler(
    self, options: lowered.Options, scheduler_profile: bytes | None
  ) -> Any:
    """See `lowered.Lowered`."""
    return untraced.compile_stablehlo(
      self.stablehlo,
      devices_lib.devices(self.cluster),
      options,
      scheduler_profile,
      partitioner=self._partitioner,
    )

  def request(
    self, options: lowered.Options, scheduler_profile: bytes | None
  ) -> request_lib.Request:
    """See `lowered.Lowered`."""
    return request_lib.of_stablehlo(
      self._sent,
      devices_lib.devices(self.cluster),
      options,
      scheduler_profile,
      partitioner=self._partitioner,
    )

  @functools.cached_property
  def _sent(self) -> request_lib.Program:
    return request_lib.program(self.stablehlo)

  def compilation(self, executable: Any) -> lowered.Compilation:
    """See `lowered.Lowered`."""
    return lowered.of_executable(executable, self.cluster)

  def rewritten(
    self, form: form_lib.Form
  ) -> rewriting.Rewritten[LoweredModule]:
    """See `lowered.Lowered`."""
    if not self.is_partitioned:
      refusal = outcome_lib.Refusal(where=self.name, reason=_NO_FORM)
      outcome = outcome_lib.Outcome(refusals=(refusal,))
      return rewriting.Rewritten(program=self, outcome=outcome)
    key = rewriting.key(form)
    if key not in self._forms:
      rewritten = rewriting.module(self.stablehlo, form)
      self._forms[key] = rewriting.Rewritten(
        program=dataclasses.replace(self, rewritten_program=rewritten.program),
        outcome=rewritten.outcome,
      )
    return self._forms[key]

  def copied(self) -> LoweredModule:
    """See `lowered.Lowered`: JAX remembers nothing of a module."""
    return self

  def with_chains_tagged(self) -> LoweredModule:
    """See `lowered.Lowered`."""
    if not self.is_partitioned:
      return self
    tagged = rewrite_lib.with_chains_tagged(self.stablehlo)
    return dataclasses.replace(self, rewritten_program=tagged)
