# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""The fit of fusions: what ships is what it finds."""

from __future__ import annotations

import json
import pathlib

import pytest

from benchmarks.kernels import fit_fusions
from lagom_xla.costs import fusion

_DATA = pathlib.Path(__file__).resolve().parents[3] / "shared/data"
_SHIPPED = pathlib.Path(fusion.__file__).with_name("fitted") / "fusion.json"


@pytest.mark.skipif(
  not _DATA.is_dir(), reason="traces are not beside this checkout (shared/data)"
)
def test_the_figures_that_ship_are_those_that_the_fit_finds():
  steps = list(fit_fusions.read(_DATA))
  shipped = json.loads(_SHIPPED.read_text(encoding="utf-8"))
  assert fit_fusions.fusions(steps) == shipped
