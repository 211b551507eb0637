# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""The program as a user has to type it, so that a command can be pasted."""

from __future__ import annotations

import pathlib
import shlex
import shutil
import sys
from typing import Final

_NAME: Final = "lagom-xla"


def name() -> str:
  """How this user starts lagom-xla: by its path where no PATH has it."""
  started = pathlib.PurePath(sys.argv[0])
  if started.name != _NAME or shutil.which(_NAME):
    return _NAME
  return shlex.quote(str(started))
