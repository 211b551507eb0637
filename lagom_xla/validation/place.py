# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Places for results, tried before there are any to write."""

from __future__ import annotations

import pathlib
import tempfile


def check_can_make(place: pathlib.Path) -> None:
  """Makes a folder beside a place, or above it, and takes it away again.

  Permissions do not say it: root has them all, and file systems are read only.

  Args:
    place: an absolute path.

  Raises:
    OSError: nothing can be made there.
  """
  above = next(it for it in place.parents if it.exists())
  with tempfile.TemporaryDirectory(prefix=f".{place.name}-", dir=above):
    pass
