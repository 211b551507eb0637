# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""What a knob did is told from what XLA made of it, and nothing else.

The schedules are real: XLA's GPU compiler makes them with and without a knob.
"""

from __future__ import annotations

from collections.abc import Callable
import dataclasses
import re
from typing import Any

import jax
import pytest

import hlo_text
from lagom_xla import cluster as cluster_lib
from lagom_xla import plan as plan_lib
from lagom_xla.costs import nccl
from lagom_xla.costs import step as step_lib
from lagom_xla.flags import options as xla_options
from lagom_xla.passes import hlo
from lagom_xla.passes import overlap as overlap_lib
from lagom_xla.search.xla import thresholds
from lagom_xla.verify import effects

_H100 = cluster_lib.parse("1x8xh100")
_GATHER = thresholds.OPTIONS["all-gather"]
_LIMIT = "xla_gpu_experimental_parallel_collective_overlap_limit"

Seen = Callable[..., effects.Effect]


@pytest.fixture(scope="module")
def seen(
  scheduled: Callable[..., hlo.Module],
  fsdp_step: Callable[..., jax.stages.Lowered],
  request: pytest.FixtureRequest,
) -> Seen:
  """The effect of one XLA option on a shared train step."""

  def effect_of(fixture: str, knob: str, value: Any) -> effects.Effect:
    fitted = xla_options.translate(knob, value)
    assert not isinstance(fitted, str), fitted
    knob, value = fitted
    lowered = fsdp_step(unroll=fixture == "fsdp_unrolled")
    if fixture == "tp_scan":
      lowered = request.getfixturevalue("tp_step")
    return effects.of_difference(
      knob,
      str(value),
      overlap_lib.analyze(request.getfixturevalue(fixture)),
      overlap_lib.analyze(scheduled(lowered, **{knob: value})),
    )

  return effect_of


@pytest.fixture(scope="module")
def step(fsdp_unrolled: hlo.Module) -> step_lib.Step:
  """One all-gather, one reduce-scatter of nine tensors each; an all-reduce."""
  return step_lib.of_module(fsdp_unrolled, _H100)


# XLA options.


def test_combining_less_is_seen_in_numbers_and_sizes(seen: Seen, sizes):
  effect = seen("fsdp_unrolled", _GATHER, 0)
  layer = sizes["width"] * sizes["hidden"] * 2
  out = sizes["width"] * sizes["classes"] * 2
  num_gathers = 2 * sizes["layers"] + 1
  together_mib = (2 * sizes["layers"] * layer + out) / 2**20
  assert effect.acted
  assert (effect.knob, effect.value) == (_GATHER, "0")
  assert effect.evidence.startswith(
    f"1 all-gather became {num_gathers}, of at most {layer / 2**20:.3g} MiB"
    f" (before {together_mib:.3g} MiB)"
  )
  # Nothing is said of kinds that stayed as they were.
  assert "reduce-scatter" not in effect.evidence


def test_pipelining_is_seen_in_what_crosses_iterations(seen: Seen):
  effect = seen("fsdp_scan", "xla_gpu_enable_pipelined_all_gather", True)
  assert effect.acted
  # One in the loop, and one ahead of it.
  assert "2 more collectives pipelined over loop iterations" in effect.evidence


def test_double_buffering_is_seen_in_iterations(seen: Seen, sizes):
  effect = seen("tp_scan", "xla_gpu_enable_while_loop_double_buffering", True)
  runs = sizes["layers"]
  assert effect.acted
  assert f"run {runs // 2} times instead of {runs}" in effect.evidence
  assert "2 all-reduces became 4" in effect.evidence


def test_an_overlap_limit_is_seen_in_what_is_beside_collectives(seen: Seen):
  effect = seen("fsdp_scan", _LIMIT, 2)
  assert effect.acted
  moved = re.fullmatch(
    r"(\d+) of 5 collectives moved: beside (\d+) kernels instead of (\d+)",
    effect.evidence,
  )
  assert moved is not None
  assert int(moved[1]) > 0
  assert int(moved[2]) > int(moved[3])


def test_another_order_of_kernels_is_seen(seen: Seen):
  knob = "xla_gpu_enable_analytical_latency_estimator"
  effect = seen("fsdp_unrolled", knob, True)
  assert effect.acted
  assert effect.evidence.endswith("in another order")


def test_other_kernels_are_not_taken_for_another_order():
  def analysis(operation: str) -> overlap_lib.Analysis:
    body = f"p = f32[8] parameter(0)\nROOT result = f32[8] {operation}(p)"
    return overlap_lib.analyze(hlo_text.load(body))

  effect = effects.of_difference("a", "b", analysis("sine"), analysis("cosine"))
  assert effect.acted
  assert effect.evidence.endswith("kernels, which are others")


@pytest.mark.parametrize(
  ("fixture", "knob", "value"),
  [
    # All of them are combined under the default already.
    ("fsdp_unrolled", thresholds.OPTIONS["reduce-scatter"], 2**33),
    # There is no such collective.
    ("tp_scan", _GATHER, 0),
    # There is no loop.
    ("fsdp_unrolled", "xla_gpu_enable_pipelined_all_gather", True),
    # It is the default.
    ("fsdp_scan", _LIMIT, 1),
  ],
)
def test_an_option_that_does_nothing_is_said_to_have_no_effect(
  seen: Seen, fixture: str, knob: str, value: Any
):
  effect = seen(fixture, knob, value)
  assert not effect.acted
  assert effect.evidence == "no effect: the schedule is the same without it"


# NCCL settings.


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
  (effect,) = effects.of_settings((entry,), step)
  (name,) = [c.name for c in step.analysis.collectives if c.kind == kind]
  assert effect.acted
  assert effect.knob == f"{kind} of {entry.key.num_bytes} bytes over 8 GPUs"
  assert effect.value == "ring/simple, 4 channels, 131072 byte chunks"
  assert effect.evidence.startswith("meets 1 collective")
  assert effect.evidence.endswith(f", such as {name}")


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
  (effect,) = effects.of_settings((other,), step)
  assert not effect.acted
  assert effect.evidence == "no effect: there is no such collective"


def test_each_setting_is_judged_by_itself(step):
  good = _setting_of(step, "all-gather")
  bad = dataclasses.replace(
    good, key=dataclasses.replace(good.key, num_bytes=4)
  )
  found = effects.of_settings((bad, good, bad), step)
  assert [effect.acted for effect in found] == [False, True, False]


# The environment.


def test_a_cap_reaches_the_collectives_that_take_more_channels(step):
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


def test_a_cap_that_nothing_exceeds_has_no_effect(step):
  most = max(setting.num_channels for setting in step.default.values())
  (effect,) = effects.of_environment({"NCCL_MAX_CTAS": str(most)}, step)
  assert not effect.acted
  assert effect.evidence == "no effect: no collective takes more channels"


@pytest.mark.parametrize("value", ["", "four", "0", "-1", "1.5", "²"])
def test_a_cap_that_is_no_number_has_no_effect(step, value):
  (effect,) = effects.of_environment({"NCCL_MAX_CTAS": value}, step)
  assert not effect.acted
  assert effect.evidence == "no effect: it is no number of channels"


def test_other_variables_are_not_claimed_to_act(step):
  (effect,) = effects.of_environment({"NCCL_ALGO": "ring"}, step)
  assert not effect.acted
  assert effect.evidence.startswith("not seen")


def test_nothing_set_is_no_effect_at_all(step):
  assert effects.of_environment({}, step) == ()
  assert effects.of_settings((), step) == ()
