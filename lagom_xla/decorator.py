# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""The decorator `tune`, which tunes a jitted step while it trains.

    @lagom_xla.tune
    @jax.jit
    def step(state, batch): ...

The step is measured as it is, other ways to run it are searched for and
compiled beside it, and what is faster by the wall clock stays: see
`live/loop.py`, docs/live.md and docs/live_internals.md. With
`measure=False` it is tuned once, at its first call on a signature, on predicted
costs alone, and with `plan=` it is compiled with a plan that was made before.
From then on JAX runs the tuned executable where it would have run its own
(`dispatch.py`).

Tuning is an extra: when it fails, for whatever reason, the step runs as jit
would have run it, with one warning. Errors of the step itself are the caller's.
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

if TYPE_CHECKING:  # Imported where it is asked for, as that takes long.
  from lagom_xla import cluster as cluster_lib
  from lagom_xla.live import predicted
  from lagom_xla.tuner import tuning as tuning_lib


class TunedStep(Protocol):
  """A jitted step that is tuned as it is called.

  Attributes:
    tunings: what was found on predicted costs alone, one for each signature, in
      the order of their first calls; in a job, in its first process.
  """

  tunings: Sequence[tuning_lib.Tuning]

  def __call__(self, *args: Any, **kwargs: Any) -> Any:
    """As the jitted step."""

  def report(self) -> str:
    """What tuning came to, the verdict first."""

  def trace(self, *args: Any, **kwargs: Any) -> jax.stages.Traced:
    """As of the jitted step, which knows nothing of plans."""

  def lower(self, *args: Any, **kwargs: Any) -> jax.stages.Lowered:
    """As of the jitted step, which knows nothing of plans."""


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

  Results, donation, statics and transformations are those of the jitted step;
  a call takes up to 2 us more to dispatch than under jit, and no more than
  under jit with `measure=False` or a plan. What a plan has for XLA acts: its
  NCCL settings take effect when a process starts, so they are for `lagom-xla
  flags`, or for whoever reads `step.tunings[0].plan`.

  In a job of several processes they first compare their settings, as
  `check_processes` does, and their programs: where those differ, the first call
  of the step is an error, as its collectives may wait forever. Then the first
  process decides for all of them. Where one fails, or comes to other
  collectives, the step stays as it was in all: steps with different collectives
  would wait for each other forever.

  If tuning fails the step runs as it was, and a RuntimeWarning, one at most for
  each tuned step, tells why. So it is on CPU devices: nothing is tuned there.
  Where `cluster` says which GPUs they stand for, everything else is done as on
  GPUs, with a schedule of XLA's CPU compiler, on which XLA's GPU options do not
  act.

  Args:
    jitted_step: what `jax.jit` or Flax's `nnx.jit` returned, or a partial or a
      bound method of it; left out in `@tune(cluster=...)`.
    cluster: what `cluster.parse` takes, or a cluster; by default what the live
      GPUs make up.
    plan: folder or JSON of a plan to compile with, instead of searching for
      one; for a step with one signature. Nothing is measured. A plan for
      another step, cluster or version is not applied. A cap on channels acts
      only in XLA_FLAGS: where they lack the plan's, a RuntimeWarning says so,
      as one does where other options change the compile than did its plan's.
    measure: whether what is found is measured, in steps of the run, and kept
      only if it is faster; otherwise predictions are trusted.
    log: file to which a line of JSON is added for each way that was tried.
    cache: folder of what earlier runs found, so that a step is searched for
      once; by default in the user's cache folder (LAGOM_XLA_CACHE, else
      $XDG_CACHE_HOME/lagom_xla). False to keep nothing, and to know nothing.

  Returns:
    A function like the jitted one, with `report` and `tunings`; see
    `TunedStep`.

  Raises:
    TypeError: the step is not jitted.
    ClusterError: there is no such cluster.
    PlanError: there is no such plan.
    SettingsDifferError: by a call of the step; see above.
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
      choose=lambda lowered: chooser().choose(lowered),
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
