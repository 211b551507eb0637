# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""An NCCL setting acts if NCCL asks for it and would choose another."""

from __future__ import annotations

import dataclasses

import pytest

from lagom_xla import cluster as cluster_lib
from lagom_xla import plan as plan_lib
from lagom_xla.costs import in_words
from lagom_xla.costs import nccl
from lagom_xla.costs import step as step_lib
from lagom_xla.verify import effects

_H100 = cluster_lib.parse("1x8xh100")


@pytest.fixture(scope="module")
def step(fsdp_unrolled) -> step_lib.Step:
  """An all-gather and a reduce-scatter of nine tensors each; an all-reduce."""
  return step_lib.of_module(fsdp_unrolled, _H100)


def _setting_of(step: step_lib.Step, kind: str) -> plan_lib.NcclSetting:
  (key,) = [key for key in step.keys if key.kind == kind]
  return plan_lib.NcclSetting(
    key=key,
    calls=step.calls[key],
    setting=nccl.Setting(
      algorithm="ring", protocol="simple", num_channels=4, chunk_bytes=131072
    ),
    default=step.default[key],
    gain_us=0.0,
    worst_gain_us=0.0,
    worst_if="as predicted",
  )


@pytest.mark.parametrize("kind", ["all-gather", "reduce-scatter"])
def test_the_effect_of_a_setting_names_its_collectives(step, kind):
  entry = _setting_of(step, kind)
  (effect,) = effects.of_settings((entry,), step)
  (name,) = [c.name for c in step.analysis.collectives if c.kind == kind]
  assert effect.acted
  size = in_words.megabytes(entry.key.num_bytes)
  assert effect.knob == f"{kind} of {size} over 8 GPUs"
  assert effect.value.startswith("ring/simple, ")
  assert effect.value.endswith(", chunks of 131.1 kB")
  assert effect.evidence.startswith("applies to 1 collective")
  assert f", such as {name} of the planned module (" in effect.evidence
  num_arrays = max(call.num_arrays for call in entry.calls)
  if num_arrays > 1:
    assert f", 4 channels over {num_arrays} arrays, " in effect.value


def test_the_effect_of_a_setting_has_step_times_with_and_without_it(step):
  entry = _setting_of(step, "all-gather")
  (effect,) = effects.of_settings((entry,), step)
  with_it = {**step.default, entry.key: entry.setting}
  assert effect.with_us == step.timeline(with_it).step_time_us
  assert effect.without_us == step.timeline(step.default).step_time_us
  assert effect.with_us != effect.without_us
  default = step.default[entry.key]
  assert effect.replaces.startswith(f"{default.algorithm}/{default.protocol}, ")


def test_each_setting_is_judged_separately(step):
  good = _setting_of(step, "all-gather")
  absent = dataclasses.replace(
    good, key=dataclasses.replace(good.key, num_bytes=4)
  )
  own = _setting_of(step, "reduce-scatter")
  own = dataclasses.replace(own, setting=own.default)
  by_xla = _setting_of(step, "all-reduce")
  found = effects.of_settings((absent, good, own, by_xla), step)
  assert [effect.acted for effect in found] == [False, True, False, False]
  assert found[0].evidence == "no effect: there is no such collective"
  assert found[2].evidence.startswith(
    "no effect: NCCL's own choice; applies to 1 "
  )
  assert found[3].evidence.endswith(" in a kernel of its own")
  assert found[2].with_us == found[2].without_us


# The environment.


def test_a_setting_that_a_variable_rules_out_has_no_effect(step, monkeypatch):
  entry = _setting_of(step, "all-gather")
  monkeypatch.setenv("NCCL_PROTO", "allgather:LL")
  (effect,) = effects.of_settings((entry,), step)
  assert not effect.acted
  assert effect.evidence == (
    "no effect: NCCL_PROTO=allgather:LL rules it out here"
  )
  monkeypatch.setenv("NCCL_PROTO", "allreduce:LL")
  (effect,) = effects.of_settings((entry,), step)
  assert effect.acted


def test_a_channel_cap_affects_collectives_that_take_more_channels(step):
  channels = sorted(setting.num_channels for setting in step.default.values())
  assert channels[0] < channels[-1]
  for cap in (1, channels[0], channels[-1] - 1):
    num_reached = sum(taken > cap for taken in channels)
    assert num_reached
    (effect,) = effects.of_environment({"NCCL_MAX_CTAS": str(cap)}, step)
    assert effect.acted
    assert (effect.knob, effect.value) == ("NCCL_MAX_CTAS", str(cap))
    assert effect.evidence.startswith(
      f"takes channels from {num_reached} of 3 collectives, such as "
    )


def test_a_channel_cap_that_no_collective_exceeds_has_no_effect(step):
  most = max(setting.num_channels for setting in step.default.values())
  (effect,) = effects.of_environment({"NCCL_MAX_CTAS": str(most)}, step)
  assert not effect.acted
  assert effect.evidence == "no effect: no collective takes more channels"
