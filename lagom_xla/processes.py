# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""What a process of ours hands on to Pythons that it starts, and leaves behind.

A temporary folder is locked (`flock`) for as long as the process that made it
lives, or a fork of it, in whatever container. Its name says on which host:
between hosts that share a file system locks may not hold. One that is not
locked on its own host is left over, and whoever finds it deletes it.
"""

from __future__ import annotations

from collections.abc import Iterator
import contextlib
import fcntl
import glob
import os
import pathlib
import shutil
import sys
import tempfile


def python_path() -> str:
  """What PYTHONPATH has to be to find the modules that are found here.

  Without the working directory, and without what Python itself passes over: a
  program may have put a `pathlib.Path` in `sys.path`.
  """
  entries = [it for it in sys.path if isinstance(it, str) and it]
  return os.pathsep.join(entries)


def has_gpus() -> bool:
  """Whether JAX would look for NVIDIA GPUs, told without importing it.

  It does where device files show some, also in containers and on WSL, or where
  JAX_PLATFORMS asks for them.
  """
  files = ("/dev/nvidia[0-9]*", "/dev/nvidiactl", "/dev/dxg")
  platforms = os.environ.get("JAX_PLATFORMS", "").split(",")
  is_told_to = not {"cuda", "gpu"}.isdisjoint(platforms)
  return is_told_to or any(map(glob.glob, files))


# Nobody else deletes a folder of this name: it may not be locked yet.
_UNLOCKED = "lagom_xla_unlocked-"


class TemporaryFolder:
  """A temporary folder of this process.

  Where the file system has no locks, it stays if the process does not delete
  it.

  Attributes:
    path: where it is.

  Raises:
    OSError: it cannot be made.
  """

  def __init__(self) -> None:
    made = pathlib.Path(tempfile.mkdtemp(prefix=_UNLOCKED))
    self._lock: int | None = os.open(made, os.O_RDONLY)
    name = f"{_of_host()}-{made.name.removeprefix(_UNLOCKED)}"
    try:
      _lock(self._lock)
      self.path = made.rename(made.with_name(name))
    except OSError:
      self.path = made

  def delete(self) -> None:
    """Deletes it with all that is in it, if that has not been done."""
    lock, self._lock = self._lock, None
    if lock is not None:
      shutil.rmtree(self.path, ignore_errors=True)
      os.close(lock)


@contextlib.contextmanager
def temporary_folder() -> Iterator[pathlib.Path]:
  """Makes a folder that is deleted at the end of the block.

  Raises:
    OSError: it cannot be made.
  """
  made = TemporaryFolder()
  try:
    yield made.path
  finally:
    made.delete()


def sweep() -> None:
  """Deletes what ended processes of this user left on this host.

  What cannot be read or deleted stays.
  """
  with contextlib.suppress(OSError):
    for path in pathlib.Path(tempfile.gettempdir()).iterdir():
      if path.name.rpartition("-")[0] == _of_host():
        _delete_if_left(path)


def _delete_if_left(path: pathlib.Path) -> None:
  with contextlib.suppress(OSError):
    opened = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
      if os.fstat(opened).st_uid == os.getuid():
        _lock(opened)
        shutil.rmtree(path, ignore_errors=True)
    finally:
      os.close(opened)


def _lock(opened: int) -> None:
  """Locks an open folder; raises an OSError where somebody has, or none can."""
  fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)


def _of_host() -> str:
  """What names of folders begin with that were made on this host."""
  return f"lagom_xla-{os.uname().nodename}"
