# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Report pages of tests, and what is in them."""

from __future__ import annotations

from collections.abc import Mapping
import dataclasses
import functools
from html import parser
import json
import pathlib
from typing import Any
from unittest import mock

from commands import CLUSTER
from commands import run
from commands import write_steps
from lagom_xla.costs import uncertainty
from lagom_xla.costs.replay import recorder
from lagom_xla.costs.replay import timeline
from lagom_xla.report.page import contents
from lagom_xla.report.page import report as report_lib

NUM_KERNELS = 60_000


class Page(parser.HTMLParser):
  """Text by the id of the section around it, scripts, and addresses."""

  def __init__(self, html: str):
    super().__init__()
    self.text: dict[str, str] = {}
    self.scripts: dict[str, str] = {}
    self.addresses: list[str] = []
    self.times_us: list[float] = []
    self._section = self._script = ""
    self.feed(html)

  def handle_starttag(
    self, tag: str, attrs: list[tuple[str, str | None]]
  ) -> None:
    given = dict(attrs)
    self.addresses += [v for n, v in attrs if n in ("src", "href") and v]
    if tag in ("header", "section"):
      self._section = given.get("id") or ""
    if tag == "script":
      self._script = given.get("id") or "code"
    if "data-us" in given:
      self.times_us.append(float(given["data-us"] or "nan"))

  def handle_endtag(self, tag: str) -> None:
    if tag == "script":
      self._script = ""

  def handle_data(self, data: str) -> None:
    if self._script:
      self.scripts[self._script] = self.scripts.get(self._script, "") + data
    else:
      words = self.text.get(self._section, "") + data
      self.text[self._section] = " ".join(words.split()) + " "


@dataclasses.dataclass(frozen=True)
class Tuned:
  report: Mapping[str, Any]
  folder: pathlib.Path
  page: pathlib.Path
  trace: pathlib.Path

  @property
  def parsed(self) -> Page:
    """The page, read."""
    return Page(self.page.read_text())


@functools.cache
def draw_long_step() -> report_lib.Picture:
  """A step of 60,000 kernels, as a module of 170,000 instructions has them."""
  slices, now_us = [], 0.0
  for index in range(NUM_KERNELS):
    time_us = 5.0 if index % 7 else 300.0
    slices.append(
      recorder.Slice(
        stream=recorder.COMPUTE,
        kind="kernel",
        name=f"loop_multiply_convert_fusion.{index}",
        begin_us=now_us,
        end_us=now_us + time_us,
        lone_us=time_us - 1.0,
        lost_us=(("all-gather-start.1", 1.0),),
      )
    )
    now_us += time_us
  recorded = recorder.Recording(step_time_us=now_us, slices=tuple(slices))
  replayed = timeline.Timeline(
    step_time_us=now_us,
    kernel_us=now_us - NUM_KERNELS,
    collective_us=0.0,
    exposed_us={},
    slowdown_us={},
  )
  return contents.picture("before", recorded, replayed, {})


def tune(place: pathlib.Path) -> Tuned:
  """Tunes a small step, with its page and its trace, in a folder.

  With the cost model taken to be right, so that a small step has a plan.
  """
  step = write_steps(place)
  folder, page, trace = (place / n for n in ("plan", "r.html", "t.json.gz"))
  with mock.patch.object(uncertainty, "scenarios", return_value=()):
    outcome = run(
      *("tune", step, CLUSTER, "--format=json", f"--out={folder}"),
      *(f"--report={page}", f"--trace={trace}"),
    )
  assert outcome.status == 0, outcome.err
  return Tuned(json.loads(outcome.out), folder, page, trace)
