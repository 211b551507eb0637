# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""The decorator `tune`, which tunes a jitted step at its first call.

    @lagom_xla.tune
    @jax.jit
    def step(state, batch): ...

At its first call on a signature the step is lowered as jit would lower it, and
`tuner.tune` does the rest: it compiles, inspects, searches on predicted costs
and compiles with the plan. Buffers are touched by none of this. From then on
JAX runs the tuned executable where it would have run its own (`dispatch.py`).

    @lagom_xla.tune(plan="plan")
    @jax.jit
    def step(state, batch): ...

compiles with a plan that was made before, all of it: the form of the program,
combine groups, costs for XLA's scheduler and orders act in no other way. A plan
for another step, cluster or version is not applied.

Tuning is an extra: when it fails, for whatever reason, the step runs as jit
would have run it, with one warning. Errors of the step itself are the caller's.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
import dataclasses
import functools
import json
import pathlib
from typing import Any, Protocol, overload

import jax

from lagom_xla import cluster as cluster_lib
from lagom_xla import errors
from lagom_xla import plan as plan_lib
from lagom_xla import tuner
from lagom_xla.apply import checked
from lagom_xla.apply import compile as apply_compile
from lagom_xla.compile import _jax_store
from lagom_xla.compile import fallback
from lagom_xla.compile import lowered as lowered_lib
from lagom_xla.compile import target as target_lib
from lagom_xla.live.job import processes
from lagom_xla.live.job import together
from lagom_xla.search import nccl


class TunedStep(Protocol):
  """A jitted step that is tuned as it is called.

  Attributes:
    tunings: what tuning found, one for each signature that was tuned, in the
      order of their first calls.
  """

  tunings: Sequence[tuner.Tuning]

  def __call__(self, *args: Any, **kwargs: Any) -> Any:
    """As the jitted step."""
    ...

  def trace(self, *args: Any, **kwargs: Any) -> jax.stages.Traced:
    """As of the jitted step, which knows nothing of plans."""
    ...

  def lower(self, *args: Any, **kwargs: Any) -> jax.stages.Lowered:
    """As of the jitted step, which knows nothing of plans."""
    ...


@overload
def tune(
  jitted_step: Callable[..., Any],
  *,
  cluster: str | cluster_lib.Cluster | None = None,
  plan: str | pathlib.Path | None = None,
  searcher: str = nccl.DEFAULT_SEARCHER,
) -> TunedStep: ...


@overload
def tune(
  jitted_step: None = None,
  *,
  cluster: str | cluster_lib.Cluster | None = None,
  plan: str | pathlib.Path | None = None,
  searcher: str = nccl.DEFAULT_SEARCHER,
) -> Callable[[Callable[..., Any]], TunedStep]: ...


def tune(
  jitted_step: Callable[..., Any] | None = None,
  *,
  cluster: str | cluster_lib.Cluster | None = None,
  plan: str | pathlib.Path | None = None,
  searcher: str = nccl.DEFAULT_SEARCHER,
) -> TunedStep | Callable[[Callable[..., Any]], TunedStep]:
  """Tunes a jitted step at its first call on each signature.

  Results, donation, statics and transformations are those of the jitted step,
  and so is the time that a call takes to dispatch. What the plan has for XLA
  acts: its NCCL settings take effect when a process starts, so they are for
  `lagom-xla flags`, or for whoever reads `step.tunings[0].plan`.

  In a job of several processes they first compare their NCCL settings, as
  `check_processes` does: where those differ, the first call of the step is an
  error, as its collectives would wait forever. Then each one tunes for itself.
  The search depends on nothing but the compiled module and the cluster, which
  are the same in all of them, so all come to the same plan. Where one does not,
  or fails, the step stays as it was in all of them: steps with different
  collectives would wait for each other forever.

  If tuning fails the step runs as it was, and a RuntimeWarning, one at most for
  each tuned step, tells why. That is what happens on CPU devices, unless a
  cluster says what they stand for: with one, everything is done as on GPUs,
  with a schedule of XLA's CPU compiler, on which XLA's GPU options do not act.

  Args:
    jitted_step: what `jax.jit` returned; left out in `@tune(cluster=...)`.
    cluster: what `cluster.parse` takes, or a cluster; by default what the live
      GPUs make up.
    plan: folder or JSON of a plan to compile with, instead of searching for
      one; for a step with one signature.
    searcher: of NCCL settings: "balance", or "lagom", the paper's.

  Returns:
    A jitted function with one more attribute, `tunings`: see `TunedStep`.

  Raises:
    TypeError: the step is not jitted.
    ClusterError: there is no such cluster.
    PlanError: there is no such plan.
    SearcherError: there is no such searcher.
    SettingsDifferError: by a call of the step; see above.
  """
  nccl.by_name(searcher)
  if isinstance(cluster, str):
    cluster = cluster_lib.parse(cluster)
  if jitted_step is None:
    return functools.partial(
      tune, cluster=cluster, plan=plan, searcher=searcher
    )
  chooser = _Chooser(
    fallback.name(jitted_step),
    cluster,
    None if plan is None else plan_lib.load(plan),
    plan,
    searcher,
  )
  step = fallback.wrap(jitted_step, chooser.choose, by="lagom_xla.tune")
  step.tunings = chooser.tunings
  return step


class _Chooser:
  """Chooses the executables of one step: by its plan, or by tuning it."""

  def __init__(
    self,
    name: str,
    cluster: cluster_lib.Cluster | None,
    plan: plan_lib.Plan | None,
    plan_path: str | pathlib.Path | None,
    searcher: str,
  ):
    self.tunings: list[tuner.Tuning] = []
    self._name = name
    self._cluster = cluster
    self._plan = plan
    self._plan_path = plan_path
    self._searcher = searcher

  def choose(self, lowered: jax.stages.Lowered) -> jax.stages.Compiled:
    """The tuned executable; raises where tuning fails, in any process."""
    members = _jax_store.processes_of(lowered)
    processes.check(members)
    chosen = together.all_or_none(
      lambda: self._chosen(lowered),
      lambda chosen: json.dumps(chosen.plan.to_dict()["xla"]).encode(),
      name=self._name,
      members=members,
    )
    if chosen.tuning is not None:
      self.tunings.append(chosen.tuning)
    return chosen.compiled

  def _chosen(self, lowered: jax.stages.Lowered) -> _Chosen:
    """What this process alone would run."""
    target = _target(lowered, self._cluster, self._name)
    if self._plan is not None and self._plan_path is not None:
      checked.check(self._plan, self._plan_path)
      compilation = apply_compile.compile_with(self._plan, target)
      return _Chosen(_executable(compilation, target), self._plan, None)
    # A CPU that stands for GPUs does nothing with what goes beyond options.
    is_gpu = jax.default_backend() == "gpu"
    tuning = tuner.tune(target, searcher=self._searcher, in_process=is_gpu)
    compiled = _executable(tuning.compiled, target)
    return _Chosen(compiled, tuning.plan, tuning)


@dataclasses.dataclass(frozen=True)
class _Chosen:
  """An executable, the plan that it has, and the tuning that found that."""

  compiled: jax.stages.Compiled
  plan: plan_lib.Plan
  tuning: tuner.Tuning | None


def _target(
  lowered: jax.stages.Lowered, cluster: cluster_lib.Cluster | None, name: str
) -> target_lib.Target:
  """The step as a target for the cluster, or for the live GPUs.

  Raises:
    ClusterError: no cluster is given, and the devices are of no known one.
    TargetError: the step is for another number of devices.
  """
  is_gpu = jax.default_backend() == "gpu"
  if cluster is None:
    if not is_gpu:
      raise errors.ClusterError(
        f"it runs on {jax.default_backend()} devices, where there is nothing"
        " to tune; cluster= tells which GPUs they stand for."
      )
    cluster = cluster_lib.of_devices(jax.devices())
  return target_lib.of_step(lowered, cluster, name=name)


def _executable(
  compilation: lowered_lib.Compilation | None, target: target_lib.Target
) -> jax.stages.Compiled:
  if compilation is None or compilation.compiled is None:
    cluster = target.cluster
    raise errors.TargetError(
      f"{cluster.name} has no executable: {target.obstacle}."
    )
  return compilation.compiled
