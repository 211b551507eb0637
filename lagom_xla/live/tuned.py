# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""A tuned step: a live step with its proposers, stores and logs."""

from __future__ import annotations

from collections.abc import Callable, Collection
import functools
import pathlib
import time
from typing import TYPE_CHECKING, Any

import jax

from lagom_xla import dispatch
from lagom_xla import errors
from lagom_xla.compile import nnx_step
from lagom_xla.jax_internals import store as store_lib
from lagom_xla.live import agreement
from lagom_xla.live import coordinator as coordinator_lib
from lagom_xla.live import hanging
from lagom_xla.live import loop
from lagom_xla.live import memory as memory_lib
from lagom_xla.live import processes
from lagom_xla.live import proposals
from lagom_xla.live import signatures
from lagom_xla.live import step as step_lib
from lagom_xla.live import trial_log

if TYPE_CHECKING:  # Imported by threads while the step trains.
  from lagom_xla import cluster as cluster_lib
  from lagom_xla.live import plan_cache
  from lagom_xla.live import predicted

# Limits for new steps; tests set shorter ones.
LIMITS = loop.Limits()


def _on_gpus(cluster: cluster_lib.Cluster | None) -> proposals.Proposer:
  def make() -> proposals.Proposer:
    from lagom_xla.live import gpu

    return gpu.PlanProposer(cluster=cluster or proposals.of_live_gpus())

  return proposals.deferred(make)


# Platform -> function that makes its proposer, given a cluster or None for the
# live GPUs. Add proposers for other platforms here.
PROPOSERS: dict[str, Callable[[Any], proposals.Proposer]] = {"gpu": _on_gpus}


def proposer_of(
  lowered: jax.stages.Lowered, cluster: cluster_lib.Cluster | None
) -> proposals.Proposer:
  """The proposer for a step; a ClusterError if its platform has none.

  If the kind of GPU is unknown, the proposer's methods raise.
  """
  platform = proposals.platform_of(lowered)
  if platform not in PROPOSERS:
    raise proposals.nothing_to_tune(platform)
  return PROPOSERS[platform](cluster)


class Tuning:
  """Tuning of one step, over all of its signatures.

  If CPU devices stand for the cluster's, `chooser` returns what chooses by
  predictions. Trials are written to `log`; `cache` is passed to
  `plan_cache.folder_of`.
  """

  def __init__(
    self,
    *,
    name: str,
    chooser: Callable[[], predicted.Chooser],
    cluster: cluster_lib.Cluster | None,
    log: pathlib.Path | None,
    cache: str | pathlib.Path | bool,
  ):
    self._name = name
    self._chooser = chooser
    self._is_predicted = False
    self._obstacle = ""
    self._cluster = cluster
    self._path = log
    is_folder = not isinstance(cache, bool)
    self._cache = pathlib.Path(cache).absolute() if is_folder else cache
    # One per signature, in the order of their first calls.
    self._logs: list[trial_log.TrialLog] = []

  def step(self, jitted_step: Any, remake: Callable[[], Any]) -> Any:
    """A function like `jitted_step` that is tuned while it is called.

    `remake` makes it again when a process unpickles it.
    """

    def make(warner: dispatch.Warner) -> Any:
      begin = functools.partial(self._begin, warner)

      def live(function: Any) -> step_lib.LiveStep:
        return step_lib.LiveStep(function, begin, warner, self.report, remake)

      if nnx_step.is_nnx(jitted_step):
        return nnx_step.with_jitted(jitted_step, live)
      return live(jitted_step)

    return dispatch.supported(jitted_step, make, by="lagom_xla.tune")

  def report(self) -> str:
    """A report, verdict first; the most called signatures come first."""
    logs = [it for it in self._logs if not it.is_closed]
    if not logs and self._is_predicted:
      return self._chooser().report()
    if not logs:
      why = self._obstacle or "it was not called yet"
      return f"{self._name}: unchanged, nothing measured: {why}"
    logs.sort(key=lambda it: it.num_calls, reverse=True)
    told = trial_log.differences([log.arguments for log in logs])
    return "\n".join(log.report(of) for log, of in zip(logs, told, strict=True))

  def _begin(
    self,
    warner: dispatch.Warner,
    jitted: dispatch.Jitted,
    lowered: jax.stages.Lowered,
  ) -> signatures.Signature:
    """A new signature; on an error it runs jit's own executable.

    Raises:
      SettingsDifferError: Even the unchanged step would hang.
    """
    try:
      members = store_lib.processes_of(lowered)
      check_s = time.thread_time()
      # Waits for the other processes, as the first collective would.
      with hanging.first_call(self._name, hanging.OTHERS):
        processes.check_step(members, lowered)
      check_s = time.thread_time() - check_s
      is_cpu = proposals.platform_of(lowered) == "cpu"
      # The CPU devices stand for the cluster's.
      if self._cluster is not None and is_cpu:
        self._is_predicted = True
        return signatures.fixed(jitted, self._chooser().choose(lowered))
      return self._live(jitted, lowered, members, check_s)
    except errors.SettingsDifferError:
      raise
    except Exception as error:  # The step must run, whatever went wrong.
      self._obstacle = dispatch.describe(error)
      warner.leaves(self._obstacle)
      return signatures.fixed(jitted, None)

  def _live(
    self,
    jitted: dispatch.Jitted,
    lowered: jax.stages.Lowered,
    members: Collection[int],
    check_s: float,
  ) -> signatures.Signature:
    """A signature that tries proposals.

    `check_s` is the time that the first call has spent so far, in seconds.
    """
    begin_s = time.perf_counter()
    log = trial_log.TrialLog(
      name=self._name,
      devices=proposals.devices_of(lowered),
      arguments=trial_log.arguments_of(lowered, jitted.wrapped),
      path=self._path,
    )
    store = agreement.next_store(self._name, members, reach_s=LIMITS.reach_s)
    try:
      proposals.check_no_refs(lowered)
      proposer = proposer_of(lowered, self._cluster)
      # The search's thread holds this. It must not hold the logs, or the search
      # would not end when the step is garbage-collected.
      open_kept = functools.partial(_kept, self._cache, lowered, self._cluster)
      memory = memory_lib.Memory(proposer, lowered, open_kept)
      coordinator = coordinator_lib.Coordinator(
        lowered, proposer, memory, store, log, LIMITS
      )
      signature = signatures.Signature(
        jitted, coordinator.variants.get, coordinator.follow, coordinator
      )
    except Exception as error:  # The others must not wait.
      coordinator_lib.refuse(store, dispatch.describe(error))
      agreement.take(store)
      raise
    # Not reached if Ctrl-C ended the wait for the first phase: the next call
    # then repeats all of this, because the others are still waiting.
    agreement.take(store)
    self._logs[:] = [it for it in self._logs if not it.is_closed]
    self._logs.append(log)
    if log.loop is not None:
      log.loop.account.stall(check_s + time.perf_counter() - begin_s)
    return signature


def _kept(
  cache: pathlib.Path | bool,
  lowered: jax.stages.Lowered,
  cluster: cluster_lib.Cluster | None,
) -> plan_cache.PlanCache | None:
  """The cache entry of a lowered step; None without a cache."""
  from lagom_xla.live import plan_cache

  folder = plan_cache.folder_of(cache)
  if folder is None:
    return None
  machine = proposals.machine_of(lowered, cluster)
  return plan_cache.PlanCache(folder, plan_cache.key(lowered, machine))
