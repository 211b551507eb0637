# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""The effect of a knob is detected only from XLA's result.

The schedules are real: XLA's GPU compiler makes them with and without a knob.
"""

from __future__ import annotations

from collections.abc import Callable
import re
from typing import Any

import pytest

import hlo_text
from lagom_xla.flags import options as xla_options
from lagom_xla.passes import overlap as overlap_lib
from lagom_xla.search.xla import knobs
from lagom_xla.verify import effects

_GATHER = knobs.OPTIONS["all-gather"]
_LIMIT = "xla_gpu_experimental_parallel_collective_overlap_limit"

Seen = Callable[..., effects.Effect]


@pytest.fixture(scope="module")
def seen(scheduled, fsdp_step, request) -> Seen:
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


def test_less_combining_is_reported_with_numbers_and_sizes(seen, sizes):
  effect = seen("fsdp_unrolled", _GATHER, 0)
  layer = sizes["width"] * sizes["hidden"] * 2
  out = sizes["width"] * sizes["classes"] * 2
  num_gathers = 2 * sizes["layers"] + 1
  together = 2 * sizes["layers"] * layer + out
  assert effect.acted
  assert (effect.knob, effect.value) == (_GATHER, "0")
  assert effect.evidence.startswith(
    f"1 all-gather became {num_gathers}, the largest of {layer / 1e6:.1f} MB"
    f" (before {together / 1e6:.1f} MB)"
  )
  # Unchanged kinds are not mentioned.
  assert "reduce-scatter" not in effect.evidence


def test_pipelining_is_reported_with_collectives_across_iterations(seen):
  effect = seen("fsdp_scan", "xla_gpu_enable_pipelined_all_gather", True)
  assert effect.acted
  # One in the loop, and one ahead of it.
  assert "2 more collectives pipelined over loop iterations" in effect.evidence


def test_double_buffering_is_reported_with_loop_iterations(seen, sizes):
  effect = seen("tp_scan", "xla_gpu_enable_while_loop_double_buffering", True)
  runs = sizes["layers"]
  assert effect.acted
  assert f"run {runs // 2} times instead of {runs}" in effect.evidence
  assert "2 all-reduces became 4" in effect.evidence


def test_an_overlap_limit_is_reported_with_overlapping_kernels(seen):
  nothing = seen("fsdp_scan", _LIMIT, 1)  # It is the default.
  assert not nothing.acted
  assert nothing.evidence == "no effect: the schedule is the same without it"
  effect = seen("fsdp_scan", _LIMIT, 2)
  assert effect.acted
  moved = re.fullmatch(
    r"(\d+) of 5 collectives moved and now overlap (\d+) kernels instead of"
    r" (\d+)",
    effect.evidence,
  )
  assert moved is not None
  assert int(moved[1]) > 0
  assert int(moved[2]) > int(moved[3])


@pytest.mark.parametrize("kernels", [("cosine", "sine"), ("sine", "tan")])
def test_different_and_reordered_kernels_are_reported(kernels):
  def analysis(first: str, second: str) -> overlap_lib.Analysis:
    return overlap_lib.analyze(
      hlo_text.load(f"""
  p = f32[8] parameter(0)
  {first} = f32[8] {first}(p)
  {second} = f32[8] {second}(p)
  ROOT both = (f32[8], f32[8]) tuple({first}, {second})
""")
    )

  effect = effects.of_difference(
    "a", "b", analysis("sine", "cosine"), analysis(*kernels)
  )
  assert effect.acted
  assert effect.evidence.endswith("kernels, but different or reordered ones")
