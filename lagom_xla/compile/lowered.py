# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Lowered programs, which XLA compiles: steps, modules, and steps sent as data.

    lowered.write_step(step, cluster, folder)     # in the training process
    step = lowered.read_step(folder)              # in one that only searches

What is sent so holds StableHLO and compile options, with donation and shardings
in them, and never the user's code.
"""

from __future__ import annotations

from collections.abc import Mapping
import dataclasses
import functools
import json
import pathlib
from typing import Any, Protocol

import jax

from lagom_xla import cluster as cluster_lib
from lagom_xla import errors
from lagom_xla.compile import devices as devices_lib
from lagom_xla.compile import nnx_step
from lagom_xla.compile import pool
from lagom_xla.compile import rewriting
from lagom_xla.compile import unoptimized
from lagom_xla.compile import xla
from lagom_xla.jax_internals import caches
from lagom_xla.jax_internals import lowerings
from lagom_xla.jax_internals import request as request_lib
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
    xla.peak_bytes(memory),
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
  def workers(self) -> pool.Pool | None:
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


@dataclasses.dataclass(frozen=True, eq=False)
class LoweredStep:
  """A jitted step, lowered for a cluster's devices; see `lowered.Lowered`."""

  step: jax.stages.Lowered
  cluster: cluster_lib.Cluster
  options_to_the_end: Options = dataclasses.field(default_factory=dict)
  workers: pool.Pool | None = None
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
    self, options: Options, scheduler_profile: bytes | None
  ) -> jax.stages.Compiled:
    """See `lowered.Lowered`."""
    return self.step.compile(
      compiler_options=_all_options(options, scheduler_profile)
    )

  def request(
    self, options: Options, scheduler_profile: bytes | None
  ) -> request_lib.Request | None:
    """See `lowered.Lowered`."""
    all_options = _all_options(options, scheduler_profile)
    return request_lib.of_step(self.step, all_options, self._sent)

  @functools.cached_property
  def _sent(self) -> request_lib.Program:
    return request_lib.program(self.stablehlo)

  def compilation(self, executable: jax.stages.Compiled) -> Compilation:
    """See `lowered.Lowered`."""
    memory = executable.memory_analysis()
    return Compilation(
      module=hlo.load(executable),
      compiled=executable,
      peak_bytes=None if memory is None else xla.peak_bytes(memory),
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
  options: Options, scheduler_profile: bytes | None
) -> dict[str, Any]:
  """The options as JAX takes them."""
  if scheduler_profile is None:
    return dict(options)
  return {**options, "fdo_profile": scheduler_profile}


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
  options_to_the_end: Options = dataclasses.field(
    default_factory=lambda: {"xla_gpu_mock_custom_calls": True}
  )
  platform: str = "cuda"
  is_run: bool = False
  rewritten_program: Any = None
  workers: pool.Pool | None = None
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
    return self.rewritten_program or unoptimized.stablehlo_of(self.module)

  @property
  def is_partitioned(self) -> bool:
    """Whether the module is the program of one device."""
    return self._partitioner is None

  @functools.cached_property
  def _partitioner(self) -> str | None:
    return unoptimized.partitioner(self.module)

  def run_compiler(
    self, options: Options, scheduler_profile: bytes | None
  ) -> Any:
    """See `lowered.Lowered`."""
    return request_lib.compile_stablehlo(
      self.stablehlo,
      devices_lib.devices(self.cluster),
      options,
      scheduler_profile,
      partitioner=self._partitioner,
    )

  def request(
    self, options: Options, scheduler_profile: bytes | None
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

  def compilation(self, executable: Any) -> Compilation:
    """See `lowered.Lowered`."""
    return of_executable(executable, self.cluster)

  def rewritten(
    self, form: form_lib.Form
  ) -> rewriting.Rewritten[LoweredModule]:
    """See `lowered.Lowered`."""
    if not self.is_partitioned:
      refusal = form_lib.Refusal(where=self.name, reason=_NO_FORM)
      outcome = form_lib.Outcome(refusals=(refusal,))
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
  options_to_the_end: Options = dataclasses.field(default_factory=dict)
  workers: pool.Pool | None = None
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
    self, options: Options, scheduler_profile: bytes | None
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
    self, options: Options, scheduler_profile: bytes | None
  ) -> request_lib.Request:
    """See `lowered.Lowered`."""
    return request_lib.with_options(self.sent, options, scheduler_profile)

  def compilation(self, executable: Any) -> Compilation:
    """See `lowered.Lowered`."""
    return of_executable(executable, self.cluster)

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


def write_step(
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
  with caches.persistent_off():
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


def read_step(folder: pathlib.Path) -> SentStep:
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
