# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Jobs: one compile each, as data that any process can compile.

A job holds StableHLO and options, never the user's code, so a worker imports
none of it. JAX is imported only when there is a job, so that workers start
fast.
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
    stage: where the compile ends; None for the end.
    groups: combine groups that XLA must use.
    orders: orders of instructions that XLA must use.
    keeps_lines: whether the result must have source lines of instructions.
    fusion: equal for jobs that may share a fused module; "" for none.
    must_begin: whether to compile from the beginning even so, to keep XLA's
      names of instructions.
    leads: whether to return the fused module, too.
    fused: the fused module to start from.
    needs_code: whether a compile to the end generates code, to check that it
      can, although nothing runs it.
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
    """Whether it compiles to the end and returns the schedule, too."""
    return self.stage is None and not self.orders

  @functools.cached_property
  def to_schedule(self) -> Job:
    """This job, ending at the schedule."""
    from lagom_xla.passes import registry

    stage = registry.Stage.POST_SCHEDULER
    return dataclasses.replace(self, stage=stage, orders={})

  @property
  def digests(self) -> tuple[str, ...]:
    """Keys of its result in caches, in the order to look them up.

    Results from a fused module have the first key, others the last.
    """
    if self.must_begin or not self.fusion:
      return (self.digest,)
    return (f"{self.digest}-from-fused", self.digest)

  @functools.cached_property
  def digest(self) -> str:
    """Equal for equal jobs under equal versions, in any process.

    The key of a result from the beginning.
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
  """Result of a compile.

  Attributes:
    module: the HloModuleProto; None if XLA ended without one of that name.
    peak_bytes: peak device memory of a step, if compiled to the end.
    schedule: the scheduled module, if the job returns it, too.
    fused: the fused module of a job that leads; None if it is unusable.
    is_from_fused: whether it started from a fused module.
  """

  module: bytes | None
  peak_bytes: int | None = None
  schedule: bytes | None = None
  fused: bytes | None = None
  is_from_fused: bool = False


@functools.cache
def _versions() -> tuple[object, ...]:
  """What a compile depends on besides its job."""
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
  """A digest of our code in compiles, which may change within a version."""
  digest = hashlib.sha256()
  package = pathlib.Path(__file__).parents[1]
  for room in ("compile", "jax_internals", "passes"):
    for path in sorted((package / room).rglob("*.py")):
      digest.update(hashlib.sha256(path.read_bytes()).digest())
  return digest.hexdigest()
