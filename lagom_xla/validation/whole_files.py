# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Files read to their end, and written whole or not at all.

A FIFO that nobody writes to and a device such as /dev/zero never end. A pipe of
the shell's, as in `lagom-xla inspect <(xzcat step.hlo.xz)`, does.
"""

from __future__ import annotations

import codecs
from collections.abc import Iterator
import contextlib
import errno
import gzip
import lzma
import pathlib
import stat
import tempfile
import zlib

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
    raise OSError(errno.EINVAL, "it is a FIFO or a device, not a file")
  return path.read_bytes()


class DamagedError(Exception):
  """Compressed data that is cut off, or was changed."""


def unpacked(data: bytes) -> bytes:
  """What is compressed by xz or gzip in data, or the data.

  Raises:
    DamagedError: it is cut off, or was changed.
  """
  try:
    if data.startswith(b"\xfd7zXZ"):
      return lzma.decompress(data)
    if data.startswith(b"\x1f\x8b"):
      return gzip.decompress(data)
  except (lzma.LZMAError, zlib.error, EOFError, OSError) as error:
    raise DamagedError(f"is damaged or truncated: {error}") from error
  return data


_BYTE_ORDER_MARKS = {
  codecs.BOM_UTF8: "utf-8-sig",
  codecs.BOM_UTF16_LE: "utf-16",
  codecs.BOM_UTF16_BE: "utf-16",
}


def unmarked(data: bytes) -> bytes:
  """Text as UTF-8, without the byte order mark that editors begin it with."""
  for mark, encoding in _BYTE_ORDER_MARKS.items():
    if data.startswith(mark):
      return data.decode(encoding, errors="replace").encode()
  return data


def check_can_make(place: pathlib.Path) -> None:
  """Makes a folder beside an absolute path, or above it, and takes it away.

  Permissions do not say it: root has them all, and file systems are read only.

  Raises:
    OSError: nothing can be made there.
  """
  above = next(it for it in place.parents if it.exists())
  with tempfile.TemporaryDirectory(prefix=f".{place.name}-", dir=above):
    pass


def write(path: pathlib.Path, content: bytes) -> None:
  """Writes a file whole or not at all, and makes its folder.

  A link stays; its target is replaced.

  Raises:
    OSError: it cannot be written, and is as it was.
  """
  place = path.resolve()
  with scratch(place) as folder:
    fresh = folder / place.name
    fresh.write_bytes(content)
    fresh.replace(place)


@contextlib.contextmanager
def scratch(place: pathlib.Path) -> Iterator[pathlib.Path]:
  """Makes a folder for what is moved to an absolute path once it is whole.

  It is on that path's file system, whose folder is made, and deleted at the
  end.

  Raises:
    OSError: nothing can be made there.
  """
  place.parent.mkdir(parents=True, exist_ok=True)
  with tempfile.TemporaryDirectory(
    prefix=f".{place.name}-", dir=place.parent
  ) as name:
    yield pathlib.Path(name)
