# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Module path of this process, for a Python that it starts."""

from __future__ import annotations

import os
import sys


def in_environment() -> str:
  """What PYTHONPATH has to be to find the modules that are found here.

  Without the working directory, and without what Python itself passes over: a
  program may have put a `pathlib.Path` in `sys.path`.
  """
  entries = [it for it in sys.path if isinstance(it, str) and it]
  return os.pathsep.join(entries)
