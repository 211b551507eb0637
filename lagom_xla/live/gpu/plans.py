# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Plans as proposals: other ways to run a step on GPUs.

    proposer = plans.PlanProposer(cluster=cluster.of_devices(jax.devices()))
    for proposal in proposer.proposals(lowered, measured, stop):
      compiled = proposer.compile(lowered, proposal.payload)

What `lagom-xla tune --in-process` finds with the costs that a trace of the step
measured comes first; then runners-up of other kinds (`runners_up.py`). NCCL's
settings act when a process starts, so what a proposal changes is what XLA gets.
"""

from __future__ import annotations

from collections.abc import Generator
import dataclasses
import hashlib
import threading

from absl import logging
import jax

from lagom_xla import cluster as cluster_lib
from lagom_xla import errors
from lagom_xla import plan as plan_lib
from lagom_xla.compile import config as config_lib
from lagom_xla.compile import lowered as lowered_lib
from lagom_xla.compile import nnx_step
from lagom_xla.compile import pool
from lagom_xla.compile import scheduler_profile
from lagom_xla.compile import target as target_lib
from lagom_xla.live import proposals as proposals_lib
from lagom_xla.live.gpu import payload as payload_lib
from lagom_xla.live.gpu import search_process as search_lib
from lagom_xla.passes import collectives as collectives_lib
from lagom_xla.passes import hlo
from lagom_xla.search import nccl

# XLA replays kernels in graphs, where the profiler cannot tell which
# instruction a kernel belongs to.
_FOR_PROFILE = {"xla_gpu_enable_command_buffer": ""}
# The step trains on the host's cores, too: a quarter of them may compile.
_SHARE_OF_CORES = 4
_TIME_BUDGET_S = 1800.0


@dataclasses.dataclass(kw_only=True)
class PlanProposer(proposals_lib.Proposer):
  """Tunes steps for a cluster in another process; see `proposals.Proposer`.

  Attributes:
    cluster: that the steps run on.
    searcher: of NCCL settings.
    time_budget_s: of a search; the best so far is taken then.
    num_workers: processes that compile; by default a quarter of the cores.
    plan: see `proposals.Proposer`.
    has_profile_build: see `proposals.Proposer`.
  """

  cluster: cluster_lib.Cluster
  searcher: str = nccl.DEFAULT_SEARCHER
  time_budget_s: float = _TIME_BUDGET_S
  num_workers: int = dataclasses.field(
    default_factory=lambda: max(pool.num_cores() // _SHARE_OF_CORES, 1)
  )
  plan: plan_lib.Plan | None = dataclasses.field(default=None, init=False)
  has_profile_build: bool = dataclasses.field(default=True, init=False)

  def proposals(
    self,
    lowered: jax.stages.Lowered,
    measured: proposals_lib.Measured,
    stop: threading.Event,
  ) -> Generator[proposals_lib.Proposal, None, None]:
    """See `proposals.Proposer`.

    Raises:
      TargetError: the step cannot be compiled in another process, or is for
        another number of devices.
      WorkerError: the search failed, or XLA ended its process.
    """
    trace = measured.trace_dir
    task = self._task(trace=None if trace is None else str(trace.resolve()))
    with self._begun(lowered, task, stop) as found:
      for facts in found:
        if "warning" in facts:
          logging.warning("lagom_xla: %s", facts["warning"])
        elif "plan" in facts:
          self.plan = plan_lib.from_dict(facts["plan"], where="The search")
        else:
          yield proposals_lib.Proposal(
            name=facts["name"],
            payload=facts["payload"].encode(),
            predicted_ratio=facts["predicted_ratio"],
          )

  def compile(
    self, lowered: jax.stages.Lowered, payload: bytes
  ) -> jax.stages.Compiled:
    """See `proposals.Proposer`.

    Raises:
      LagomError: it cannot be compiled; or another process tried it first, as
        nobody had, and did not survive.
    """
    proposed = payload_lib.read(payload)
    target = self._target(lowered)
    if proposed.xla.scheduler_profile is not None:
      scheduler_profile.check_reaches_xla()
    if not proposed.is_proven:
      self._prove(lowered, proposed.xla)
    return _executable(target.compile(proposed.xla), target)

  def compile_for_profile(
    self, lowered: jax.stages.Lowered
  ) -> jax.stages.Compiled:
    """See `proposals.Proposer`: without XLA's graphs of kernels.

    Raises:
      CompileError: XLA refuses.
    """
    target = self._target(lowered)
    config = config_lib.XlaConfig(options=_FOR_PROFILE)
    return _executable(target.compile(config), target)

  def digest(self, compiled: jax.stages.Compiled) -> bytes:
    """See `proposals.Proposer`."""
    digest = hashlib.sha256()
    for collective in collectives_lib.find(hlo.load(compiled)):
      facts = (
        collective.kind,
        collective.computation,
        collective.num_operands,
        collective.operand_bytes,
        collective.result_bytes,
        collective.groups,
        collective.executions,
      )
      digest.update(repr(facts).encode())
    return digest.digest()

  def _prove(
    self, lowered: jax.stages.Lowered, config: config_lib.XlaConfig
  ) -> None:
    """Has another process compile a config first."""
    task = self._task(prove=config)
    with self._begun(lowered, task, threading.Event()) as found:
      for _ in found:
        pass

  def _task(
    self,
    *,
    trace: str | None = None,
    prove: config_lib.XlaConfig | None = None,
  ) -> search_lib.Task:
    return search_lib.Task(
      searcher=self.searcher,
      trace=trace,
      time_budget_s=self.time_budget_s,
      num_workers=self.num_workers,
      prove=prove,
    )

  def _begun(
    self,
    lowered: jax.stages.Lowered,
    task: search_lib.Task,
    stop: threading.Event,
  ) -> search_lib.Begun:
    self._target(lowered)
    return search_lib.begun(lowered, self.cluster, task, stop)

  def _target(self, lowered: jax.stages.Lowered) -> target_lib.StepTarget:
    inside = nnx_step.lowered_inside(lowered)
    return target_lib.of_step(inside, self.cluster, name="the step")


def _executable(
  compilation: lowered_lib.Compilation, target: target_lib.Target
) -> jax.stages.Compiled:
  if compilation.compiled is None:
    raise errors.CompileError(
      f"{target.cluster.name} has no executable: {target.obstacle}."
    )
  return compilation.compiled
