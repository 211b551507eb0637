# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""What a step is compared with: all defaults, or what runs with XLA_FLAGS."""

from __future__ import annotations

from lagom_xla.flags import environment


def words() -> str:
  """What to call it."""
  return "what runs today" if environment.is_set() else "all defaults"


def note() -> str:
  """What XLA_FLAGS makes of it, in a sentence; "" where it is not set."""
  if not environment.is_set():
    return ""
  return f"What runs today is XLA's defaults with {environment.xla_flags()}"
