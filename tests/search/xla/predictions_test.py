# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""What values of knobs gain is predicted, of a large module for a few."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import pytest

from lagom_xla import cluster as cluster_lib
from lagom_xla.compile import target as target_lib
from lagom_xla.search.xla import joint
from lagom_xla.search.xla import knobs
from lagom_xla.search.xla import predictions

H100 = cluster_lib.parse("1x8xh100")


def test_few_predictions_are_shared_by_all_knobs(
  h100s: Any,
  fsdp_step: Callable[..., jax.stages.Lowered],
  monkeypatch: pytest.MonkeyPatch,
):
  target = target_lib.of_step(fsdp_step(unroll=True), H100, name="step")
  default = joint.search(target, arms=(), seconds=0).default
  values = [v for v in knobs.worth_trying(default.step) if v.changes]
  offered = {frozenset(v.options) for v in values}
  few = len(offered) + 1
  assert len(offered) > 2 and few < len(values)

  module = default.step.analysis.module
  monkeypatch.setattr(
    predictions, "_MAX_PREDICTED_INSTRUCTIONS", few * module.num_instructions
  )
  found = predictions.of(default, values)
  assert len(found) == few
  assert {frozenset(p.value.options) for p in found} == offered
