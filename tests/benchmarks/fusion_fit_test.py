# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""The fit of fusions: what ships is what it finds."""

from __future__ import annotations

import dataclasses
import json
import pathlib

import pytest

from benchmarks.kernels import fit_fusions
from benchmarks.kernels import lone_kernels
from lagom_xla.costs import fusion

_DATA = pathlib.Path(__file__).resolve().parents[3] / "shared/data"
_SHIPPED = pathlib.Path(fusion.__file__).with_name("fitted") / "fusion.json"

pytestmark = pytest.mark.skipif(
  not _DATA.is_dir(), reason="traces are not beside this checkout (shared/data)"
)


@pytest.fixture(scope="module", name="steps")
def fixture_steps() -> list[lone_kernels.Measured]:
  return list(lone_kernels.read(_DATA))


def test_the_figures_that_ship_are_those_that_the_fit_finds(
  steps: list[lone_kernels.Measured],
):
  shipped = json.loads(_SHIPPED.read_text(encoding="utf-8"))
  assert fit_fusions.fusions(steps, _DATA) == shipped


def test_a_figure_that_no_kernel_is_bound_by_stays_where_it_starts(
  steps: list[lone_kernels.Measured],
):
  (step,) = (s for s in steps if s.name == "pax_a100")
  share = fit_fusions.vector_share(steps)
  for wave_us in (1.1, 1.4):
    start = dataclasses.replace(fit_fusions.unfitted(share), wave_us=wave_us)
    found = fit_fusions.fit(step.ranks[0], step.gpu, start)
    assert found.wave_us == wave_us


def test_the_only_kernels_that_operations_bound_take_what_the_share_says(
  steps: list[lone_kernels.Measured],
):
  parameters = fit_fusions.unfitted(fit_fusions.vector_share(steps))
  for step in steps:
    bound = [
      row
      for row in step.ranks[0]
      if fit_fusions.operations_bound(row, step.gpu)
    ]
    fitted = fit_fusions.fit(step.ranks[0], step.gpu, parameters)
    predicted_us = fit_fusions.predicted_us(fitted, bound, step.gpu)
    measured_us = [row.measured_us for row in bound]
    assert predicted_us == pytest.approx(measured_us, rel=0.01)
