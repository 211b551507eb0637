# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""The bytes of a file that a user names, where reading them comes to an end.

A FIFO that nobody writes to and a device such as /dev/zero never end. A pipe of
the shell's, as in `lagom-xla inspect <(xzcat step.hlo.xz)`, does.
"""

from __future__ import annotations

import errno
import pathlib
import stat

# What a shell names its pipes, and the standard streams, by.
_OPEN_FILES = ("/dev/fd/", "/dev/stdin", "/proc/self/fd/")


def read_bytes(path: pathlib.Path) -> bytes:
  """All bytes of a file.

  Raises:
    OSError: it cannot be read, or is neither a file nor a pipe of the shell's.
  """
  mode = path.stat().st_mode
  is_open = str(path).startswith(_OPEN_FILES)
  if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode) or is_open):
    raise OSError(errno.EINVAL, "it is a FIFO or a device; name a file")
  return path.read_bytes()
