# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""The cache: what was compiled before, in files that may be deleted any time.

A file holds one compile. Its name is the digest of the job, versions and all,
so that nothing in it grows old; its time is when it was last of use, and the
oldest go when the folder is full. Files are written whole or not at all. The
folder may be one that the user named and has other files in: those are left
alone.
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
  """Notes that a file is of use, if the folder lets it."""
  with contextlib.suppress(OSError):
    os.utime(path)


def make_room(folder: pathlib.Path, *, suffix: str, max_bytes: int) -> None:
  """Deletes what was of no use for longest.

  Files with that suffix may have so many bytes together; what the folder does
  not let go of stays.
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
# No peak is known; it is stored as a number like all others.
_NO_PEAK = -1
_PEAK_BYTES = 8


class Cache:
  """A folder of compiles."""

  def __init__(self, folder: pathlib.Path, *, max_bytes: int = _MAX_BYTES):
    self._folder = folder
    self._max_bytes = max_bytes

  def get(self, digest: str) -> job_lib.Result | None:
    """A compile from before; None where there is none, or no whole one."""
    path = self._path(digest)
    try:
      stored = path.read_bytes()
    except OSError:
      return None
    note_use(path)
    return _decode(stored)

  def put(self, digest: str, result: job_lib.Result) -> None:
    """Keeps a compile, unless the disk does not want it.

    One without a module is kept, too: that there is none was found out.
    """
    with contextlib.suppress(OSError):
      whole_files.write(self._path(digest), _encode(result))
      make_room(self._folder, suffix=_SUFFIX, max_bytes=self._max_bytes)

  def _path(self, digest: str) -> pathlib.Path:
    return self._folder / f"{digest}{_SUFFIX}"


def of_user() -> Cache | None:
  """The user's cache; None where it is off."""
  folder = folder_of_user()
  return None if folder is None else Cache(folder)


def folder_of_user() -> pathlib.Path | None:
  """Where LAGOM_XLA_CACHE says; None where it says "off".

  Without, where the XDG Base Directory Specification has caches; None where the
  user has no home, as in some containers.
  """
  named = os.environ.get(_VARIABLE)
  if named:
    # Absolute, as a step may change the working directory.
    return None if named == _OFF else pathlib.Path(named).absolute()
  base = os.environ.get("XDG_CACHE_HOME", "")
  # "All paths must be absolute"; others are to be ignored.
  root = base if os.path.isabs(base) else os.path.expanduser("~/.cache")
  if not os.path.isabs(root):
    return None
  return pathlib.Path(root) / "lagom_xla" / "compiles"


def _encode(result: job_lib.Result) -> bytes:
  peak = _NO_PEAK if result.peak_bytes is None else result.peak_bytes
  stored = peak.to_bytes(_PEAK_BYTES, "little", signed=True)
  if result.module is not None:
    # Level 1, as whoever wants the next compile waits for this.
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
