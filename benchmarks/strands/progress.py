# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Progress, on stderr: stdout is the tables'."""

from __future__ import annotations

import sys


def say(what: str) -> None:
  """A line of progress."""
  print(f"strands: {what}", file=sys.stderr, flush=True)
