# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""A lowered step as data, which another process compiles as this one would.

    sent_step.write(lowered, cluster, folder)     # in the training process
    step = sent_step.read(folder)                 # in one that only searches

It holds StableHLO and compile options, with donation and shardings in them, and
never the user's code.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import pathlib
from typing import Any

import jax

from lagom_xla import cluster as cluster_lib
from lagom_xla import errors
from lagom_xla.compile import devices as devices_lib
from lagom_xla.compile.lowering import lowered as lowered_lib
from lagom_xla.compile.lowering import nnx_step
from lagom_xla.compile.lowering import rewriting
from lagom_xla.compile.workers import pool as pool_lib
from lagom_xla.jax_internals import lowerings
from lagom_xla.jax_internals import persistent_cache
from lagom_xla.jax_internals import request as request_lib
from lagom_xla.passes.program import form as form_lib
from lagom_xla.passes.program import rewrite as rewrite_lib

_STABLEHLO = "step.mlirbc"
_OPTIONS = "options.pb"
_FACTS = "step.json"


@dataclasses.dataclass(frozen=True, eq=False)
class SentStep:
  """A step that another process lowered; see `lowered.Lowered`.

  Attributes:
    sent: what that process would hand to XLA.
    platform: see `lowered.Lowered`.
    cluster: what it is compiled for.
    options_to_the_end: see `lowered.Lowered`.
    workers: see `lowered.Lowered`.
  """

  sent: request_lib.Request
  platform: str
  cluster: cluster_lib.Cluster
  options_to_the_end: lowered_lib.Options = dataclasses.field(
    default_factory=dict
  )
  workers: pool_lib.Pool | None = None
  _forms: dict[object, rewriting.Rewritten[SentStep]] = dataclasses.field(
    default_factory=dict, init=False, repr=False
  )

  @property
  def name(self) -> str:
    """See `lowered.Lowered`."""
    return self.stablehlo.operation.attributes["sym_name"].value

  @functools.cached_property
  def stablehlo(self) -> Any:
    """See `lowered.Lowered`."""
    return request_lib.module(self.sent.stablehlo)

  @property
  def is_run(self) -> bool:
    """See `lowered.Lowered`: as of the step itself, so that plans agree."""
    return self.platform == "cpu"

  def run_compiler(
    self, options: lowered_lib.Options, scheduler_profile: bytes | None
  ) -> Any:
    """See `lowered.Lowered`."""
    return request_lib.compile(
      self.request(options, scheduler_profile), self._devices
    )

  @functools.cached_property
  def _devices(self) -> Any:
    if self.platform == "cuda":
      return devices_lib.devices(self.cluster)
    devices_lib.stand_in_with_cpus(self.cluster)
    return jax.devices("cpu")

  def request(
    self, options: lowered_lib.Options, scheduler_profile: bytes | None
  ) -> request_lib.Request:
    """See `lowered.Lowered`."""
    return request_lib.with_options(self.sent, options, scheduler_profile)

  def compilation(self, executable: Any) -> lowered_lib.Compilation:
    """See `lowered.Lowered`."""
    return lowered_lib.of_executable(executable, self.cluster)

  def rewritten(self, form: form_lib.Form) -> rewriting.Rewritten[SentStep]:
    """See `lowered.Lowered`."""
    key = rewriting.key(form)
    if key not in self._forms:
      rewritten = rewriting.module(self.stablehlo, form)
      program = self
      if rewritten.outcome.actions:
        program = self._with_module(rewritten.program)
      self._forms[key] = rewriting.Rewritten(
        program=program, outcome=rewritten.outcome
      )
    return self._forms[key]

  def copied(self) -> SentStep:
    """See `lowered.Lowered`: JAX remembers nothing of it."""
    return self

  def with_chains_tagged(self) -> SentStep:
    """See `lowered.Lowered`."""
    return self._with_module(rewrite_lib.with_chains_tagged(self.stablehlo))

  def _with_module(self, module: Any) -> SentStep:
    program = request_lib.program(module)
    sent = dataclasses.replace(
      self.sent,
      stablehlo=program.bytecode,
      content_digest=program.content_digest,
    )
    return dataclasses.replace(self, sent=sent)


def write(
  lowered: Any, cluster: cluster_lib.Cluster, folder: pathlib.Path
) -> None:
  """Writes a lowered step to a folder, for `read`.

  Args:
    lowered: of `jax.jit` or Flax's `nnx.jit`.
    cluster: what it was lowered for.
    folder: exists.

  Raises:
    TargetError: the step calls back into this process, and cannot be compiled
      in another one.
    OSError: the folder cannot be written.
  """
  step = nnx_step.lowered_inside(lowered)
  with persistent_cache.off():
    program: Any = step.compiler_ir("stablehlo")
    request = request_lib.of_step(step, {}, request_lib.program(program))
  if request is None:
    raise errors.TargetError(
      "The step calls back into Python, as jax.debug.print does, so that no"
      " other process can compile it: take the callbacks out to have it tuned."
    )
  (folder / _STABLEHLO).write_bytes(request.stablehlo)
  (folder / _OPTIONS).write_bytes(request.options)
  facts = {
    "platform": "cpu"
    if lowerings.client_of(step).platform == "cpu"
    else "cuda",
    "cluster": cluster.to_dict(),
    "content_digest": request.content_digest,
    "overrides": request.overrides,
    "device_ids": request.device_ids,
  }
  (folder / _FACTS).write_text(json.dumps(facts))


def read(folder: pathlib.Path) -> SentStep:
  """Reads what `write` wrote.

  Raises:
    OSError: there is none.
  """
  facts = json.loads((folder / _FACTS).read_text())
  request = request_lib.Request(
    stablehlo=(folder / _STABLEHLO).read_bytes(),
    content_digest=facts["content_digest"],
    options=(folder / _OPTIONS).read_bytes(),
    overrides=tuple((name, value) for name, value in facts["overrides"]),
    device_ids=tuple(facts["device_ids"]),
  )
  cluster = cluster_lib.from_dict(facts["cluster"], where=str(folder))
  return SentStep(request, facts["platform"], cluster)
