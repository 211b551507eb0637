# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""The command line: `lagom-xla COMMAND`, a module of commands/ for each.

Imports take a while, and Ctrl-C may come in any of them. So nothing is imported
here before it has its answer.
"""

from __future__ import annotations


def run() -> None:
  """The console script."""
  from lagom_xla.cli import ending

  ending.at_once()
  from lagom_xla.cli import main

  try:
    main.run()
  except SystemExit as end:
    ending.quickly(end.code)
    raise
