# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""What compiles show of values corrects what is predicted of the next ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from hypothesis import given
from hypothesis import strategies as st
import pytest

import gather_steps
from gather_steps import GATHER
from lagom_xla.compile import config as config_lib
from lagom_xla.passes import hlo
from lagom_xla.search.nccl import channel_cap
from lagom_xla.search.xla import candidates
from lagom_xla.search.xla import evaluation
from lagom_xla.search.xla import hindsight as hindsight_lib
from lagom_xla.search.xla import joint
from lagom_xla.search.xla import knobs
from lagom_xla.search.xla import predictions

_HEURISTIC = "xla_gpu_experimental_enable_heuristic_collective_combining"


def _takes(
  tail_us: float,
  *,
  gathers: Sequence[Sequence[int]] = gather_steps.APART,
  options: Mapping[str, int] | None = None,
) -> candidates.Candidate:
  step = gather_steps.module(*gathers, tail_us=tail_us)
  return evaluation.evaluate_or_raise(
    config_lib.XlaConfig(options=options or {}),
    target=gather_steps.target(lambda _: step),
    searcher=channel_cap.WithoutPlugin(limit=None),
  )


_BEFORE, _LONGER = _takes(1000.0), _takes(1100.0)
_LOSS = 1 - _LONGER.launched_us / _BEFORE.launched_us


def _value(**options: int) -> knobs.Value:
  return knobs.Value(label=", ".join(options), options=options)


def _seen(predicted: float | None, **options: int) -> hindsight_lib.Hindsight:
  """A value that was predicted to gain so much, and made the step longer."""
  hindsight = hindsight_lib.Hindsight()
  hindsight.note(_value(**options), predicted, _BEFORE, _LONGER)
  return hindsight


def test_a_value_is_expected_to_do_what_it_did():
  assert _seen(0.3, a=1).expected(_value(a=1), 0.3) == pytest.approx(_LOSS)


@pytest.mark.parametrize("alike", [{"a": 2}, {"a": 2, "b": 1}])
def test_other_values_and_pairs_are_taken_to_err_half_as_much(
  alike: dict[str, int],
):
  expected = _seen(0.3, a=1).expected(_value(**alike), 0.4)
  assert expected == pytest.approx(0.4 + (_LOSS - 0.3) / 2)


@pytest.mark.parametrize(
  ("gathers", "share"),
  [(gather_steps.APART, 1.0), (gather_steps.TOGETHER, 0.5)],
)
def test_a_value_is_taken_to_err_half_as_much_beside_other_collectives(
  gathers: Sequence[Sequence[int]], share: float
):
  hindsight = _seen(0.3, a=1)
  hindsight.go_on(_BEFORE, _takes(900.0, gathers=gathers))
  expected = hindsight.expected(_value(a=1), 0.4)
  assert expected == pytest.approx(0.4 + share * (_LOSS - 0.3))


def test_what_a_value_did_says_more_of_it_than_what_another_did_later():
  hindsight = _seen(0.3, a=1)
  hindsight.note(_value(a=2), 0.4, _BEFORE, _LONGER)
  assert hindsight.expected(_value(a=1), 0.3) == pytest.approx(_LOSS)


@given(st.floats(-1, 1))
def test_what_has_nothing_in_common_is_expected_as_predicted(predicted: float):
  assert _seen(0.3, a=1).expected(_value(b=1), predicted) == predicted


def test_what_nothing_foretold_corrects_nothing():
  assert _seen(None, a=1).expected(_value(a=1), 0.3) == 0.3


def test_predictions_are_ranked_anew():
  one, other = (
    predictions.Predicted(value=_value(a=1), gain=0.3),
    predictions.Predicted(value=_value(b=1), gain=0.2),
  )
  found = _seen(0.3, a=1).corrected([one, other])
  assert [p.value for p in found] == [other.value, one.value]
  assert found[0] == other


def test_a_pair_is_not_promising_where_a_part_of_it_does_better():
  pair = predictions.Predicted(value=_value(a=2, b=1), gain=0.3)
  part = predictions.Predicted(value=_value(b=1), gain=0.2)
  best, worse = _seen(0.3, a=1).corrected([pair, part])
  assert best.is_promising
  assert worse.value == pair.value
  assert worse.of_parts == best.gain


def test_what_cost_much_is_not_tried_again_without_a_reason():
  hindsight = _seen(None, a=1)
  assert -_LOSS > hindsight_lib.DEAR
  assert hindsight.not_dear([_value(a=1), _value(b=1)]) == [_value(b=1)]


def test_what_an_option_that_is_taken_back_came_to_is_forgotten():
  hindsight = _seen(None, a=1, b=1)
  assert hindsight.gain_of_option("a", 1) == pytest.approx(_LOSS)
  hindsight.go_on(_takes(1000.0, options={"a": 2}), _BEFORE)
  assert hindsight.gain(_value(a=1, b=1)) is None
  assert hindsight.gain_of_option("a", 1) == 0


def test_a_search_does_not_try_all_values_of_a_knob_that_disappoints():
  def schedule(config: config_lib.XlaConfig) -> hlo.Module:
    # Combining shortens the gathers as foretold, and something else is longer.
    is_combined = gather_steps.is_combined(config)
    gathers = gather_steps.TOGETHER if is_combined else gather_steps.APART
    tail_us = 2000.0 if is_combined else 1000.0
    return gather_steps.module(*gathers, kernels_us=3.0, tail_us=tail_us)

  found = joint.search(gather_steps.target(schedule), arms=())
  tried = [c for c in found.scheduled if GATHER in c.config.options]
  assert len(tried) == 1
  assert found.best is found.default


@pytest.mark.parametrize(
  ("alone_us", "is_paired"), [(1.0, True), (100.0, False)]
)
def test_a_search_tries_together_what_costs_little_alone(
  alone_us: float, is_paired: bool
):
  def schedule(config: config_lib.XlaConfig) -> hlo.Module:
    num = sum(name in config.options for name in (GATHER, _HEURISTIC))
    tail_us = (1000.0, 1000.0 + alone_us, 900.0)[num]
    return gather_steps.module(
      *gather_steps.APART, kernels_us=3.0, tail_us=tail_us
    )

  found = joint.search(gather_steps.target(schedule), arms=())
  both = {GATHER, _HEURISTIC} <= found.best.config.options.keys()
  assert both is is_paired
  assert is_paired or found.best is found.default
