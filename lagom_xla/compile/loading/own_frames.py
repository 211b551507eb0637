# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Frames of our own on the stack while a program is lowered, left out of it.

JAX writes the stack of each operation into the program, from the operation out
to whoever had it lowered. Where that is a command of ours, the same program
would be another one to the next command, and be compiled anew.
"""

from __future__ import annotations

import functools
import os
import pathlib

from absl import app
from jax.extend import source_info_util

_PACKAGE = pathlib.Path(__file__).parents[2]


@functools.cache
def leave_out() -> None:
  """Has JAX leave them out of what it lowers from now on."""
  for path in (f"{_PACKAGE}{os.sep}", app.__file__):
    source_info_util.register_exclusion(path)
