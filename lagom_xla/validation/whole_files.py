# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Reads whole files, and writes files atomically.

Reading refuses FIFOs and devices: a FIFO without a writer, or a device such as
/dev/zero, never ends. It accepts the shell's pipes, as in `lagom-xla inspect
<(xzcat step.hlo.xz)`.
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

# Path prefixes of the shell's pipes and of the standard streams.
_OPEN_FILES = ("/dev/fd/", "/dev/stdin", "/proc/self/fd/")


def read_bytes(path: pathlib.Path) -> bytes:
  """Reads a file or a shell's pipe.

  Raises:
    OSError: it cannot be read, or is neither.
  """
  mode = path.stat().st_mode
  is_open = str(path).startswith(_OPEN_FILES)
  if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode) or is_open):
    raise OSError(errno.EINVAL, "it is a FIFO or a device, not a file")
  return path.read_bytes()


class DamagedError(Exception):
  """Compressed data is truncated or corrupted."""


def unpacked(data: bytes) -> bytes:
  """Decompresses xz or gzip data; returns other data as it is.

  Raises:
    DamagedError: the data is truncated or corrupted.
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
  """Converts text with a byte order mark to UTF-8 without one."""
  for mark, encoding in _BYTE_ORDER_MARKS.items():
    if data.startswith(mark):
      return data.decode(encoding, errors="replace").encode()
  return data


def check_can_make(place: pathlib.Path) -> None:
  """Checks that an absolute path can be created.

  Creates and deletes a folder in its closest existing parent. Permission bits
  would not do: root has all of them, and a file system may be read-only.

  Raises:
    OSError: nothing can be created there.
  """
  above = next(it for it in place.parents if it.exists())
  with tempfile.TemporaryDirectory(prefix=f".{place.name}-", dir=above):
    pass


def write(path: pathlib.Path, content: bytes) -> None:
  """Writes a file atomically, and creates its folder if needed.

  A symbolic link stays; its target is replaced. Pipes and devices such as
  /dev/stdout are written to.

  Raises:
    OSError: the file cannot be written, and is unchanged.
  """
  place = path.resolve()
  if path.exists() and not path.is_file():
    path.write_bytes(content)
    return
  with scratch(place) as folder:
    fresh = folder / place.name
    fresh.write_bytes(content)
    fresh.replace(place)


@contextlib.contextmanager
def scratch(place: pathlib.Path) -> Iterator[pathlib.Path]:
  """Yields a temporary folder next to an absolute path.

  Complete files can be moved to that path atomically, as both are on one file
  system. Creates the path's folder if needed; deletes the temporary one at the
  end of the block.

  Raises:
    OSError: nothing can be created there.
  """
  place.parent.mkdir(parents=True, exist_ok=True)
  with tempfile.TemporaryDirectory(
    prefix=f".{place.name}-", dir=place.parent
  ) as name:
    yield pathlib.Path(name)
