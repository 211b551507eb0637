# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Choice of a step's executable by prediction, at its first call."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import json
import pathlib

import jax

from lagom_xla import cluster as cluster_lib
from lagom_xla import dispatch
from lagom_xla import plan as plan_lib
from lagom_xla.apply import checked
from lagom_xla.compile import compiler
from lagom_xla.compile import lowered as lowered_lib
from lagom_xla.compile import rewriting
from lagom_xla.compile import target as target_lib
from lagom_xla.flags import collective_routes
from lagom_xla.flags import environment
from lagom_xla.flags import nccl_channels
from lagom_xla.flags import own_flags
from lagom_xla.jax_internals import lowerings
from lagom_xla.jax_internals import request
from lagom_xla.jax_internals import store
from lagom_xla.live import agreement
from lagom_xla.live import gpu
from lagom_xla.live import hanging
from lagom_xla.live import processes
from lagom_xla.live import proposals
from lagom_xla.passes import hlo
from lagom_xla.search.xla import arms
from lagom_xla.tuner import tuner
from lagom_xla.tuner import tuning as tuning_lib


@dataclasses.dataclass(frozen=True)
class _Chosen:
  """An executable with its module, its plan, and the tuning that found it."""

  compiled: jax.stages.Compiled
  module: hlo.Module
  plan: plan_lib.Plan
  tuning: tuning_lib.Tuning | None


class Chooser:
  """Chooses the executables of one step, by a plan or by tuning.

  Appends its tunings to `tunings`, in the order of signatures.
  """

  def __init__(
    self,
    name: str,
    cluster: cluster_lib.Cluster | None,
    plan_path: str | pathlib.Path | None,
    tunings: list[tuning_lib.Tuning],
  ):
    self._tunings = tunings
    self._name = name
    self._cluster = cluster
    self._plan_path = plan_path
    self._plan = None if plan_path is None else plan_lib.load(plan_path)
    self._is_planned = False
    self._obstacle = ""
    # Plans found for the same module under another signature.
    self._plans: dict[str, plan_lib.Plan] = {}

  def choose(self, lowered: jax.stages.Lowered) -> jax.stages.Compiled:
    """The tuned executable; raises an error if tuning fails in any process."""
    try:
      with environment.as_read(own_flags.as_read()):
        return self._choose(lowered)
    except Exception as error:
      self._obstacle = dispatch.describe(error)
      raise

  def _choose(self, lowered: jax.stages.Lowered) -> jax.stages.Compiled:
    members = store.processes_of(lowered)
    with hanging.first_call(self._name, hanging.OTHERS):
      processes.check_step(members, lowered)
    choose = self._searched if self._plan is None else self._planned
    what = "the search for a plan" if self._plan is None else "its compile"
    with hanging.first_call(self._name, f"{what} on all processes"):
      chosen = agreement.all_or_none(
        functools.partial(choose, lowered),
        lambda chosen: plan_lib.fingerprint(chosen.module).encode(),
        name=self._name,
        members=members,
      )
    if self._plan is None:
      self._plans[lowerings.digest_of(lowered)] = chosen.plan
      if chosen.tuning is not None:
        self._tunings.append(chosen.tuning)
      return chosen.compiled
    is_first, self._is_planned = not self._is_planned, True
    options = chosen.plan.xla.options
    with _beside(lowered):
      differences = environment.differences(
        chosen.plan.xla_flags, chosen.plan.compiler_options, options
      )
      told = " ".join(differences)
    if is_first and told:
      dispatch.warn(
        f"{self._name} runs with the plan {self._plan_path}, which was made"
        f" under other options. {told}"
      )
    missing = (
      nccl_channels.missing(options),
      collective_routes.missing(options),
    )
    if is_first and (flag := " ".join(filter(None, missing))):
      dispatch.warn(
        f"{self._name} runs with the plan {self._plan_path} but without its"
        f" {flag}, which XLA reads only from XLA_FLAGS when the process"
        " starts: source the plan's env.sh, or set what `lagom-xla flags`"
        " prints."
      )
    return chosen.compiled

  def report(self) -> str:
    """The choice and its predicted gain, in words."""
    if self._is_planned:
      assert self._plan is not None
      return (
        f"{self._name}: runs with the plan {self._plan_path},"
        f" {_predicted(self._plan)}, not measured"
      )
    why = f": {self._obstacle or 'it was not called yet'}"
    if self._plan is not None:
      without = f"unchanged, without the plan {self._plan_path}"
      return f"{self._name}: {without}{why}"
    if not self._tunings and self._plans:
      plans = ", ".join(_predicted(plan) for plan in self._plans.values())
      return (
        f"{self._name}: runs with the plan of process 0, {plans}, not measured"
      )
    if not self._tunings:
      return f"{self._name}: unchanged{why}"
    return "\n".join(
      f"{self._name}: {tuning!r}, not measured\n{_fastest(tuning)}"
      for tuning in self._tunings
    )

  def _planned(
    self, lowered: jax.stages.Lowered, job: agreement.JobStore
  ) -> _Chosen:
    """Compiles with an existing plan."""
    del job  # Each process has the plan.
    assert self._plan is not None and self._plan_path is not None
    target = self._target(lowered)
    checked.check(self._plan, self._plan_path)
    return _with_plan(self._plan, target)

  def _searched(
    self, lowered: jax.stages.Lowered, job: agreement.JobStore
  ) -> _Chosen:
    """Compiles with the plan that the first process finds."""
    if not agreement.is_first(job):
      raw = json.loads(agreement.proposal(job))
      plan = plan_lib.from_dict(raw, where="Process 0")
      return _with_plan(plan, self._target(lowered))
    target = self._target(lowered)
    plan, tuning = self._plans.get(lowerings.digest_of(lowered)), None
    is_on_gpus = jax.default_backend() == "gpu"
    is_job = is_on_gpus and len(job.members) > 1
    if plan is None:
      with compiler.alone() if is_job else contextlib.nullcontext():
        tuning = tuner.tune(
          target,
          # CPUs that stand for GPUs apply only options.
          in_process=is_on_gpus,
          arms=arms.within_process(target.cluster),
        )
      plan = tuning.plan
    agreement.propose(job, json.dumps(plan.to_dict()).encode())
    if tuning is None or is_job:  # All compile it together.
      chosen = _with_plan(plan, target)
      return dataclasses.replace(chosen, tuning=tuning)
    return _chosen(tuning.compiled, plan, target, tuning)

  def _target(self, lowered: jax.stages.Lowered) -> target_lib.Target:
    """The step as a target for the cluster, or for the live GPUs.

    Raises:
      ClusterError: No cluster is given, and no known cluster has these devices.
      TargetError: The step is for another number of devices, or uses refs.
    """
    proposals.check_no_refs(lowered)
    cluster = self._cluster
    if cluster is None:
      backend = jax.default_backend()
      if backend != "gpu":
        raise proposals.nothing_to_tune(backend)
      cluster = proposals.of_live_gpus()
    return target_lib.of_step(lowered, cluster, name=self._name)


def _predicted(plan: plan_lib.Plan) -> str:
  ratio = plan.prediction.xla_us / plan.prediction.default_us
  return f"predicted {ratio:.3f} of the step time"


# Candidates in a report; the others are counted.
_MOST_TOLD = 5


def _fastest(tuning: tuning_lib.Tuning) -> str:
  """A line for each of the fastest candidates, with its options."""
  search = tuning.search
  default_us = search.default.under_nccl_defaults.step_time_us
  ranked = sorted(
    search.scheduled, key=lambda c: c.under_nccl_defaults.step_time_us
  )
  lines = []
  for one in ranked[:_MOST_TOLD]:
    ratio = one.under_nccl_defaults.step_time_us / default_us
    set_here = [f"{k}={v}" for k, v in one.config.options.items()]
    if not one.config.program.is_as_written:
      set_here.insert(0, rewriting.in_words(one.config.program))
    words = ", ".join(set_here) or environment.options_in_words()
    kept = ", kept" if one is tuning.kept else ""
    lines.append(f"  predicted {ratio:.3f} with {words}{kept}")
  return "\n".join(lines)


def _beside(
  lowered: jax.stages.Lowered,
) -> contextlib.AbstractContextManager[None]:
  handed = request.handed_for(lowered)
  return environment.beside(environment.of_compile(handed))


def _with_plan(plan: plan_lib.Plan, target: target_lib.Target) -> _Chosen:
  return _chosen(checked.compile_with(plan, target), plan, target)


def _chosen(
  compilation: lowered_lib.Compilation | None,
  plan: plan_lib.Plan,
  target: target_lib.Target,
  tuning: tuning_lib.Tuning | None = None,
) -> _Chosen:
  compiled = gpu.executable(compilation, target)
  assert compilation is not None
  return _Chosen(compiled, compilation.module, plan, tuning)
