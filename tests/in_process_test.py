# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""What only the training process can be told, tried on a real step."""

from __future__ import annotations

from collections.abc import Callable

import jax
import pytest

from lagom_xla import cluster as cluster_lib
from lagom_xla import errors
from lagom_xla.compile import scheduler_profile
from lagom_xla.compile import target as target_lib
from lagom_xla.passes import registry
from lagom_xla.search.nccl import settings
from lagom_xla.search.xla import candidates
from lagom_xla.search.xla import feedback
from lagom_xla.search.xla import joint

_H100 = cluster_lib.parse("1x8xh100")


@pytest.fixture(scope="module")
def target(
  fsdp_step: Callable[..., jax.stages.Lowered],
) -> target_lib.Target:
  return target_lib.of_step(fsdp_step(unroll=False), _H100, name="step")


@pytest.fixture(scope="module")
def found(target: target_lib.Target) -> candidates.Search:
  return joint.search(target, max_compiles=1, in_process=True)


def _tried(found: candidates.Search) -> list[candidates.Candidate]:
  return [c for c in found.others if isinstance(c, candidates.Candidate)]


def test_xlas_scheduler_is_fed_the_costs_of_the_best_schedule(found):
  first = next(
    c for c in found.others if c.config.scheduler_profile is not None
  )
  before = found.default
  for candidate in _tried(found):
    if candidate is first:
      break
    before = candidate
  if before.config.combine_groups is None:
    assert first.config.scheduler_profile == feedback.profile(
      before.step, before.settings
    )
  assert scheduler_profile.costs_us(first.config.scheduler_profile)


def test_the_result_is_no_slower_than_what_it_started_from(found):
  best_us = found.best.tuned.step_time_us
  assert best_us <= found.default.tuned.step_time_us
  gains = [c for c in _tried(found) if c.tuned.step_time_us < best_us]
  # Whatever was faster still than the best hurts under NCCL's own choices, or
  # by less than counts.
  for candidate in gains:
    hurts = (
      candidate.under_nccl_defaults.step_time_us
      > found.default.under_nccl_defaults.step_time_us
    )
    is_small = candidate.tuned.step_time_us > best_us * (
      1 - candidates.LEAST_GAIN
    )
    assert hurts or is_small


def test_rounds_end_when_one_brings_nothing(found):
  profiles = [c for c in found.others if c.config.scheduler_profile is not None]
  assert 1 <= len(profiles) <= feedback.MAX_ROUNDS
  assert len(found.others) <= 1 + feedback.MAX_ROUNDS


def test_groups_are_refused_where_donated_inputs_would_be_forgotten(found):
  donates = found.default.step.analysis.module.proto.input_output_alias.entries
  first = found.others[0]
  is_refused = isinstance(first, candidates.Refused)
  assert is_refused == (bool(donates) and not registry.keeps_donation())
  if is_refused:
    assert "donates inputs" in first.reason


def test_a_launcher_gets_neither_groups_nor_profile(found):
  assert not found.best_for_launchers.config.needs_process


def test_a_profile_that_jax_would_replace_is_refused(
  target, found, monkeypatch
):
  def replaced() -> None:
    raise errors.ProfileError("jax_enable_pgle is on")

  monkeypatch.setattr(scheduler_profile, "check_reaches_xla", replaced)
  again = joint.search(target, max_compiles=1, in_process=True)
  refused = again.others[-1]
  assert isinstance(refused, candidates.Refused)
  assert refused.reason == "jax_enable_pgle is on"
  assert refused.config.scheduler_profile == feedback.profile(
    again.best.step, again.best.settings
  )


def test_settings_are_searched_anew_for_each_schedule(found):
  for candidate in _tried(found):
    assert candidate.settings == settings.search(candidate.step).configuration
