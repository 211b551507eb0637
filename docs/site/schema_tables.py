# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Tables of the fields of a JSON schema, as the command prints them.

    ```{schema} plan
    ```

is what `lagom-xla schema plan --format=markdown` prints.
"""

from __future__ import annotations

import subprocess
import sys
from typing import Any

from docutils import nodes
from docutils import statemachine
from sphinx.util import docutils


class SchemaTables(docutils.SphinxDirective):
  """The directive."""

  has_content = True

  def run(self) -> list[nodes.Node]:
    """Runs the command, and parses what it prints."""
    (name,) = (line.strip() for line in self.content)
    done = subprocess.run(
      (sys.executable, "-m", "lagom_xla", "schema", name, "--format=markdown"),
      capture_output=True,
      text=True,
      check=True,
    )
    place = nodes.container()
    lines = done.stdout.splitlines()
    source = f"lagom-xla schema {name}"
    self.state.nested_parse(
      statemachine.StringList(lines, source), self.content_offset, place
    )
    return [place]


def setup(app: Any) -> dict[str, bool]:
  """Registers the extension with Sphinx."""
  app.add_directive("schema", SchemaTables)
  return {"parallel_read_safe": True}
