# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""The decorator `tune`, which tunes a jitted step while it trains.

    @lagom_xla.tune
    @jax.jit
    def step(state, batch): ...

The unchanged step is measured, variants are searched for and compiled in the
background, and a variant that is faster by the wall clock is kept: see
`live/loop.py`, docs/live.md and docs/live_internals.md. With `measure=False`
the step is tuned once per signature, at the first call, on predicted costs
alone. With `plan=` it is compiled with an existing plan. From then on JAX runs
the tuned executable instead of its own (`dispatch.py`).

If tuning fails for any reason, the step runs as jit would have run it, with one
warning. Errors of the step itself reach the caller.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
import functools
import html
import pathlib
from typing import TYPE_CHECKING, Any, Protocol, overload

import jax

from lagom_xla import dispatch
from lagom_xla.live import tuned

if TYPE_CHECKING:  # Imported where needed, because the imports are slow.
  from lagom_xla import cluster as cluster_lib
  from lagom_xla.live import predicted
  from lagom_xla.tuner import tuning as tuning_lib


class TunedStep(Protocol):
  """A jitted step that is tuned as it is called.

  Attributes:
    tunings: the results of tuning on predicted costs alone, one per signature
      in the order of first calls; in a job, only in the first process.
  """

  tunings: Sequence[tuning_lib.Tuning]

  def __call__(self, *args: Any, **kwargs: Any) -> Any:
    """Calls the step."""

  def report(self) -> str:
    """The results of tuning, verdict first."""

  def trace(self, *args: Any, **kwargs: Any) -> jax.stages.Traced:
    """Traces the jitted step, without any plan."""

  def lower(self, *args: Any, **kwargs: Any) -> jax.stages.Lowered:
    """Lowers the jitted step, without any plan."""


@overload
def tune(
  jitted_step: Callable[..., Any],
  *,
  cluster: str | cluster_lib.Cluster | None = None,
  plan: str | pathlib.Path | None = None,
  measure: bool = True,
  log: str | pathlib.Path | None = None,
  cache: str | pathlib.Path | bool = True,
) -> TunedStep: ...


@overload
def tune(
  jitted_step: None = None,
  *,
  cluster: str | cluster_lib.Cluster | None = None,
  plan: str | pathlib.Path | None = None,
  measure: bool = True,
  log: str | pathlib.Path | None = None,
  cache: str | pathlib.Path | bool = True,
) -> Callable[[Callable[..., Any]], TunedStep]: ...


def tune(
  jitted_step: Callable[..., Any] | None = None,
  *,
  cluster: str | cluster_lib.Cluster | None = None,
  plan: str | pathlib.Path | None = None,
  measure: bool = True,
  log: str | pathlib.Path | None = None,
  cache: str | pathlib.Path | bool = True,
) -> TunedStep | Callable[[Callable[..., Any]], TunedStep]:
  """Tunes a jitted step while it trains.

  Results, donation, static arguments and transformations are those of the
  jitted step. Dispatching a call takes up to 2 us longer than under jit, and no
  longer with `measure=False` or a plan. Only the XLA part of a plan takes
  effect here. NCCL settings take effect when a process starts: apply them with
  `lagom-xla flags`, or read them in `step.tunings[0].plan`.

  The processes of a job first compare their settings, as `check_processes`
  does, and their programs. If these differ, the first call of the step raises
  an error, because its collectives could wait forever. Then the first process
  decides for all. If one process fails, or gets different collectives, the step
  stays unchanged in all of them: steps with different collectives would wait
  for each other forever.

  If tuning fails, the step runs unchanged, and a RuntimeWarning, at most one
  per tuned step, says why. On CPU devices nothing is tuned, unless `cluster`
  says which GPUs they stand for: then everything runs as on GPUs, but with a
  schedule of XLA's CPU compiler, which ignores XLA's GPU options.

  Args:
    jitted_step: what `jax.jit` or Flax's `nnx.jit` returned, or a partial or
      bound method of it; left out in `@tune(cluster=...)`.
    cluster: a cluster, or text for `cluster.parse`; by default the live GPUs.
    plan: folder or JSON of a plan to compile with instead of searching, for a
      step with one signature. Nothing is measured. A plan for another step,
      cluster or version is not applied. A RuntimeWarning says if XLA_FLAGS lack
      the plan's cap on channels, which acts only there, or if other options
      change the compile than when the plan was made.
    measure: whether to measure variants in steps of the run, and keep only
      faster ones; otherwise predictions decide.
    log: file that gets a line of JSON for each configuration tried.
    cache: folder for results, so that each step is searched for only once; by
      default the user's cache folder (LAGOM_XLA_CACHE, else
      $XDG_CACHE_HOME/lagom_xla). False to neither read nor keep anything.

  Returns:
    A function like the jitted one, with `report` and `tunings`; see
    `TunedStep`.

  Raises:
    TypeError: the step is not jitted.
    ClusterError: there is no such cluster.
    PlanError: there is no such plan.
    SettingsDifferError: raised by a call of the step; see above.
  """
  if isinstance(cluster, str):
    from lagom_xla import cluster as cluster_lib

    cluster = cluster_lib.parse(cluster)
  options: dict[str, Any] = {
    "cluster": cluster,
    "plan": plan,
    "measure": measure,
    "log": log,
    "cache": cache,
  }
  if jitted_step is None:
    return functools.partial(tune, **options)
  if dispatch.is_bound(jitted_step):
    return dispatch.bound_alike(jitted_step, functools.partial(tune, **options))
  name = dispatch.name_of(jitted_step)
  tunings: list[tuning_lib.Tuning] = []

  @functools.cache
  def chooser() -> predicted.Chooser:
    from lagom_xla.live import predicted

    return predicted.Chooser(name, cluster, plan, tunings)

  if measure and plan is None:
    tuning = tuned.Tuning(
      name=name,
      chooser=chooser,
      cluster=cluster,
      log=None if log is None else pathlib.Path(log).absolute(),
      cache=cache,
    )
    report = tuning.report
    step = tuning.step(
      jitted_step, functools.partial(tune, jitted_step, **options)
    )
  else:
    report = chooser().report
    step = dispatch.wrap(jitted_step, chooser().choose, by="lagom_xla.tune")
  step.tunings = tunings
  step.report = report
  step._repr_html_ = lambda: f"<pre>{html.escape(report())}</pre>"
  return step
