# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""What the report page draws: slices, loops, and names that are like HTML."""

from __future__ import annotations

import dataclasses
import json

import pytest

from lagom_xla import cluster as cluster_lib
from lagom_xla.costs import step as step_lib
from lagom_xla.costs.replay import recorder
from lagom_xla.passes import hlo
from lagom_xla.report.page import contents
from lagom_xla.report.page import rendering
from lagom_xla.report.page import report
from pages import NUM_KERNELS
from pages import Page
from pages import draw_long_step


@pytest.fixture(scope="module")
def inspected(fsdp_scan: hlo.Module) -> step_lib.Step:
  return step_lib.of_module(fsdp_scan, cluster_lib.parse("2x8xh100"))


@pytest.fixture(scope="module")
def long_step() -> report.Picture:
  return draw_long_step()


def test_a_step_of_very_many_slices_is_drawn_small_and_loses_nothing(
  long_step: report.Picture,
) -> None:
  (compute,) = long_step.streams
  assert len(compute.begin_us) < 20_000
  lost_us = sum(us for pairs in compute.beside for _, us in pairs)
  assert lost_us == pytest.approx(NUM_KERNELS, rel=1e-6)
  alone_us = long_step.step_us - NUM_KERNELS
  assert sum(compute.lone_us) == pytest.approx(alone_us, rel=1e-6)
  spans = zip(compute.begin_us, compute.end_us, strict=True)
  drawn_us = sum(end - begin for begin, end in spans)
  assert drawn_us == pytest.approx(long_step.step_us)


def test_text_of_a_module_cannot_end_the_page(
  inspected: step_lib.Step,
) -> None:
  pytest.importorskip("plotly")
  data = dataclasses.replace(
    contents.of_inspection(inspected), module_name="</script><b>step</b>"
  )
  picture = data.pictures[0]
  label = dataclasses.replace(picture.labels[0], name="</script><i>")
  picture = dataclasses.replace(picture, labels=(label, *picture.labels[1:]))
  data = dataclasses.replace(data, pictures=(picture,))
  page = Page(rendering.render(data))
  (drawn,) = json.loads(page.scripts["pictures"])
  assert drawn["labels"][0]["name"] == "</script><i>"
  assert "</script><b>step</b> on" in page.text["verdict"]


def test_a_loop_is_drawn_trip_by_trip_until_trips_are_alike(
  inspected: step_lib.Step,
) -> None:
  recorded = recorder.record(
    inspected.program, inspected.costs(inspected.default)
  )
  replayed = inspected.timeline(inspected.default)
  drawn = contents.picture("before", recorded, replayed, {})
  compute = drawn.streams[0]
  assert "folded" in compute.kind
  assert drawn.detail_us is not None
  begin_us, end_us = drawn.detail_us
  folds = [i for i, kind in enumerate(compute.kind) if kind == "folded"]
  (fold,) = [i for i in folds if compute.begin_us[i] == round(end_us, 3)]
  trip_us = (compute.end_us[fold] - compute.begin_us[fold]) / compute.num[fold]
  assert end_us - begin_us == pytest.approx(trip_us, abs=1e-3)
