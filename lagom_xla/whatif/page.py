# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""The page of a comparison: curves from one node to many, and all figures.

It is made as the page of a step is (report/page): one file that needs no
network, readable on a phone and in dark mode.
"""

from __future__ import annotations

import pathlib

from lagom_xla.costs import in_words
from lagom_xla.report.page import rendering
from lagom_xla.whatif import comparison as comparison_lib
from lagom_xla.whatif import curves
from lagom_xla.whatif import findings as findings_lib
from lagom_xla.whatif import table as table_lib

_FOLDER = pathlib.Path(__file__).parent


def render(comparison: comparison_lib.Comparison) -> str:
  """A comparison as HTML.

  Raises:
    OutputError: what draws pages is not installed.
  """
  rendering.check_can_render()
  figures = curves.figures(comparison)
  return rendering.filled(
    _FOLDER,
    {
      "ms": in_words.milliseconds,
      "between": rendering.between,
      "gb": in_words.gigabytes,
    },
    comparison=comparison,
    figures=figures,
    drawn=rendering.script_json(figures),
    throughput=table_lib.throughput,
    network_gain=findings_lib.network_gain,
  )


def write(comparison: comparison_lib.Comparison, path: pathlib.Path) -> None:
  """Writes a comparison as an HTML file.

  Raises:
    OutputError: it cannot be written, or what draws pages is not installed.
  """
  rendering.save(render(comparison), path)
