# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""The tuner: inspects, searches, recompiles and checks a target.

    target = target_lib.load("train.py:train_step", cluster.parse("1x8xh100"))
    tuning = tuner.tune(target)
    tuning.plan, tuning.effects

All times are predicted.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
import dataclasses
import datetime
import warnings

import jax

from lagom_xla import cluster as cluster_lib
from lagom_xla import errors
from lagom_xla import plan as plan_lib
from lagom_xla.compile import config as config_lib
from lagom_xla.compile import load
from lagom_xla.compile import source
from lagom_xla.compile import target as target_lib
from lagom_xla.costs import settings as settings_lib
from lagom_xla.costs import step as step_lib
from lagom_xla.costs import uncertainty
from lagom_xla.costs.nccl import environment as nccl_environment
from lagom_xla.flags import environment
from lagom_xla.flags import jit_options
from lagom_xla.flags import nccl_channels
from lagom_xla.flags import own_flags
from lagom_xla.search.nccl import channel_cap
from lagom_xla.search.xla import arms as arms_lib
from lagom_xla.search.xla import candidates as candidates_lib
from lagom_xla.search.xla import evaluation
from lagom_xla.search.xla import full_compiles
from lagom_xla.search.xla import joint
from lagom_xla.tuner import tuning as tuning_lib
from lagom_xla.verify import verification


def inspect(
  target: target_lib.Target | jax.stages.Lowered | str,
  *,
  cluster: cluster_lib.Cluster | str | None = None,
) -> step_lib.Step:
  """Predicts the costs of a step as it runs by default.

  The step is the one that XLA schedules or, if memory is short, the one that it
  compiles, which rematerializes some values. If the step is known to need more
  memory than its GPUs have, this warns with a `RuntimeWarning`.

      step = lagom_xla.inspect("train.py:train_step", cluster="1x8xh100")
      step.timeline(step.default).exposed_us

  Args:
    target: a target, a step lowered for the cluster's devices
      (`lagom_xla.compile.devices`), or text as on the command line.
    cluster: the cluster to compile for, or its name; not needed for a target,
      which has its own.

  Raises:
    TargetError: there is no such target, or the cluster is missing.
    ClusterError: there is no such cluster.
    CompileError: XLA refuses the target.
  """
  if not isinstance(target, target_lib.Target):
    if cluster is None:
      raise errors.TargetError(
        "inspect needs a cluster, such as cluster='1x8xh100'."
      )
    if isinstance(cluster, str):
      cluster = cluster_lib.parse(cluster)
    if isinstance(target, str):
      with own_flags.watched():
        target = load.load(target, cluster)
      jit_options.check(target.jit_options, source.place_of)
    else:
      target = target_lib.of_step(target, cluster, name="the step")
  with environment.beside(environment.of_compile(target.handed)):
    scheduled = evaluation.scheduled_step(target)
    run = evaluation.run_of(target, config_lib.DEFAULT, scheduled)
  if warning := evaluation.warning(target, run.peak_bytes):
    warnings.warn(warning, RuntimeWarning, stacklevel=2)
  return run.step


Expect = Callable[[float, int], None]


def tune(
  target: target_lib.Target,
  *,
  seconds: float = joint.SECONDS,
  in_process: bool = False,
  arms: Sequence[arms_lib.Arm] | None = None,
  applied: plan_lib.Applied = "all",
  progress: candidates_lib.Progress = lambda _: None,
  found: joint.Found = lambda _: None,
  expect: Expect = lambda *_: None,
) -> tuning_lib.Tuning:
  """Tunes a target.

  A candidate gives way to the next best one if its full compile needs more
  memory than the device has, or if it is no longer the best with the time that
  rematerialization takes. If a signal handler raises `errors.Stopped`
  meanwhile, the plan is made from the results so far.

  Args:
    target: what to tune.
    seconds: time limit for the search over options, as in `joint.search`.
    in_process: whether to also choose what only lagom_xla in the training
      process can apply: the form of the program, combine groups, scheduler
      feedback and orders of instructions.
    arms: configs to start from besides the default; by default all known ones.
    applied: the part of the plan that the job will apply: "all", with the NCCL
      tuner plugin; "env", XLA_FLAGS and NCCL's environment variables; or
      "flags", XLA_FLAGS alone. The last two include a cap on channels. Configs
      are compared by the step time with that part.
    progress: called with a short description of each piece of work after it.
    found: called with each candidate, the default first.
    expect: called with the estimated numbers of schedules and of full compiles
      to come, each time that the estimate changes. Nobody knows them before the
      end of a search with `in_process`.

  Raises:
    PlanError: `in_process` with `applied` other than "all".
    CompileError: the target does not compile with the defaults.
    Stopped: it was stopped before there was anything to make a plan from.
  """
  if in_process and applied != "all":
    raise errors.PlanError(
      f"applied={applied!r} excludes what in_process adds: leave out applied or"
      " in_process."
    )
  so_far = candidates_lib.SoFar()

  def keep(
    candidate: candidates_lib.Candidate | candidates_lib.Refused,
  ) -> None:
    so_far.add(candidate)
    found(candidate)

  def expect_with_last(num_candidates: float) -> None:
    assert so_far.search is not None
    if not in_process:
      num_schedules, num_full = full_compiles.num_expected(so_far.search)
      expect(num_candidates + num_schedules, 1 + num_full)  # And the default's.

  beside = dataclasses.replace(
    environment.of_compile(target.handed), is_beaten=in_process
  )
  with environment.beside(beside), target.begun():
    by_cap = channel_cap.WithoutPlugin(limit=_limit(applied))
    without_plugin = None if applied == "all" else by_cap
    try:
      so_far.search = joint.search(
        target,
        without_plugin=without_plugin,
        seconds=seconds,
        arms=arms,
        in_process=in_process,
        progress=progress,
        found=keep,
        expect=expect_with_last,
      )
      else_by = None if in_process else by_cap
      return _checked(
        target, so_far, without_plugin, progress, expect, applied, else_by
      )
    except errors.Stopped as stop:
      if so_far.search is None:
        raise
      stop.is_caught = True
      kept = dataclasses.replace(
        candidates_lib.without_unchecked(so_far.search, stop),
        arms=tuple(
          arms_lib.decided(
            joint.arms_of(target, arms).arms, so_far.search.default.step
          )
        ),
      )
      return _as_far(target, kept, stop, applied)


def _checked(
  target: target_lib.Target,
  so_far: candidates_lib.SoFar,
  without_plugin: channel_cap.WithoutPlugin | None,
  progress: candidates_lib.Progress,
  expect: Expect,
  applied: plan_lib.Applied,
  by_cap: channel_cap.WithoutPlugin | None,
) -> tuning_lib.Tuning:
  """The tuning of a finished search, compiled and checked."""
  assert so_far.search is not None
  so_far.search, compiled_before = full_compiles.of_default(
    target, so_far.search, without_plugin=without_plugin
  )
  progress(f"full compile with {environment.options_in_words()}")
  expect(*full_compiles.num_expected(so_far.search))
  steps = evaluation.Steps(target)  # Each step is needed at least twice.
  so_far.search, compiled = full_compiles.of_best(
    target,
    so_far.search,
    compiled_before,
    without_plugin=without_plugin,
    by_cap=by_cap,
    steps=steps,
  )
  expect(0, 0)
  progress("full compile with the plan")
  search = so_far.search
  plan = plan_of(target, search, applied=applied)
  effects = verification.effects(
    plan, search.default.runs, _under(search.best.runs, plan), steps
  )
  return tuning_lib.Tuning(
    plan=plan,
    search=search,
    effects=effects,
    compiled_before=compiled_before,
    compiled=compiled,
  )


def _as_far(
  target: target_lib.Target,
  search: candidates_lib.Search,
  stop: errors.Stopped,
  applied: plan_lib.Applied,
) -> tuning_lib.Tuning:
  """The tuning from the results so far; compiles nothing more."""
  return tuning_lib.Tuning(
    plan=plan_of(target, search, applied=applied),
    search=search,
    effects=(),
    compiled_before=None,
    compiled=None,
    stopped=stop,
  )


def _under(step: step_lib.Step, plan: plan_lib.Plan) -> step_lib.Step:
  """A step under the plan's cap on channels; candidates have today's cap."""
  step = step.capped(nccl_channels.most(plan.xla.options))
  return step.asking(evaluation.asked(plan.xla.options))


def plan_of(
  target: target_lib.Target,
  search: candidates_lib.Search,
  *,
  applied: plan_lib.Applied = "all",
) -> plan_lib.Plan:
  """The plan of a search's best candidate.

  Args:
    target: what was tuned.
    search: the search; the plan is made from its best candidate.
    applied: the part of the plan that the job will apply, as in `tune`.
  """
  kept = search.best
  launched = _launched(target, search)
  limit = _limit(applied)
  cap = channel_cap.none(launched)
  if limit is not None:
    cap = channel_cap.surest(launched, limit)
  # The best of a stopped search may repeat what is set today.
  repeated = environment.already(search.planned.options)
  config = search.planned.without_options(repeated)
  variables = nccl_channels.variables(cap.max_channels)
  if applied == "flags":
    variables = {}
    if cap.max_channels is not None:
      config = config.with_options({nccl_channels.OPTION: cap.max_channels})
  takes_plugin = applied == "all" and kept.takes_plugin
  settings = _nccl_settings(kept) if takes_plugin else ()
  module = target.identity()
  return plan_lib.Plan(
    module_name=module.name,
    module_fingerprint=plan_lib.fingerprint(module),
    xla_flags=environment.step_flags(),
    nccl_variables=nccl_environment.costed(),
    compiler_options=environment.found().values,
    cluster=target.cluster,
    xla=config,
    nccl_env=variables,
    nccl_settings=settings,
    prediction=_prediction(search, launched, cap, applied),
    profile=_measured_run(search.default.runs),
    applied=applied,
  )


def _limit(applied: plan_lib.Applied) -> settings_lib.Limit | None:
  """How a cap that the job can set limits channels.

  None if the step fixes the only such cap.
  """
  if applied == "flags":
    is_fixed = nccl_channels.OPTION in environment.unchangeable()
    return None if is_fixed else settings_lib.by_option
  return settings_lib.by_variable


def _measured_run(step: step_lib.Step) -> plan_lib.MeasuredRun | None:
  """The run whose profile prices a step, with the measured shares of costs."""
  if step.measured is None:
    return None
  run = step.measured.run
  began_at = None
  if run.began_ns is not None:
    began = datetime.datetime.fromtimestamp(run.began_ns / 1e9, datetime.UTC)
    began_at = began.isoformat(timespec="seconds")
  return plan_lib.MeasuredRun(
    name=run.name,
    began_at=began_at,
    num_steps=run.num_steps,
    num_devices=run.num_devices,
    measured_shares=step_lib.measured_shares(step),
  )


def _launched(
  target: target_lib.Target, search: candidates_lib.Search
) -> step_lib.Step:
  """The step with only the plan's options, which a launcher can set.

  Options chosen for another form of the program may be untried on the program
  as written.
  """
  config = search.planned
  if not config.needs_process:
    return search.best.runs
  known = candidates_lib.launched_alone(search, config)
  if known is not None:
    return known.runs
  alone = config_lib.XlaConfig(options=config.options)
  scheduled = evaluation.scheduled_step(target, alone)
  return evaluation.run_of(target, alone, scheduled).step


def _nccl_settings(
  kept: candidates_lib.Candidate,
) -> tuple[plan_lib.NcclSetting, ...]:
  """Settings that differ from the default of their key, each with its gain."""
  step = kept.runs
  settings = []
  for key in step.keys:
    if kept.settings[key] == step.default[key]:
      continue
    reverted = uncertainty.times(
      step, {**kept.settings, key: step.default[key]}
    )
    scenario, worst_us = uncertainty.worst(reverted, kept.tuned_times)
    settings.append(
      plan_lib.NcclSetting(
        key=key,
        calls=step.calls[key],
        setting=kept.settings[key],
        default=step.default[key],
        gain_us=reverted.mean_us - kept.tuned_times.mean_us,
        worst_gain_us=worst_us,
        worst_if=scenario.name,
      )
    )
  return tuple(settings)


def _prediction(
  search: candidates_lib.Search,
  launched: step_lib.Step,
  cap: channel_cap.Cap,
  applied: plan_lib.Applied,
) -> plan_lib.Prediction:
  default = search.default.default_times
  with_options = uncertainty.times(launched, launched.default)
  capped = uncertainty.times(launched, cap.configuration)
  with_settings = search.best.tuned_times if applied == "all" else with_options
  if applied == "flags":
    with_options = with_settings = capped

  def gain(after: uncertainty.Times) -> plan_lib.Range:
    return plan_lib.Range.of(uncertainty.gain(default, after))

  return plan_lib.Prediction(
    default_us=default.mean_us,
    xla_us=with_options.mean_us,
    nccl_env_us=capped.mean_us,
    nccl_settings_us=with_settings.mean_us,
    default_range_us=plan_lib.Range.of(uncertainty.step_time(default)),
    xla_gain_us=gain(with_options),
    nccl_env_gain_us=gain(capped),
    nccl_settings_gain_us=gain(with_settings),
  )
