# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""The compile cache: files that may be deleted at any time.

A file holds one compile. Its name is the digest of the job, including versions,
so entries never become stale. Its time is that of its last use, and the least
recently used are deleted when the folder is full. Files are written atomically.
Other files in the folder are left alone.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import pathlib
import zlib

from lagom_xla.compile import job as job_lib
from lagom_xla.validation import whole_files


def note_use(path: pathlib.Path) -> None:
  """Notes a use of a file, if the folder is writable."""
  with contextlib.suppress(OSError):
    os.utime(path)


def make_room(folder: pathlib.Path, *, suffix: str, max_bytes: int) -> None:
  """Deletes the least recently used files with a suffix beyond `max_bytes`.

  Files that cannot be deleted stay.
  """
  found = []
  for path in folder.glob(f"*{suffix}"):
    with contextlib.suppress(OSError):
      stat = path.stat()
      found.append((stat.st_mtime_ns, stat.st_size, path))
  left_bytes = max_bytes
  for _, num_bytes, path in sorted(found, reverse=True):
    left_bytes -= num_bytes
    if left_bytes < 0:
      with contextlib.suppress(OSError):
        path.unlink()


# "off", or the folder.
_VARIABLE = "LAGOM_XLA_CACHE"
_OFF = "off"
_MAX_BYTES = 2 * 2**30
_SUFFIX = ".compiled"
_CHECKSUM_BYTES = hashlib.sha256().digest_size
# Stored for an unknown peak.
_NO_PEAK = -1
_PEAK_BYTES = 8


class Cache:
  """A folder of compiles."""

  def __init__(self, folder: pathlib.Path, *, max_bytes: int = _MAX_BYTES):
    self._folder = folder
    self._max_bytes = max_bytes

  def get(self, digest: str) -> job_lib.Result | None:
    """A cached compile; None if there is none or it is damaged."""
    path = self._path(digest)
    try:
      stored = path.read_bytes()
    except OSError:
      return None
    note_use(path)
    return _decode(stored)

  def put(self, digest: str, result: job_lib.Result) -> None:
    """Saves a compile, if the folder is writable.

    One without a module is saved, too, so that it is not tried again.
    """
    with contextlib.suppress(OSError):
      whole_files.write(self._path(digest), _encode(result))
      make_room(self._folder, suffix=_SUFFIX, max_bytes=self._max_bytes)

  def _path(self, digest: str) -> pathlib.Path:
    return self._folder / f"{digest}{_SUFFIX}"


def of_user() -> Cache | None:
  """The user's cache; None if it is off."""
  folder = folder_of_user()
  return None if folder is None else Cache(folder)


def folder_of_user() -> pathlib.Path | None:
  """The folder in LAGOM_XLA_CACHE; None if that is "off".

  Without it, the cache folder of the XDG Base Directory Specification; None if
  the user has no home, as in some containers.
  """
  named = os.environ.get(_VARIABLE)
  if named:
    # Absolute, as a step may change the working directory.
    return None if named == _OFF else pathlib.Path(named).absolute()
  base = os.environ.get("XDG_CACHE_HOME", "")
  # "All paths must be absolute"; others must be ignored.
  root = base if os.path.isabs(base) else os.path.expanduser("~/.cache")
  if not os.path.isabs(root):
    return None
  return pathlib.Path(root) / "lagom_xla" / "compiles"


def _encode(result: job_lib.Result) -> bytes:
  peak = _NO_PEAK if result.peak_bytes is None else result.peak_bytes
  stored = peak.to_bytes(_PEAK_BYTES, "little", signed=True)
  if result.module is not None:
    # Level 1, as the next compile waits for this.
    stored += zlib.compress(result.module, 1)
  return hashlib.sha256(stored).digest() + stored


def _decode(stored: bytes) -> job_lib.Result | None:
  checksum, stored = stored[:_CHECKSUM_BYTES], stored[_CHECKSUM_BYTES:]
  if hashlib.sha256(stored).digest() != checksum:
    return None
  peak = int.from_bytes(stored[:_PEAK_BYTES], "little", signed=True)
  module = stored[_PEAK_BYTES:]
  return job_lib.Result(
    module=zlib.decompress(module) if module else None,
    peak_bytes=None if peak == _NO_PEAK else peak,
  )
