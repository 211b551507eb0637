# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""A jitted step as a lowered program."""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import jax

from lagom_xla import cluster as cluster_lib
from lagom_xla.compile import devices as devices_lib
from lagom_xla.compile.lowering import lowered
from lagom_xla.compile.lowering import rewriting
from lagom_xla.compile.workers import pool as pool_lib
from lagom_xla.compile.xla import memory_stats
from lagom_xla.jax_internals import lowerings
from lagom_xla.jax_internals import request as request_lib
from lagom_xla.passes import hlo
from lagom_xla.passes.program import form as form_lib
from lagom_xla.passes.program import rewrite as rewrite_lib


@dataclasses.dataclass(frozen=True, eq=False)
class LoweredStep:
  """A jitted step, lowered for a cluster's devices; see `lowered.Lowered`."""

  step: jax.stages.Lowered
  cluster: cluster_lib.Cluster
  options_to_the_end: lowered.Options = dataclasses.field(default_factory=dict)
  workers: pool_lib.Pool | None = None
  _forms: dict[object, rewriting.Rewritten[LoweredStep]] = dataclasses.field(
    default_factory=dict, init=False, repr=False
  )

  @property
  def name(self) -> str:
    """See `lowered.Lowered`."""
    return self.stablehlo.operation.attributes["sym_name"].value

  @property
  def stablehlo(self) -> Any:
    """See `lowered.Lowered`."""
    return self.step.compiler_ir("stablehlo")

  @property
  def platform(self) -> str:
    """See `lowered.Lowered`."""
    is_cpu = lowerings.client_of(self.step).platform == "cpu"
    return "cpu" if is_cpu else "cuda"

  @property
  def is_run(self) -> bool:
    """See `lowered.Lowered`."""
    return self.platform == "cpu" or devices_lib.is_live(self.cluster)

  def run_compiler(
    self, options: lowered.Options, scheduler_profile: bytes | None
  ) -> jax.stages.Compiled:
    """See `lowered.Lowered`."""
    return self.step.compile(
      compiler_options=_all_options(options, scheduler_profile)
    )

  def request(
    self, options: lowered.Options, scheduler_profile: bytes | None
  ) -> request_lib.Request | None:
    """See `lowered.Lowered`."""
    all_options = _all_options(options, scheduler_profile)
    return request_lib.of_step(self.step, all_options, self._sent)

  @functools.cached_property
  def _sent(self) -> request_lib.Program:
    return request_lib.program(self.stablehlo)

  def compilation(self, executable: jax.stages.Compiled) -> lowered.Compilation:
    """See `lowered.Lowered`."""
    memory = executable.memory_analysis()
    return lowered.Compilation(
      module=hlo.load(executable),
      compiled=executable,
      peak_bytes=None if memory is None else memory_stats.peak_bytes(memory),
    )

  def rewritten(self, form: form_lib.Form) -> rewriting.Rewritten[LoweredStep]:
    """See `lowered.Lowered`: JAX remembers executables by module."""
    key = rewriting.key(form)
    if key not in self._forms:
      rewritten = rewriting.step(self.step, form)
      self._forms[key] = rewriting.Rewritten(
        program=dataclasses.replace(self, step=rewritten.program),
        outcome=rewritten.outcome,
      )
    return self._forms[key]

  def copied(self) -> LoweredStep:
    """See `lowered.Lowered`."""
    return dataclasses.replace(self, step=lowerings.copied(self.step))

  def with_chains_tagged(self) -> LoweredStep:
    """See `lowered.Lowered`."""
    tagged = rewrite_lib.with_chains_tagged(self.stablehlo)
    return dataclasses.replace(
      self, step=lowerings.with_module(self.step, tagged)
    )


def _all_options(
  options: lowered.Options, scheduler_profile: bytes | None
) -> dict[str, Any]:
  """The options as JAX takes them."""
  if scheduler_profile is None:
    return dict(options)
  return {**options, "fdo_profile": scheduler_profile}
