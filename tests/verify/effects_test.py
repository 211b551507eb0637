# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""What a knob did is told from what XLA made of it, and nothing else.

The schedules are real: XLA's GPU compiler makes them with and without a knob.
"""

from __future__ import annotations

from collections.abc import Callable
import re
from typing import Any

import jax
import pytest

import hlo_text
from lagom_xla.flags import options as xla_options
from lagom_xla.passes import hlo
from lagom_xla.passes import overlap as overlap_lib
from lagom_xla.search.xla import knobs
from lagom_xla.verify import effects

_GATHER = knobs.OPTIONS["all-gather"]
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


def test_combining_less_is_seen_in_numbers_and_sizes(seen: Seen, sizes):
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


@pytest.mark.parametrize(
  ("kernels", "evidence"),
  [
    (("cosine", "sine"), "in another order"),
    (("sine", "tan"), "kernels, which are others"),
  ],
)
def test_other_kernels_and_another_order_are_seen(
  kernels: tuple[str, str], evidence: str
):
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
  assert effect.evidence.endswith(evidence)


@pytest.mark.parametrize(
  ("fixture", "knob", "value"),
  [
    # All of them are combined under the default already.
    ("fsdp_unrolled", knobs.OPTIONS["reduce-scatter"], 2**33),
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
