# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""A NCCL setting acts where NCCL asks for it and would choose another."""

from __future__ import annotations

import dataclasses

import pytest

from lagom_xla import cluster as cluster_lib
from lagom_xla import plan as plan_lib
from lagom_xla.apply.nccl import table
from lagom_xla.costs import in_words
from lagom_xla.costs import nccl
from lagom_xla.costs import step as step_lib
from lagom_xla.passes import hlo
from lagom_xla.verify import nccl_effects

_H100 = cluster_lib.parse("1x8xh100")


@pytest.fixture(scope="module")
def step(fsdp_unrolled: hlo.Module) -> step_lib.Step:
  """One all-gather, one reduce-scatter of nine tensors each; an all-reduce."""
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


@pytest.mark.parametrize("kind", ["all-gather", "all-reduce", "reduce-scatter"])
def test_a_setting_names_the_collectives_that_it_meets(step, kind):
  entry = _setting_of(step, kind)
  (effect,) = nccl_effects.of_settings((entry,), step)
  (name,) = [c.name for c in step.analysis.collectives if c.kind == kind]
  assert effect.acted
  size = in_words.megabytes(entry.key.num_bytes)
  assert effect.knob == f"{kind} of {size} over 8 GPUs"
  assert effect.value.startswith("ring/simple, ")
  assert effect.value.endswith(", chunks of 131.1 kB")
  assert effect.evidence.startswith("meets 1 collective")
  assert f", such as {name} of the planned module (" in effect.evidence


def test_channels_are_those_that_nccl_gives_each_array(step):
  entry = _setting_of(step, "all-gather")
  num_arrays = max(call.num_arrays for call in entry.calls)
  assert num_arrays > 1
  (effect,) = nccl_effects.of_settings((entry,), step)
  (rule, *_) = table.rules_of([entry])
  assert f"{rule.num_channels} channel for each of {num_arrays} arrays" in (
    effect.value
  )


def test_a_setting_has_the_step_with_it_and_with_nccls_own(step):
  entry = _setting_of(step, "all-gather")
  (effect,) = nccl_effects.of_settings((entry,), step)
  with_it = {**step.default, entry.key: entry.setting}
  assert effect.with_us == step.timeline(with_it).step_time_us
  assert effect.without_us == step.timeline(step.default).step_time_us
  assert effect.with_us != effect.without_us
  default = step.default[entry.key]
  assert effect.replaces.startswith(f"{default.algorithm}/{default.protocol}, ")


def test_a_setting_that_nccl_would_choose_itself_has_no_effect(step):
  entry = _setting_of(step, "all-gather")
  own = dataclasses.replace(entry, setting=entry.default)
  (effect,) = nccl_effects.of_settings((own,), step)
  assert not effect.acted
  assert effect.evidence.startswith("no effect: NCCL's own choice; meets 1 ")
  assert effect.with_us == effect.without_us


@pytest.mark.parametrize(
  "change", [{"num_bytes": 4}, {"num_ranks": 4}, {"kind": "broadcast"}]
)
def test_a_setting_for_a_collective_that_is_not_there_has_no_effect(
  step, change
):
  entry = _setting_of(step, "all-gather")
  other = dataclasses.replace(
    entry, key=dataclasses.replace(entry.key, **change)
  )
  (effect,) = nccl_effects.of_settings((other,), step)
  assert not effect.acted
  assert effect.evidence == "no effect: there is no such collective"


def test_each_setting_is_judged_by_itself(step):
  good = _setting_of(step, "all-gather")
  bad = dataclasses.replace(
    good, key=dataclasses.replace(good.key, num_bytes=4)
  )
  found = nccl_effects.of_settings((bad, good, bad), step)
  assert [effect.acted for effect in found] == [False, True, False]


# The environment.


def test_a_cap_reaches_the_collectives_that_take_more_channels(step):
  channels = sorted(setting.num_channels for setting in step.default.values())
  assert channels[0] < channels[-1]
  for cap in (1, channels[0], channels[-1] - 1):
    num_reached = sum(taken > cap for taken in channels)
    assert num_reached
    (effect,) = nccl_effects.of_environment({"NCCL_MAX_CTAS": str(cap)}, step)
    assert effect.acted
    assert (effect.knob, effect.value) == ("NCCL_MAX_CTAS", str(cap))
    assert effect.evidence.startswith(
      f"takes channels from {num_reached} of 3 collectives, such as "
    )


def test_a_cap_that_nothing_exceeds_has_no_effect(step):
  most = max(setting.num_channels for setting in step.default.values())
  (effect,) = nccl_effects.of_environment({"NCCL_MAX_CTAS": str(most)}, step)
  assert not effect.acted
  assert effect.evidence == "no effect: no collective takes more channels"


@pytest.mark.parametrize("value", ["", "four", "0", "-1", "1.5", "²"])
def test_a_cap_that_is_no_number_has_no_effect(step, value):
  (effect,) = nccl_effects.of_environment({"NCCL_MAX_CTAS": value}, step)
  assert not effect.acted
  assert effect.evidence == "no effect: it is no number of channels"


def test_other_variables_are_not_claimed_to_act(step):
  (effect,) = nccl_effects.of_environment({"NCCL_ALGO": "ring"}, step)
  assert not effect.acted
  assert effect.evidence.startswith("not seen")
