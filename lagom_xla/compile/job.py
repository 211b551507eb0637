# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Jobs: one compile each, as data that any process can compile.

A job holds StableHLO and options, never the user's code, so a worker imports
nothing of the user's. JAX is imported when there is a job: whoever makes one
has it, and workers start before that.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import os
import pathlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
  from lagom_xla import cluster as cluster_lib
  from lagom_xla.jax_internals import request as request_lib
  from lagom_xla.passes import combine
  from lagom_xla.passes import registry
  from lagom_xla.passes.schedule import orders as orders_lib


@dataclasses.dataclass(frozen=True, kw_only=True)
class Job:
  """A compile for a cluster whose devices are compile-only.

  Attributes:
    name: of the module.
    cluster: what it is compiled for.
    request: what XLA gets.
    stage: where the compile ends; None at the end.
    groups: combine groups that XLA is made to keep to.
    orders: orders of instructions that XLA is made to keep to.
    keeps_lines: whether what it gives must say in which lines of the user's
      program an instruction was written.
    fusion: what jobs share that may go on from one fused module; "" for one
      that shares nothing.
    must_begin: whether it is compiled from the beginning all the same, so
      that its instructions have the names that XLA gives them.
    leads: whether it gives that module, too.
    fused: that module, of one that goes on from it.
    needs_code: whether a compile to the end generates code, though nobody runs
      it, to see that it can.
  """

  name: str
  cluster: cluster_lib.Cluster
  request: request_lib.Request
  stage: registry.Stage | None
  groups: combine.Groups | None = None
  orders: orders_lib.Orders = dataclasses.field(default_factory=dict)
  keeps_lines: bool = True
  fusion: str = ""
  must_begin: bool = False
  leads: bool = False
  fused: bytes | None = None
  needs_code: bool = False

  @property
  def gives_schedule(self) -> bool:
    """Whether it is to the end, and gives its schedule beside that."""
    return self.stage is None and not self.orders

  @functools.cached_property
  def to_schedule(self) -> Job:
    """The job that ends at the schedule of this one."""
    from lagom_xla.passes import registry

    stage = registry.Stage.POST_SCHEDULER
    return dataclasses.replace(self, stage=stage, orders={})

  @property
  def digests(self) -> tuple[str, ...]:
    """Under which what it asks for may be found, in the order to look there.

    What was made from a fused module has the first, and all else the last.
    """
    if self.must_begin or not self.fusion:
      return (self.digest,)
    return (f"{self.digest}-from-fused", self.digest)

  @functools.cached_property
  def digest(self) -> str:
    """What equal jobs share under equal versions, in any process.

    It is the name of what comes of them from the beginning.
    """
    cluster, request = self.cluster, self.request
    parts = (
      _versions(),
      (self.name, self.stage, self.groups, sorted(self.orders.items())),
      self.needs_code and self.stage is None,
      (cluster.target_config(), cluster.num_nodes, cluster.gpus_per_node),
      (request.device_ids, sorted(request.overrides)),
    )
    digest = hashlib.sha256(repr(parts).encode())
    program = request.program
    content = program.content_digest.encode()
    module = program.bytecode if self.keeps_lines else content
    for data in (request.options, module):
      digest.update(hashlib.sha256(data).digest())
    return digest.hexdigest()


@dataclasses.dataclass(frozen=True, kw_only=True)
class Result:
  """What a compile gave.

  Attributes:
    module: the HloModuleProto; None where XLA ended without one of that name.
    peak_bytes: device memory at the peak of a step, of a compile to the end.
    schedule: the module as scheduled, of a job that gives it too.
    fused: what others may go on from, of a job that leads; None where nobody
      can.
    is_from_fused: whether it went on from there itself.
  """

  module: bytes | None
  peak_bytes: int | None = None
  schedule: bytes | None = None
  fused: bytes | None = None
  is_from_fused: bool = False


@functools.cache
def _versions() -> tuple[object, ...]:
  """Whatever a compile depends on beside its job."""
  import jax
  import jaxlib

  from lagom_xla.passes import registry

  plugin = registry.plugin_path()
  stat = plugin.stat() if plugin else None
  return (
    jax.__version__,
    jaxlib.__version__,
    (stat.st_size, stat.st_mtime_ns) if stat else None,
    os.environ.get("XLA_FLAGS", ""),
    _digest_of_sources(),
  )


def _digest_of_sources() -> str:
  """Our own part in compiles, which changes without a new version, too."""
  digest = hashlib.sha256()
  package = pathlib.Path(__file__).parents[1]
  for room in ("compile", "jax_internals", "passes"):
    for path in sorted((package / room).rglob("*.py")):
      digest.update(hashlib.sha256(path.read_bytes()).digest())
  return digest.hexdigest()
