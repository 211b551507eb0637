# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""The spread of the model's errors is counted as it says."""

from __future__ import annotations

import json
import math
import pathlib

import pytest

from benchmarks import errors
from benchmarks import groups
from lagom_xla.costs import uncertainty


def _group(name: str, *ratios: float) -> groups.Group:
  """Figures of which the measured ones are so many times the predicted."""
  return groups.of_comparisons(
    name,
    [
      groups.Comparison(what=str(ratio), measured=ratio, predicted=1.0)
      for ratio in ratios
    ],
  )


def _slowdowns(*pairs: tuple[str, float, float]) -> groups.Group:
  return groups.of_comparisons(
    "a step: kernels beside collectives",
    [
      groups.Comparison(what=what, measured=measured, predicted=predicted)
      for what, measured, predicted in pairs
    ],
  )


_ONE_NODE = "one node, 64 KiB and more"


def test_what_was_held_out_counts_and_nothing_else_if_there_is_any():
  fitted = _group(f"nccl-tests: {_ONE_NODE}", 1.0)
  held_out = _group(f"nccl-tests, held out: {_ONE_NODE}", *([math.e] * 3))
  (spread,) = errors.spreads([fitted, held_out]).values()
  assert spread == uncertainty.Spread(
    groups=(held_out.name,),
    n=3,
    median=1.0,
    p90=1.0,
    low=0.0,
    bias=1.0,
    high=1.0,
    is_held_out=True,
  )
  (spread,) = errors.spreads([fitted]).values()
  assert not spread.is_held_out


def test_contention_is_what_all_kernels_lose_beside_a_collective():
  found = errors.spreads(
    [
      _slowdowns(
        ("a beside x", 1.4, 1.1),
        ("b beside x", 1.4, 1.3),
        ("c beside y", 1.01, 1.0),  # Nothing, as it is predicted.
      )
    ]
  )
  spread = found["contention"]
  assert spread.n == 2
  assert spread.high == pytest.approx(math.log(0.8 / 0.4), abs=5e-3)
  assert spread.low == 0


def test_errors_of_kernels_even_out_in_a_step():
  ratios = [0.5, 2.0] * 50
  found = errors.spreads([_group("a step: lone other kernels", *ratios)])
  spread = found["other_kernels"]
  assert spread.n == 100
  assert 0 < spread.p90 < math.log(2) / 2


def test_a_step_counts_without_scatters_whose_time_its_data_decide():
  name = "a step: step time from module and spec"
  rest = _group(f"{name}, less colliding scatters", 1.1)
  spread = errors.spreads([_group(name, 2.0), rest])["steps"]
  assert spread.groups == (rest.name,)
  assert spread.high == pytest.approx(math.log(1.1), rel=1e-2)
  assert spread.low == 0


def test_what_is_written_is_what_the_model_reads():
  shipped = pathlib.Path(uncertainty.__file__).parent / "fitted/errors.json"
  written = json.loads(json.dumps(errors.document(uncertainty.spreads())))
  assert written == json.loads(shipped.read_text(encoding="utf-8"))
