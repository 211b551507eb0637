# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""A search also tries other values of what it sets, if predicted as good."""

from __future__ import annotations

import pytest

import gather_steps
from gather_steps import GATHER
from gather_steps import MIB
from lagom_xla.compile import config as config_lib
from lagom_xla.passes import hlo
from lagom_xla.search.xla import joint

_GATHERS, _GATHER_BYTES = 8, 40 * MIB
_SOME, _ALL = 128 * MIB, 512 * MIB


def _scheduled(threshold: int, tail_us: float) -> hlo.Module:
  """As XLA combines it: eight gathers as they are, in threes, or as one."""
  at_once = max(threshold // _GATHER_BYTES, 1)
  sizes = [_GATHER_BYTES] * _GATHERS
  gathers = [
    sizes[first : first + at_once] for first in range(0, _GATHERS, at_once)
  ]
  return gather_steps.module(*gathers, tail_us=tail_us)


def _tried(faster: int, tail_us: float) -> tuple[int, set[int]]:
  """What a search keeps and compiles if one threshold is better than foretold.

  Args:
    faster: the threshold beside which the rest of the step is shorter.
    tail_us: the rest of the step.
  """

  def schedule(config: config_lib.XlaConfig) -> hlo.Module:
    threshold = int(config.options.get(GATHER, 0))
    gained_us = 1000.0 if threshold == faster else 0.0
    return _scheduled(threshold, tail_us=tail_us - gained_us)

  found = joint.search(gather_steps.target(schedule), arms=())
  tried = {int(c.config.options.get(GATHER, 0)) for c in found.scheduled}
  return int(found.best.config.options[GATHER]), tried


@pytest.mark.parametrize("faster", [_SOME, _ALL])
def test_of_two_values_predicted_alike_the_better_is_kept(faster: int):
  kept, _ = _tried(faster, tail_us=150_000.0)
  assert kept == faster


def test_a_value_predicted_to_cost_more_is_not_compiled():
  # Of a short step, what combining less costs is a larger share.
  kept, tried = _tried(_SOME, tail_us=60_000.0)
  assert kept == _ALL
  assert _SOME not in tried
