# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""The place of an operation, as a user knows it."""

from __future__ import annotations

import re

from jaxlib.mlir import ir

_SOURCE_LINE = re.compile(r'"([^"]+\.py)":(\d+)')
_NAME = re.compile(r'^loc\("([^"]+)"')


def of_operation(operation: ir.Operation) -> str:
  """The source line of an operation, or its name where none is known.

  JAX writes the innermost line of the user's code first.
  """
  location = str(operation.location)
  line = _SOURCE_LINE.search(location)
  if line is not None:
    return f"{line[1].rpartition('/')[2]}:{line[2]}"
  name = _NAME.match(location)
  return name[1] if name is not None else f"a {operation.name}"
