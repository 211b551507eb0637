# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""The PYTHONPATH of child processes, and temporary folders.

A temporary folder is locked (`flock`) while the process that made it, or a fork
of it, lives, in any container. Its name contains the host, because locks may
not hold between hosts that share a file system. An unlocked folder on its own
host is left over, and any process that finds it deletes it.
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
  """The PYTHONPATH with which a child finds the modules of this process.

  It leaves out the working directory, and entries that Python itself ignores: a
  program may have put a `pathlib.Path` in `sys.path`.
  """
  entries = [it for it in sys.path if isinstance(it, str) and it]
  return os.pathsep.join(entries)


def has_gpus() -> bool:
  """Whether JAX would look for NVIDIA GPUs; does not import it.

  It does if there are device files, also in containers and on WSL, or if
  JAX_PLATFORMS asks for GPUs.
  """
  files = ("/dev/nvidia[0-9]*", "/dev/nvidiactl", "/dev/dxg")
  platforms = os.environ.get("JAX_PLATFORMS", "").split(",")
  is_told_to = not {"cuda", "gpu"}.isdisjoint(platforms)
  return is_told_to or any(map(glob.glob, files))


# Other processes leave a folder of this name alone: it may not be locked yet.
_UNLOCKED = "lagom_xla_unlocked-"


class TemporaryFolder:
  """A temporary folder of this process.

  If the file system has no locks, the folder stays unless the process deletes
  it.

  Attributes:
    path: its path.

  Raises:
    OSError: the folder cannot be made.
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
    """Deletes the folder and everything in it, unless that was done."""
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
  """Deletes folders that ended processes of this user left on this host.

  Folders that cannot be read or deleted stay.
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
  """Locks an open folder; raises OSError if it is locked or cannot be."""
  fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)


def _of_host() -> str:
  """The beginning of the names of folders made on this host."""
  return f"lagom_xla-{os.uname().nodename}"
