# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""What commands print: tables of the fields of a JSON schema, and text.

    ```{schema} plan
    ```

is what `lagom-xla schema plan --format=markdown` prints, and

    ```{printed} knobs
    ```

what `lagom-xla knobs` does.
"""

from __future__ import annotations

import subprocess
import sys
from typing import Any

from docutils import nodes
from docutils import statemachine
from sphinx.util import docutils


def _printed(*words: str) -> str:
  command = (sys.executable, "-m", "lagom_xla", *words)
  done = subprocess.run(command, capture_output=True, text=True, check=True)
  return done.stdout


class SchemaTables(docutils.SphinxDirective):
  """The directive `schema`."""

  has_content = True

  def run(self) -> list[nodes.Node]:
    """Runs the command, and parses what it prints."""
    (name,) = (line.strip() for line in self.content)
    place = nodes.container()
    lines = _printed("schema", name, "--format=markdown").splitlines()
    source = f"lagom-xla schema {name}"
    self.state.nested_parse(
      statemachine.StringList(lines, source), self.content_offset, place
    )
    return [place]


class Printed(docutils.SphinxDirective):
  """The directive `printed`."""

  has_content = True

  def run(self) -> list[nodes.Node]:
    """Runs the command, and shows what it prints."""
    text = _printed(*" ".join(self.content).split())
    return [nodes.literal_block(text, text, language="text")]


def setup(app: Any) -> dict[str, bool]:
  """Registers the extension with Sphinx."""
  app.add_directive("schema", SchemaTables)
  app.add_directive("printed", Printed)
  return {"parallel_read_safe": True}
