# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""A plain search over XLA's options, which ours should always match.

It tries the default and the recipes, then single values on top of the fastest
of those, then adds the values that gained one by one, and then removes each
option from the result.
"""

from __future__ import annotations

from lagom_xla.compile import config as config_lib
from lagom_xla.compile import target as target_lib
from lagom_xla.search.nccl import channel_cap
from lagom_xla.search.xla import arms as arms_lib
from lagom_xla.search.xla import candidates
from lagom_xla.search.xla import evaluation
from lagom_xla.search.xla import joint
from lagom_xla.search.xla import knobs


def search(
  target: target_lib.Target,
  *,
  without_plugin: channel_cap.WithoutPlugin | None,
  found: joint.Found = lambda _: None,
) -> candidates.Search:
  """Searches a target's options, with the same evaluation as our search.

  Args:
    target: the target to search.
    without_plugin: settings of a job that loads no tuner plugin; None if it
      loads the plugin.
    found: called with each candidate.
  """
  default = evaluation.evaluate_or_raise(
    config_lib.DEFAULT, target=target, without_plugin=without_plugin
  )
  found(default)
  arms = arms_lib.known(target.cluster).arms
  so_far = candidates.Search(default=default, arms=arms)
  looks = evaluation.looks(default.step.analysis.module, default.config)
  known = {looks: default}

  def compile_all(configs: list[config_lib.XlaConfig]) -> None:
    nonlocal so_far
    new = [c for c in configs if so_far.found(c) is None]
    for config in evaluation.Turns(target=target).ahead(new):
      candidate = evaluation.evaluate(
        config,
        target=target,
        without_plugin=without_plugin,
        default=default,
        fastest=so_far.fastest_arm,
        known=known,
      )
      found(candidate)
      so_far = so_far.with_candidate(candidate)

  def us(config: config_lib.XlaConfig) -> float:
    candidate = so_far.found(config)
    if isinstance(candidate, candidates.Candidate):
      return candidates.tuned_us(candidate)
    return float("inf")

  compile_all([arm.config for arm in arms])
  start = min(so_far.scheduled, key=candidates.tuned_us)
  best = start.config
  alone = [
    (best.with_options(value.options), value)
    for value in knobs.worth_trying(start.step)
  ]
  compile_all([config for config, _ in alone])
  for config, value in sorted(alone, key=lambda pair: us(pair[0])):
    if us(config) < us(start.config):
      together = best.with_options(value.options)
      compile_all([together])
      best = min(best, together, key=us)
  for name in tuple(best.options):
    less = best.without_options([name])
    compile_all([less])
    best = min(less, best, key=us)
  return so_far
