# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""The rendering of a report: one HTML file, with all that it shows inside.

plotly draws the figures; its script is a part of the page, so that a page needs
no network, now or in ten years.
"""

from __future__ import annotations

from collections.abc import Callable
import dataclasses
import json
import pathlib
from typing import Any

from lagom_xla import errors
from lagom_xla.costs import in_words
from lagom_xla.report.page import report

_FOLDER = pathlib.Path(__file__).parent


def check_can_render() -> None:
  """Checks that what draws pages is installed, before any work is done.

  Raises:
    OutputError: it is not.
  """
  try:
    import jinja2  # noqa: F401
    import plotly  # noqa: F401
  except ImportError as error:
    raise errors.OutputError(
      f"A report page needs {error.name}, which is not installed: pip install"
      " 'lagom_xla[report]'."
    ) from error


def render(data: report.Story) -> str:
  """A report as HTML.

  Raises:
    OutputError: what draws pages is not installed.
  """
  verdict = ""
  if data.after is not None and data.gain is not None:
    verdict = report.verdict(
      data.before.us,
      data.after.us if data.settings else None,
      (data.gain.low_us, data.gain.high_us),
      len(data.tried),
    )
  kinds = {
    kind
    for picture in data.pictures
    for stream in picture.streams
    for kind in stream.kind
  }
  return filled(
    _FOLDER,
    data=data,
    verdict=verdict,
    has_copies="copy" in kinds,
    has_folds="folded" in kinds,
    has_details=all(picture.detail_us for picture in data.pictures),
    pictures=script_json([dataclasses.asdict(p) for p in data.pictures]),
  )


def filled(folder: pathlib.Path, **values: object) -> str:
  """The page of a folder, page.html.j2, with its script and all else inside.

  Raises:
    OutputError: what draws pages is not installed.
  """
  check_can_render()
  import jinja2
  from plotly import offline

  environment = jinja2.Environment(
    autoescape=True,
    loader=jinja2.FileSystemLoader(folder),
    undefined=jinja2.StrictUndefined,
  )
  filters: dict[str, Callable[[Any], str]] = {
    "ms": lambda us: "-" if us is None else in_words.milliseconds(us),
    "between": lambda e: f"{in_words.ms_range(e.low_us, e.high_us)} ms",
    "gb": in_words.gigabytes,
    "short": in_words.short,
  }
  environment.filters |= filters
  return environment.get_template("page.html.j2").render(
    **values,
    css=(_FOLDER / "page.css").read_text(),
    script=(folder / "page.js").read_text(),
    plotly=offline.get_plotlyjs(),
  )


def write(data: report.Story, path: pathlib.Path) -> None:
  """Writes a report as an HTML file.

  Raises:
    OutputError: it cannot be written, or what draws pages is not installed.
  """
  save(render(data), path)


def save(text: str, path: pathlib.Path) -> None:
  """Writes a page.

  Raises:
    OutputError: it cannot be written.
  """
  try:
    path.write_text(text, encoding="utf-8")
  except OSError as error:
    raise errors.OutputError(
      f"The report {path} cannot be written: {error.strerror}."
    ) from error


def script_json(value: object) -> str:
  """JSON that ends no script."""
  return json.dumps(value, separators=(",", ":")).replace("<", "\\u003c")
