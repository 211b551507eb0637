# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""The plan that a search's best candidate makes, and what it should gain."""

from __future__ import annotations

import datetime

from lagom_xla import plan as plan_lib
from lagom_xla.compile import config as config_lib
from lagom_xla.compile import target as target_lib
from lagom_xla.costs import channel_limit
from lagom_xla.costs import coverage
from lagom_xla.costs import step as step_lib
from lagom_xla.costs import uncertainty
from lagom_xla.flags import environment
from lagom_xla.flags import nccl_channels
from lagom_xla.search.nccl import channel_cap
from lagom_xla.search.xla import as_run
from lagom_xla.search.xla import candidates as candidates_lib
from lagom_xla.search.xla import so_far


def plan_of(
  target: target_lib.Target,
  search: candidates_lib.Search,
  *,
  applied: plan_lib.Applied = "all",
) -> plan_lib.Plan:
  """The plan of a search's best candidate.

  Args:
    target: what was searched.
    search: with the candidate that is kept as its best.
    applied: what of it is going to be applied, which the candidates of the
      search were compared by.
  """
  kept = search.best
  launched = _launched(target, search)
  cap = channel_cap.surest(launched, limit(applied))
  config, variables = search.planned, nccl_channels.variables(cap.max_channels)
  if applied == "flags":
    config, variables = _with_option(config, cap), {}
  takes_plugin = applied == "all" and kept.takes_plugin
  settings = _nccl_settings(kept) if takes_plugin else ()
  module = target.identity()
  return plan_lib.Plan(
    module_name=module.name,
    module_fingerprint=plan_lib.fingerprint(module),
    xla_flags=environment.xla_flags(),
    cluster=target.cluster,
    xla=config,
    nccl_env=variables,
    nccl_settings=settings,
    prediction=_prediction(search, launched, cap, applied),
    profile=_measured_run(search.default.runs),
    applied=applied,
  )


def limit(applied: plan_lib.Applied) -> channel_limit.Limit:
  """What a cap does that whoever applies so much of a plan can set."""
  if applied == "flags":
    return channel_limit.by_option
  return channel_limit.by_variable


def _with_option(
  config: config_lib.XlaConfig, cap: channel_cap.Cap
) -> config_lib.XlaConfig:
  """A config with a cap, if there is one, as an option of XLA's."""
  if cap.max_channels is None:
    return config
  return config.with_options({nccl_channels.OPTION: cap.max_channels})


def _measured_run(step: step_lib.Step) -> plan_lib.MeasuredRun | None:
  """The run that a step is priced by, and how much of the step it measured."""
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
    measured_shares=coverage.measured_shares(step),
  )


def _launched(
  target: target_lib.Target, search: candidates_lib.Search
) -> step_lib.Step:
  """The step with the plan's options alone, which is all a launcher can set.

  Options that were chosen for another form of the program may not have been
  tried on the program as written.
  """
  config = search.planned
  if not config.needs_process:
    return search.best.runs
  known = so_far.launched_alone(search, config)
  if known is not None:
    return known.runs
  alone = config_lib.XlaConfig(options=config.options)
  scheduled = as_run.scheduled(target, alone)
  return as_run.step(target, alone, scheduled)


def _nccl_settings(
  kept: candidates_lib.Candidate,
) -> tuple[plan_lib.NcclSetting, ...]:
  """The keys that do not keep their default, with what each of them gains."""
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
    return _range(uncertainty.gain(default, after))

  return plan_lib.Prediction(
    default_us=default.mean_us,
    xla_us=with_options.mean_us,
    nccl_env_us=capped.mean_us,
    nccl_settings_us=with_settings.mean_us,
    default_range_us=_range(uncertainty.step_time(default)),
    xla_gain_us=gain(with_options),
    nccl_env_gain_us=gain(capped),
    nccl_settings_gain_us=gain(with_settings),
  )


def _range(estimate: uncertainty.Estimate) -> plan_lib.Range:
  return plan_lib.Range(low_us=estimate.low, high_us=estimate.high)
