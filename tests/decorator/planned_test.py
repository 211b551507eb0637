# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""A step tuned with a plan follows the plan, or stays unchanged."""

from __future__ import annotations

import dataclasses
from typing import Any
import warnings

import jax
import jax.numpy as jnp
import pytest

from jitted_steps import CLUSTER
from jitted_steps import WIDTH
from jitted_steps import assert_identical
from jitted_steps import configs_compiled
from jitted_steps import fresh_state
from jitted_steps import fsdp_step
from jitted_steps import sharded
from jitted_steps import tune_predicted
import lagom_xla
from lagom_xla import cluster as cluster_lib
from lagom_xla import errors
from lagom_xla import plan as plan_lib
from lagom_xla.apply import files
from lagom_xla.compile import compiler
from lagom_xla.compile import config as config_lib
from lagom_xla.compile import lowered
from lagom_xla.compile import target as target_lib
from lagom_xla.flags import nccl_channels
from lagom_xla.passes.program import form as form_lib
import strands_step


@pytest.fixture(scope="module")
def fsdp_plan(tmp_path_factory) -> str:
  """A plan for `fsdp_step` with a batch of 16."""
  tuned = tune_predicted(fsdp_step())
  tuned(fresh_state(), sharded(16, WIDTH))
  plan = dataclasses.replace(
    tuned.tunings[0].plan,
    # XLA's CPU compiler accepts this, without effect.
    xla=config_lib.XlaConfig(
      options={"xla_gpu_all_gather_combine_threshold_bytes": 4096}
    ),
  )
  path = tmp_path_factory.mktemp("plans") / "plan"
  files.write(plan, path)
  return str(path)


def test_a_step_with_a_plan_is_compiled_with_it_without_a_search(
  fsdp_plan, tuned_names, monkeypatch
):
  asked = configs_compiled(monkeypatch)
  planned = lagom_xla.tune(fsdp_step(), cluster=CLUSTER, plan=fsdp_plan)
  jitted = fsdp_step()
  ours, theirs = fresh_state(), fresh_state()
  for n in range(3):
    x = sharded(16, WIDTH, seed=100 + n)
    before = jax.tree.leaves(ours)
    ours, our_loss = planned(ours, x)
    theirs, their_loss = jitted(theirs, x)
    assert_identical((ours, our_loss), (theirs, their_loss))
    assert all(leaf.is_deleted() for leaf in before)
  assert tuned_names == []
  predicted = plan_lib.load(fsdp_plan).prediction
  ratio = predicted.xla_us / predicted.default_us
  assert planned.report() == (
    f"step: runs with the plan {fsdp_plan}, predicted {ratio:.3f} of the step"
    " time, not measured"
  )
  assert list(planned.tunings) == []
  # Once to check that the plan is for the step, and once with the plan.
  assert len(asked) == 2
  assert asked[-1] == plan_lib.load(fsdp_plan).xla


def test_the_form_of_a_plan_is_applied_without_changing_results(
  fsdp_plan, tmp_path, monkeypatch
):
  jitted, shapes = strands_step.lowerable(jax.devices())
  cluster = cluster_lib.parse(CLUSTER)
  target = target_lib.of_step(jitted.lower(*shapes), cluster, name="step")
  plan = dataclasses.replace(
    plan_lib.load(fsdp_plan),
    module_fingerprint=plan_lib.fingerprint(target.identity()),
    xla=config_lib.XlaConfig(program=form_lib.Form(strands="merged")),
  )
  files.write(plan, tmp_path / "plan")
  ran: list[lowered.Compilation] = []
  real = compiler.compile

  def compile_(
    step: Any, config: config_lib.XlaConfig, *, must_begin: bool
  ) -> Any:
    ran.append(real(step, config, must_begin=must_begin))
    return ran[-1]

  monkeypatch.setattr(compiler, "compile", compile_)
  planned = lagom_xla.tune(jitted, cluster=CLUSTER, plan=tmp_path / "plan")
  ours, *batches = strands_step.values(shapes)
  theirs = jnp.copy(ours)
  for _ in range(10):
    donated = ours
    ours, our_loss = planned(ours, *batches)
    theirs, their_loss = jitted(theirs, *batches)
    assert_identical((ours, our_loss), (theirs, their_loss))
    assert donated.is_deleted()
  as_written, merged = ran
  assert plan_lib.fingerprint(merged.module) != plan_lib.fingerprint(
    as_written.module
  )


def test_a_channel_cap_in_xla_flags_is_not_lifted_by_the_decorator(monkeypatch):
  monkeypatch.setenv("XLA_FLAGS", f"--{nccl_channels.OPTION}=1")
  tuned = tune_predicted(fsdp_step())
  tuned(fresh_state(), sharded(16, WIDTH))
  search = tuned.tunings[0].search
  assert search.arms
  for config in (*(arm.config for arm in search.arms), search.planned):
    assert nccl_channels.OPTION not in config.options


def test_a_plan_for_another_step_causes_one_warning(fsdp_plan, tuned_names):
  jitted = fsdp_step()
  planned = lagom_xla.tune(fsdp_step(), cluster=CLUSTER, plan=fsdp_plan)
  ours, theirs = fresh_state(), fresh_state()
  with pytest.warns(RuntimeWarning) as warned:
    for batch in (24, 24, 32, 16):  # The plan is for 16.
      x = sharded(batch, WIDTH)
      ours, _ = planned(ours, x)
      theirs, _ = jitted(theirs, x)
      assert_identical(ours, theirs)
  (warning,) = warned
  message = str(warning.message)
  assert message.startswith("lagom_xla.tune leaves step unchanged: The plan")
  assert "its shapes or its shardings changed" in message
  assert warning.filename == __file__
  assert tuned_names == []


def test_a_missing_plan_raises_at_once(tmp_path):
  with pytest.raises(errors.PlanError, match=r"plan\.json"):
    lagom_xla.tune(fsdp_step(), cluster=CLUSTER, plan=tmp_path)


@pytest.mark.parametrize("has_cap", [False, True])
def test_the_channel_cap_of_a_plan_is_left_out_with_a_warning_unless_set(
  has_cap, fsdp_plan, tmp_path, monkeypatch
):
  if has_cap:  # Then the cap is in effect anyway.
    monkeypatch.setenv("XLA_FLAGS", f"--{nccl_channels.OPTION}=6")
  asked = configs_compiled(monkeypatch)
  plan = plan_lib.load(fsdp_plan)
  xla = plan.xla.with_options({nccl_channels.OPTION: 6})
  path = tmp_path / "plan"
  files.write(dataclasses.replace(plan, xla=xla, applied="flags"), path)
  planned = lagom_xla.tune(fsdp_step(), cluster=CLUSTER, plan=path)
  state = fresh_state()
  with warnings.catch_warnings(record=True) as warned:
    warnings.simplefilter("always")
    for _ in range(2):
      state, _ = planned(state, sharded(16, WIDTH))
  assert asked[-1] == plan.xla
  assert len(warned) == (not has_cap)
  for warning in warned:
    assert f"without its --{nccl_channels.OPTION}=6, which" in str(
      warning.message
    )
    assert warning.filename == __file__
  assert planned.report().startswith(
    f"step: runs with the plan {path}, predicted"
  )


@pytest.mark.parametrize(
  ("changes", "words"),
  [
    ({"jaxlib_version": "0.9.9"}, "made with jaxlib 0.9.9"),
    ({"cluster": cluster_lib.parse("2x4xh100")}, "num_nodes is 2 there"),
    ({"nccl_env": {"NCCL_MAX_CTAS": "many"}}, 'NCCL_MAX_CTAS is "many"'),
    (
      {"xla": config_lib.XlaConfig(program=form_lib.Form(strands="merged"))},
      "The plan's form is for another",
    ),
  ],
)
def test_a_plan_that_does_not_fit_is_not_applied(
  tmp_path, fsdp_plan, changes, words, tuned_names
):
  files.write(
    dataclasses.replace(plan_lib.load(fsdp_plan), **changes), tmp_path / "plan"
  )
  for path in (str(tmp_path / "plan"), tmp_path / "plan" / "plan.json"):
    step = lagom_xla.tune(cluster=CLUSTER, plan=path)(fsdp_step())
    with pytest.warns(RuntimeWarning, match=words):
      step(fresh_state(), sharded(16, WIDTH))
    assert step.report().startswith("step: unchanged, without the plan")
  assert tuned_names == []
