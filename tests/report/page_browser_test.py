# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""The report page in Chromium: hover, zoom, a phone, and a very long step."""

from __future__ import annotations

import dataclasses
import json
import pathlib

import pytest

import browser
from lagom_xla.report.page import rendering
from lagom_xla.report.page import report
from pages import Tuned
from pages import draw_long_step


@pytest.fixture(scope="module")
def chromium(chromium: browser.Browser, tuned_page: Tuned) -> browser.Browser:
  chromium.open(tuned_page.page)
  return chromium


def test_a_browser_opens_the_page_without_errors_or_requests(
  chromium: browser.Browser, tuned_page: Tuned
) -> None:
  assert chromium.errors == []
  assert chromium.requests == [tuned_page.page.resolve().as_uri()]
  assert chromium.evaluate("document.querySelectorAll('.bars path').length") > 9


def test_hovering_tells_what_a_slice_is(
  chromium: browser.Browser, tuned_page: Tuned
) -> None:
  longest = """(() => {
    const bars = [...document.querySelectorAll('#whole .bars path')];
    const area = e => e.getBoundingClientRect().width;
    const bar = bars.reduce((a, b) => area(a) >= area(b) ? a : b);
    bar.scrollIntoView({block: 'center'});
    const place = bar.getBoundingClientRect();
    return [place.x + place.width / 2, place.y + place.height / 2];
  })()"""
  x, y = chromium.evaluate(longest)
  chromium.hover(x, y)
  hovered = "document.querySelector('#whole .hoverlayer .hovertext')"
  assert chromium.until(f"{hovered} !== null")
  text = chromium.evaluate(f"{hovered}.textContent")
  names = [
    label["name"]
    for picture in json.loads(tuned_page.parsed.scripts["pictures"])
    for label in picture["labels"]
  ]
  assert any(name in text for name in names), text
  assert " ms" in text


def test_zooming_in_draws_apart_what_was_drawn_together(
  chromium: browser.Browser,
) -> None:
  def of_range() -> float:
    begin, end = chromium.evaluate(
      "document.getElementById('whole').layout.xaxis.range"
    )
    return end - begin

  whole = of_range()
  button = "document.querySelector('[data-for=whole] button:nth-child(%d)')"
  chromium.evaluate(f"({button % 1}.click(), 1)")
  assert of_range() == pytest.approx(whole / 3)
  chromium.evaluate(f"({button % 5}.click(), 1)")
  assert of_range() == pytest.approx(whole)


@pytest.mark.parametrize("is_dark", [False, True])
def test_a_phone_shows_the_page_without_scrolling_sideways(
  chromium: browser.Browser, is_dark: bool
) -> None:
  with chromium.phone("#whole .xtick text", is_dark=is_dark):
    assert chromium.errors == []


def test_a_long_steps_page_is_small_and_opens_quickly(
  chromium: browser.Browser,
  tuned_page: Tuned,
  tmp_path: pathlib.Path,
) -> None:
  long_step = draw_long_step()
  after = dataclasses.replace(long_step, name="after")
  data = dataclasses.replace(
    report.read(tuned_page.folder), pictures=(long_step, after)
  )
  page = tmp_path / "long.html"
  rendering.write(data, page)
  assert page.stat().st_size < 10e6
  # Of the processor, which is what a busy machine does not change much.
  chromium.send("Performance.enable", timeDomain="threadTicks")
  chromium.open(page)
  assert (
    chromium.evaluate("document.querySelectorAll('.bars path').length") > 99
  )
  metrics = chromium.send("Performance.getMetrics")["metrics"]
  (task_s,) = (m["value"] for m in metrics if m["name"] == "TaskDuration")
  assert chromium.errors == []
  assert task_s < 3
