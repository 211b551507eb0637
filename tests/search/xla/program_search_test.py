# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Forms of the program are tried and judged as all else is."""

from __future__ import annotations

import pytest

import fake_target
import formed_target
from lagom_xla.compile import config as config_lib
from lagom_xla.compile import devices as devices_lib
from lagom_xla.compile import target as target_lib
from lagom_xla.costs import step as step_lib
from lagom_xla.passes import hlo
from lagom_xla.passes import registry
from lagom_xla.passes.program import form as form_lib
from lagom_xla.search.xla import candidates
from lagom_xla.search.xla import joint
from lagom_xla.tuner import tuner
import strands_step

_GIB = 2**30


def _strands(found: candidates.Search) -> list[str]:
  return [c.config.program.strands for c in found.others]


@pytest.fixture(scope="module")
def found() -> candidates.Search:
  return joint.search(formed_target.target(), in_process=True)


def test_a_launcher_is_offered_no_form():
  assert set(_strands(joint.search(formed_target.target()))) == {"none"}


def test_each_form_that_acts_is_tried_under_the_best_options(found):
  for strands in ("merged", "rotated"):
    first = next(c for c in found.others if c.config.program.strands == strands)
    assert formed_target.GATHER in first.config.options


def test_a_form_that_leads_is_tried_under_the_defaults_too(found):
  assert config_lib.XlaConfig(program=found.best.config.program) in [
    c.config for c in found.others
  ]


def test_a_form_that_cannot_act_is_refused_once_with_the_reason(found):
  (refused,) = [
    c for c in found.others if c.config.program.strands == "staggered"
  ]
  assert isinstance(refused, candidates.Refused)
  assert "train.py:7: it has no loop" in refused.reason


def test_the_best_is_chosen_over_forms_and_options_together(found):
  best = found.best.config
  assert best.program == form_lib.Form(strands="rotated")
  assert formed_target.GATHER in best.options


def test_options_are_searched_from_a_form_that_is_not_ahead_yet():
  def schedule(config: config_lib.XlaConfig) -> hlo.Module:
    is_coupled = formed_target.GATHER not in config.options
    if config.program.strands == "merged":
      return formed_target.module([350.0], [1] * 32 if is_coupled else [32])
    return formed_target.module([500.0], [1])

  def rewrite(form: form_lib.Form) -> form_lib.Outcome:
    is_merged = form.strands == "merged"
    return form_lib.Outcome(actions=("Merged.",) if is_merged else ())

  target = fake_target.FakeTarget(
    name="step",
    cluster=formed_target.H100,
    scheduled=schedule,
    rewritten=rewrite,
  )
  found = joint.search(target, in_process=True)
  first = next(c for c in found.others if c.config.program.strands == "merged")
  assert isinstance(first, candidates.Candidate)
  assert first.tuned.step_time_us > found.default.tuned.step_time_us
  assert found.best.config.program.strands == "merged"
  assert formed_target.GATHER in found.best.config.options


def test_progress_is_told_of_forms():
  told: list[str] = []
  target = formed_target.target()
  tuner.tune(target, in_process=True, progress=told.append)
  assert "strands merged" in told


def test_what_a_launcher_gains_is_predicted_for_the_program_as_written(found):
  target = formed_target.target()
  plan = tuner.plan_of(target, found)
  alone = target.schedule(config_lib.XlaConfig(options=plan.xla.options))
  launched = step_lib.of_module(alone, formed_target.H100)
  assert plan.prediction.xla_us == pytest.approx(
    launched.timeline(launched.default).step_time_us
  )
  assert plan.prediction.xla_us > plan.prediction.nccl_settings_us
  assert plan.needs_process


def test_a_form_that_does_not_fit_the_device_is_refused_with_what_it_needs():
  def peak_bytes(config: config_lib.XlaConfig) -> int:
    return (90 if config.program.strands == "rotated" else 70) * _GIB

  tuning = tuner.tune(formed_target.target(peak_bytes), in_process=True)
  assert tuning.plan.xla.program == form_lib.Form(strands="merged")
  reasons = [
    c.reason
    for c in tuning.candidates
    if isinstance(c, candidates.Refused)
    and c.config.program.strands == "rotated"
  ]
  needed, available = 90 * _GIB / 1e9, formed_target.H100.gpu.hbm_bytes / 1e9
  assert f"It needs {needed:.1f} GB of {available:.1f} GB." in reasons


# A real step.


@pytest.fixture(scope="module")
def real() -> candidates.Search:
  if registry.plugin_path() is None:
    pytest.skip("JAX's CUDA plugin is not installed (extra aot)")
  jitted, args = strands_step.lowerable(
    devices_lib.devices(formed_target.H100), width=4096, num_rows=16384
  )
  target = target_lib.of_step(
    jitted.lower(*args), formed_target.H100, name="step"
  )
  return joint.search(target, seconds=0, in_process=True)


def test_strands_of_a_real_step_hide_what_was_exposed(real):
  merged = next(
    c
    for c in real.others
    if c.config == config_lib.XlaConfig(program=form_lib.Form(strands="merged"))
  )
  assert isinstance(merged, candidates.Candidate)
  assert len(merged.outcome.actions) == 2
  before = real.default.under_nccl_defaults
  after = merged.under_nccl_defaults
  assert after.total_exposed_us < before.total_exposed_us
  assert after.step_time_us < before.step_time_us


def test_a_real_step_gets_no_slower_by_the_search(real):
  assert real.best.tuned.step_time_us <= real.default.tuned.step_time_us
  assert not real.best.config.program.is_as_written


# Which forms are compiled at all.


_MERGED = form_lib.Form(strands="merged")
_MERGED_APART = form_lib.Form(strands="merged", keyed=True)
_APART = form_lib.Form(keyed=True)


def _forms(asked: list[config_lib.XlaConfig]) -> list[form_lib.Form]:
  return [c.program for c in asked if not c.options]


def _combining(config: config_lib.XlaConfig) -> hlo.Module:
  """A step of which XLA makes one gather of many, with no keys."""
  combined = [1] * 8 if config.program.keyed else [8]
  is_written = config.program.is_as_written
  return formed_target.module([500.0 if is_written else 450.0], combined)


def test_strands_are_tried_with_keys_where_xla_combines_something():
  forms = (_MERGED, _MERGED_APART)
  asked = formed_target.configs(
    _combining, formed_target.acts(*forms), seconds=60
  )
  assert _forms(asked) == [form_lib.AS_WRITTEN, *forms]


def test_strands_are_tried_without_keys_where_xla_combines_nothing():
  forms = (_MERGED, _MERGED_APART)
  asked = formed_target.configs(
    formed_target.schedule, formed_target.acts(*forms)
  )
  assert _forms(asked) == [form_lib.AS_WRITTEN, _MERGED]


def test_keys_alone_are_tried_where_no_form_makes_strands():
  for forms in ((_APART,), (_MERGED, _APART)):
    asked = formed_target.configs(
      _combining, formed_target.acts(*forms), seconds=60
    )
    assert _forms(asked) == [form_lib.AS_WRITTEN, forms[0]]


def test_forms_that_make_the_same_program_are_compiled_once():
  asked = formed_target.configs(
    formed_target.schedule,
    formed_target.acts(_MERGED, _MERGED_APART),
    digested=lambda form: str(form.is_as_written),
  )
  assert _forms(asked) == [form_lib.AS_WRITTEN, _MERGED]


def test_a_form_whose_kernels_alone_take_longer_is_tried_once():
  def schedule(config: config_lib.XlaConfig) -> hlo.Module:
    kernels_us = 500.0 if config.program.is_as_written else 900.0
    return formed_target.module([kernels_us], [1] * 8)

  asked = formed_target.configs(
    schedule, formed_target.acts(_MERGED, _MERGED_APART)
  )
  assert _forms(asked) == [form_lib.AS_WRITTEN, _MERGED]
  assert not any(config.options for config in asked)


def _tried(*forms: form_lib.Form) -> list[dict[str, object]]:
  """Options that the last of these forms is compiled with."""
  asked = formed_target.configs(
    _combining, formed_target.acts(*forms), seconds=60
  )
  return [dict(c.options) for c in asked if c.program == forms[-1]]


def test_strands_are_tried_with_nothing_combined_and_two_in_flight():
  tried = _tried(_MERGED)  # Nothing is predicted to gain by either.
  assert {formed_target.GATHER: 0} in tried
  assert any(2 in options.values() for options in tried)


def test_strands_that_keys_keep_apart_are_not_kept_apart_by_thresholds():
  tried = _tried(_MERGED, _MERGED_APART)
  assert {} in tried
  assert not any(formed_target.GATHER in options for options in tried)


def test_keys_of_a_real_step_are_compiled_where_there_are_strands(real):
  tried = {
    (c.config.program.strands, c.config.program.keyed)
    for c in real.others
    if isinstance(c, candidates.Candidate)
  }
  assert ("merged", False) in tried
  assert ("merged", True) in tried
