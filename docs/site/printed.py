# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""What commands print: tables of the fields of a JSON schema, and text.

    ```{schema}
    lagom-xla schema plan
    ```

is the command and what it prints with --format=markdown, and

    ```{printed}
    lagom-xla knobs
    ```

what `lagom-xla knobs` prints. GitHub, which knows no directives, shows the
commands.
"""

from __future__ import annotations

from collections.abc import Iterable
import subprocess
import sys
from typing import Any

from docutils import nodes
from docutils import statemachine
from sphinx.util import docutils


def _printed(content: Iterable[str], *more: str) -> str:
  """The output of the one command in a block."""
  program, *words = " ".join(content).split()
  if program != "lagom-xla":
    raise ValueError(f"{program} is not lagom-xla")
  command = (sys.executable, "-m", "lagom_xla", *words, *more)
  done = subprocess.run(command, capture_output=True, text=True, check=True)
  return done.stdout


class SchemaTables(docutils.SphinxDirective):
  """The directive `schema`."""

  has_content = True

  def run(self) -> list[nodes.Node]:
    """Shows the command, runs it, and parses what it prints."""
    place = nodes.container()
    lines = _printed(self.content, "--format=markdown").splitlines()
    (source,) = self.content
    self.state.nested_parse(
      statemachine.StringList(lines, source), self.content_offset, place
    )
    return [nodes.literal_block(source, source, language="text"), place]


class Printed(docutils.SphinxDirective):
  """The directive `printed`."""

  has_content = True

  def run(self) -> list[nodes.Node]:
    """Runs the command, and shows what it prints."""
    text = _printed(self.content)
    return [nodes.literal_block(text, text, language="text")]


def setup(app: Any) -> dict[str, bool]:
  """Registers the extension with Sphinx."""
  app.add_directive("schema", SchemaTables)
  app.add_directive("printed", Printed)
  return {"parallel_read_safe": True}
