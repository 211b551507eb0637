# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Report pages for tests, and their contents."""

from __future__ import annotations

from collections.abc import Mapping
import dataclasses
from html import parser
import json
import pathlib
from typing import Any
from unittest import mock

from commands import CLUSTER
from commands import run
from commands import write_steps
from lagom_xla.costs import uncertainty


class Page(parser.HTMLParser):
  """The text of a page by the section's id, its scripts, and addresses."""

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
    """The parsed page."""
    return Page(self.page.read_text())


def tune(place: pathlib.Path) -> Tuned:
  """Tunes a small step, with its page and its trace, in a folder.

  Assumes that the cost model is right, so that a small step gets a plan.
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
