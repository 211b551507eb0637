# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Links out of docs/ to files of the repository, which a site does not have.

On the site they are the files' names: pages stay readable where they are read
in the repository, and no link of the site leads nowhere.
"""

from __future__ import annotations

import re
from typing import Any

_LINK = re.compile(r"(?<!!)\[([^\]]*)\]\(\.\./([^)]*)\)")


def setup(app: Any) -> dict[str, bool]:
  """Registers the extension with Sphinx."""
  app.connect("source-read", _replace)
  return {"parallel_read_safe": True}


def _replace(app: Any, docname: str, source: list[str]) -> None:
  del app, docname
  source[0] = _LINK.sub(_name, source[0])


def _name(match: re.Match[str]) -> str:
  text, path = match.groups()
  name = f"`{path}`"
  return name if text.strip("`") in path else f"{text} ({name})"
