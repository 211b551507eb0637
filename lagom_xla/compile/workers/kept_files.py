# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Files that a cache keeps: written whole or not at all, the oldest deleted.

A file's time is when it was last of use. The folder may be one that the user
named and has other files in: those are left alone.
"""

from __future__ import annotations

import contextlib
import os
import pathlib
import tempfile
import time

_UNFINISHED = ".unfinished"
# A file that is still written after this long was left by a process that ended.
_LONGEST_WRITE_S = 3600


def write(path: pathlib.Path, content: bytes) -> None:
  """Writes a file and makes its folder.

  Raises:
    OSError: it cannot be written, and is as it was.
  """
  path.parent.mkdir(parents=True, exist_ok=True)
  handle, name = tempfile.mkstemp(_UNFINISHED, dir=path.parent)
  try:
    with os.fdopen(handle, "wb") as file:
      file.write(content)
    os.replace(name, path)
  except BaseException:
    with contextlib.suppress(OSError):
      os.unlink(name)
    raise


def note_use(path: pathlib.Path) -> None:
  """Notes that a file is of use, if the folder lets it."""
  with contextlib.suppress(OSError):
    os.utime(path)


def make_room(folder: pathlib.Path, *, suffix: str, max_bytes: int) -> None:
  """Deletes what was of no use for longest, and what was left unfinished.

  What the folder does not let go of stays.

  Args:
    folder: where the files are.
    suffix: of the names of those that are kept.
    max_bytes: that they may have together.

  Raises:
    OSError: the folder cannot be listed.
  """
  found = []
  for path in folder.iterdir():
    with contextlib.suppress(OSError):
      stat = path.stat()
      if path.name.endswith(suffix):
        found.append((stat.st_mtime_ns, stat.st_size, path))
      elif path.name.endswith(_UNFINISHED):
        if stat.st_mtime < time.time() - _LONGEST_WRITE_S:
          path.unlink()
  left_bytes = max_bytes
  for _, num_bytes, path in sorted(found, reverse=True):
    left_bytes -= num_bytes
    if left_bytes < 0:
      with contextlib.suppress(OSError):
        path.unlink()
