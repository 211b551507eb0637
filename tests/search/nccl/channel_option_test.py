# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""XLA's own cap on channels: what it affects, and where it is already set."""

from __future__ import annotations

from collections.abc import Callable, Sequence
import dataclasses
import pathlib
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from commands import run
import fake_target
import gather_steps
from gather_steps import H100
from gather_steps import MIB
from gather_steps import ONE_WAVE
from lagom_xla import errors
from lagom_xla import plan as plan_lib
from lagom_xla.apply import checked
from lagom_xla.apply import files
from lagom_xla.compile import config as config_lib
from lagom_xla.costs import settings
from lagom_xla.costs import step as step_lib
from lagom_xla.flags import nccl_channels
from lagom_xla.passes import hlo
from lagom_xla.passes.schedule import digest
from lagom_xla.search.nccl import channel_cap
from lagom_xla.search.xla import evaluation
from lagom_xla.tuner import tuner
from lagom_xla.verify import verification
import sample_plan
import sourced

_OPTION = "xla_gpu_nccl_collective_max_nchannels"
_KINDS = ("all-gather", "all-to-all", "collective-permute")

Scheduled = Callable[..., hlo.Module]


def _of_three_kinds(devices: Sequence[jax.Device]) -> jax.stages.Lowered:
  """A permute, an all-to-all and an all-gather over eight GPUs."""
  mesh = jax.sharding.Mesh(np.array(devices), ("d",))
  split = jax.sharding.PartitionSpec("d")

  def each(x: jax.Array) -> jax.Array:
    y = jax.lax.ppermute(x, "d", [(i, (i + 1) % 8) for i in range(8)])
    y = jax.lax.all_to_all(jnp.sin(y), "d", 0, 0, tiled=True)
    return jax.lax.all_gather(jnp.cos(y), "d").sum(0)

  function = jax.shard_map(
    each, mesh=mesh, in_specs=split, out_specs=split, check_vma=False
  )
  x = jax.ShapeDtypeStruct(
    (8 * 32 * 1024, 4096),
    jnp.float32,
    sharding=jax.sharding.NamedSharding(mesh, split),
  )
  return jax.jit(function).lower(x)


@pytest.fixture(scope="module")
def step(h100s: Sequence[jax.Device], scheduled: Scheduled) -> step_lib.Step:
  return step_lib.of_module(scheduled(_of_three_kinds(h100s)), H100)


def test_the_option_does_not_change_the_compiled_module(
  h100s: Sequence[jax.Device], scheduled: Scheduled, step: step_lib.Step
) -> None:
  with_it = scheduled(_of_three_kinds(h100s), **{_OPTION: 4})
  assert digest.of(with_it.proto) == digest.of(step.analysis.module.proto)


def _channels(configuration: step_lib.Configuration) -> dict[str, int]:
  return {k.kind: s.num_channels for k, s in configuration.items()}


@pytest.mark.parametrize(
  ("max_channels", "limit", "changed"),
  [
    (4, settings.by_variable, dict.fromkeys(_KINDS, 4)),
    (4, settings.by_option, {"all-gather": 4, "all-to-all": 4}),
    # Sends have powers of two of channels.
    (
      5,
      settings.by_variable,
      {"all-gather": 5, "all-to-all": 8, "collective-permute": 8},
    ),
  ],
)
def test_the_variable_caps_all_kinds_and_the_option_all_but_permutes(
  step: step_lib.Step,
  max_channels: int,
  limit: settings.Limit,
  changed: dict[str, int],
) -> None:
  before = _channels(step.default)
  assert before.keys() == {*_KINDS} and min(before.values()) > 4
  capped = channel_cap.capped(step, max_channels, limit)
  assert _channels(capped) == {**before, **changed}


def test_no_setting_has_more_channels_than_the_option_allows(
  step: step_lib.Step,
) -> None:
  capped = step.capped(4)
  limited = channel_cap.capped(step, 4, settings.by_option)
  assert capped.default == limited
  for configuration in (step.default, limited):
    assert (
      capped.timeline(configuration).step_time_us
      == step.timeline(limited).step_time_us
      != step.timeline(step.default).step_time_us
    )


# Caps that XLA_FLAGS already sets.


@pytest.mark.parametrize(
  ("flags", "options", "most"),
  [
    ("", {}, None),
    ("", {_OPTION: 0}, None),
    ("", {_OPTION: 6}, 6),
    (f"--{_OPTION}=4 --{_OPTION}=8", {}, 8),
    (f"--{_OPTION}=8", {_OPTION: 0}, None),
    (f"--{_OPTION}=8", {_OPTION: 6}, 6),
    (f"--{_OPTION}=-1", {}, None),
  ],
)
def test_the_cap_of_a_config_overrides_the_cap_in_xla_flags(
  monkeypatch: pytest.MonkeyPatch,
  flags: str,
  options: dict[str, Any],
  most: int | None,
) -> None:
  monkeypatch.setenv("XLA_FLAGS", flags)
  assert nccl_channels.most(options) == most


_MODULE = gather_steps.module([16 * MIB], kernels_us=400.0, size=ONE_WAVE)
_TARGET = fake_target.of(lambda _: _MODULE)


def _plan() -> plan_lib.Plan:
  return tuner.tune(_TARGET, applied="flags").plan


def test_gains_are_relative_to_a_cap_that_the_user_already_set(
  monkeypatch: pytest.MonkeyPatch,
) -> None:
  free = evaluation.scheduled_step(_TARGET)
  (own,) = free.default.values()
  monkeypatch.setenv("XLA_FLAGS", f"--{_OPTION}={own.num_channels - 2}")
  plan = _plan()
  capped = channel_cap.capped(free, own.num_channels - 2)
  assert plan.prediction.default_us == free.timeline(capped).step_time_us
  # A lower cap is even better.
  assert int(plan.xla.options[_OPTION]) < own.num_channels - 2
  verified = verification.verify(plan, _TARGET)
  assert verified.planned_us == plan.planned_us
  (effect,) = verified.effects
  assert effect.replaces == str(own.num_channels - 2)


def test_a_users_cap_that_is_already_the_best_is_kept(
  monkeypatch: pytest.MonkeyPatch,
) -> None:
  kept = _plan().xla.options[_OPTION]
  monkeypatch.setenv("XLA_FLAGS", f"--{_OPTION}={kept}")
  assert _plan().is_default


def test_a_users_cap_that_costs_time_is_lifted(
  monkeypatch: pytest.MonkeyPatch,
) -> None:
  monkeypatch.setenv("XLA_FLAGS", f"--{_OPTION}=1")
  exposed = gather_steps.module([64 * MIB], kernels_us=3.0)
  tuning = tuner.tune(fake_target.of(lambda _: exposed), applied="flags")
  assert tuning.plan.xla.options == {_OPTION: 0}
  (effect,) = tuning.effects
  assert effect.acted and effect.evidence.startswith("gives channels to 1 of 1")
  assert effect.with_us == tuning.plan.planned_us < (effect.without_us or 0.0)


# Plans with the option.


@pytest.fixture
def plan() -> plan_lib.Plan:
  return dataclasses.replace(
    sample_plan.PLAN,
    xla=config_lib.XlaConfig(options={_OPTION: 6}),
    nccl_env={},
    nccl_settings=(),
    applied="flags",
  )


@pytest.mark.parametrize("merges", [None, False, True])
def test_an_inherited_variable_does_not_override_the_option(
  tmp_path: pathlib.Path,
  monkeypatch: pytest.MonkeyPatch,
  plan: plan_lib.Plan,
  merges: bool | None,
) -> None:
  folder = tmp_path / "plan"
  files.write(plan, folder)
  file = folder / "env.sh"
  if merges is not None:
    monkeypatch.setenv("XLA_FLAGS", "")
    file = tmp_path / "lines"
    file.write_text(run("flags", str(folder), *["--merge"] * merges).out)
  shell = sourced.Shell(tmp_path / "bin")
  found, said = shell.source(file, NCCL_MAX_CTAS="2")
  assert found == {"XLA_FLAGS": f"--{_OPTION}=6"}
  assert "NCCL_MAX_CTAS was unset" in said and _OPTION in said
  assert shell.source(file) == (found, "")


@pytest.mark.parametrize("value", [-5, 65])
def test_a_number_of_channels_that_nccl_cannot_use_is_rejected(
  tmp_path: pathlib.Path, plan: plan_lib.Plan, value: int
) -> None:
  xla = config_lib.XlaConfig(options={_OPTION: value})
  files.write(dataclasses.replace(plan, xla=xla), tmp_path / "plan")
  with pytest.raises(errors.PlanError, match=f"{_OPTION} is {value}; it must"):
    checked.load(tmp_path / "plan")
