# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Tuned step: a live one with proposers, stores and logs for its loops."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
import contextlib
import dataclasses
import functools
import pathlib
import time
from typing import TYPE_CHECKING, Any

import jax

from lagom_xla import dispatch
from lagom_xla import errors
from lagom_xla.compile import nnx_step
from lagom_xla.jax_internals import store as store_lib
from lagom_xla.live import coordinator as coordinator_lib
from lagom_xla.live import job_store
from lagom_xla.live import memory as memory_lib
from lagom_xla.live import platforms
from lagom_xla.live import processes
from lagom_xla.live import proposals
from lagom_xla.live import signatures
from lagom_xla.live import step as step_lib
from lagom_xla.live import trial_log

if TYPE_CHECKING:  # Imported by threads, beside training.
  from lagom_xla import cluster as cluster_lib
  from lagom_xla.live import plan_cache

# What new steps are given; tests are less patient.
TIMEOUTS = coordinator_lib.Timeouts()


def step(
  jitted_step: Any,
  choose: dispatch.Choose,
  *,
  cluster: cluster_lib.Cluster | None,
  searcher: str | None,
  log: pathlib.Path | None,
  cache: str | pathlib.Path | bool,
  remake: Callable[[], Any],
  by: str,
) -> Any:
  """A function like a jitted step, which is tuned as it is called.

  Args:
    jitted_step: What `jax.jit` or Flax's `nnx.jit` returned.
    choose: Chooses on predictions, where CPU devices stand for a cluster's.
    cluster: What it runs on; None for what the live devices make up.
    searcher: Of NCCL settings; None for the default one.
    log: Where trials are written; None for nowhere.
    cache: See `plan_cache.in_folder`.
    remake: Makes the same again, in the process that unpickles it.
    by: What warnings name as the one who tunes, called by the user.

  Raises:
    TypeError: The step is not jitted.
  """
  tuning = _Tuning(
    name=dispatch.name_of(jitted_step),
    choose=choose,
    cluster=cluster,
    searcher=searcher,
    log=log,
    open_plans=functools.cache(lambda: _plans(cache)),
  )

  def make(warner: dispatch.Warner) -> Any:
    begin = functools.partial(tuning.begin, warner)

    def live(function: Any) -> step_lib.LiveStep:
      return step_lib.LiveStep(function, begin, warner, tuning.report, remake)

    if nnx_step.is_nnx(jitted_step):
      return nnx_step.with_jitted(jitted_step, live)
    return live(jitted_step)

  made = dispatch.supported(jitted_step, make, by=by)
  made.report = tuning.report
  made._repr_html_ = lambda: trial_log.as_html(tuning.report())
  return made


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Tuning:
  """Tuning of one step: what its signatures begin with, and came to.

  Attributes:
    name: Of the step.
    choose, cluster, searcher, log: See `step`.
    open_plans: Opens what earlier runs found, in a thread.
    logs: Of its signatures, in the order of their first calls.
  """

  name: str
  choose: dispatch.Choose
  cluster: cluster_lib.Cluster | None
  searcher: str | None
  log: pathlib.Path | None
  open_plans: Callable[[], plan_cache.PlanCache | None]
  logs: list[trial_log.TrialLog] = dataclasses.field(default_factory=list)

  def report(self) -> str:
    """What it came to, the verdict first; most called signatures first."""
    logs = [it for it in self.logs if not it.is_closed]
    if not logs:
      return f"{self.name}: as jit runs it, nothing is measured"
    logs.sort(key=lambda it: it.num_calls, reverse=True)
    return "\n".join(log.report() for log in logs)

  def begin(
    self,
    warner: dispatch.Warner,
    jitted: dispatch.Jitted,
    lowered: jax.stages.Lowered,
  ) -> signatures.Signature:
    """A new signature; one that runs as jit does where something goes wrong.

    Raises:
      SettingsDifferError: The step as it was would wait forever.
    """
    try:
      members = store_lib.processes_of(lowered)
      check_s = time.thread_time()
      processes.check(members)  # Waits as the first collective would.
      check_s = time.thread_time() - check_s
      if self._stands_for_others(lowered):
        return signatures.fixed(jitted, self.choose(lowered))
      return self._live(jitted, lowered, members, check_s)
    except errors.SettingsDifferError:
      raise
    except Exception as error:  # The step must run, whatever went wrong.
      warner.leaves(dispatch.describe(error))
      return signatures.fixed(jitted, None)

  def _stands_for_others(self, lowered: jax.stages.Lowered) -> bool:
    """Whether CPU devices stand for a cluster's: nothing is measured."""
    is_cpu = platforms.platform_of(lowered) == "cpu"
    return self.cluster is not None and is_cpu

  def _live(
    self,
    jitted: dispatch.Jitted,
    lowered: jax.stages.Lowered,
    members: Collection[int],
    check_s: float,
  ) -> signatures.Signature:
    """A signature in which proposals are tried.

    Args:
      jitted: The step.
      lowered: The step as jit lowered it.
      members: The processes that run it.
      check_s: Seconds that the first call has taken for this before.
    """
    begin_s = time.perf_counter()
    store = job_store.next_store(self.name, members, reach_s=TIMEOUTS.reach_s)
    log = trial_log.TrialLog(name=self.name, path=self.log)
    with _refusing(store):
      coordinator = self._coordinator(lowered, store, log)
      signature = signatures.live(jitted, coordinator)
    # Not if Ctrl-C ended the wait for the first script: then all of it is
    # done again at the next call, and the others are still there.
    job_store.take(store)
    self.logs[:] = [it for it in self.logs if not it.is_closed]
    self.logs.append(log)
    if log.loop is not None:
      stall_s = check_s + time.perf_counter() - begin_s
      log.loop.account.overhead.stall(stall_s)
    return signature

  def _coordinator(
    self,
    lowered: jax.stages.Lowered,
    store: job_store.JobStore,
    log: trial_log.TrialLog,
  ) -> coordinator_lib.Coordinator:
    proposals.check_none(lowered)
    proposer = platforms.proposer_of(
      lowered, self.cluster, searcher=self.searcher
    )
    # The thread that searches has it, and not the logs: they have what ends
    # the search once nobody has the step any more.
    open_kept = functools.partial(_kept, self.open_plans, lowered, self.cluster)
    memory = memory_lib.Memory(proposer, lowered, open_kept)
    return coordinator_lib.Coordinator(
      lowered, proposer, memory, store, log, TIMEOUTS
    )


@contextlib.contextmanager
def _refusing(store: job_store.JobStore) -> Iterator[None]:
  """Has the other processes not wait for this one if it raises."""
  try:
    yield
  except Exception as error:
    coordinator_lib.refuse(store, dispatch.describe(error))
    job_store.take(store)
    raise


def _plans(cache: str | pathlib.Path | bool) -> plan_cache.PlanCache | None:
  from lagom_xla.live import plan_cache

  return plan_cache.in_folder(cache)


def _kept(
  open_plans: Callable[[], plan_cache.PlanCache | None],
  lowered: jax.stages.Lowered,
  cluster: cluster_lib.Cluster | None,
) -> plan_cache.Kept | None:
  """What is kept of a step as it was lowered; None where nothing is."""
  from lagom_xla.live import plan_cache

  plans = open_plans()
  if plans is None:
    return None
  return plan_cache.Kept(plans, lowered, platforms.machine_of(lowered, cluster))
