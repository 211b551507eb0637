# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""The site of these pages, as Sphinx builds it: `make docs`."""

from __future__ import annotations

import pathlib
import sys
from typing import Any

import lagom_xla

# Where the extensions are.
sys.path.insert(0, str(pathlib.Path(__file__).parent / "site"))

project = "lagom_xla"
copyright = "2026, The lagom_xla Authors"
release = lagom_xla.__version__

extensions = [
  "myst_parser",
  "sphinx.ext.autodoc",
  "sphinx.ext.napoleon",
  "repository_links",
  "schema_tables",
]
# No page may be called search.md, as Sphinx makes one of that name.
exclude_patterns = ["site"]
# What docstrings have in `single quotes`.
default_role = "code"

myst_heading_anchors = 3
autodoc_member_order = "bysource"
autodoc_typehints = "none"
napoleon_numpy_docstring = False

# Furo fetches nothing from the network when a page is read.
html_theme = "furo"
html_title = f"lagom_xla {release}"
html_show_sphinx = False
html_copy_source = False

# Pages that have their places in the table of contents before they are written.
_TO_COME = ("explain", "whatif")


def setup(app: Any) -> None:
  """Drops pages that are not written yet from the tables of contents."""
  app.connect("source-read", _drop_missing)


def _drop_missing(app: Any, docname: str, source: list[str]) -> None:
  if docname == "index":
    for page in _TO_COME:
      if page not in app.env.found_docs:
        source[0] = source[0].replace(f"\n{page}\n", "\n")
