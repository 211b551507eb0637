# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""The site of these pages, as Sphinx builds it: `make docs`."""

from __future__ import annotations

import pathlib
import sys

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
  "printed",
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
