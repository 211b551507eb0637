# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Places for results: tried before there are any, then filled in one step."""

from __future__ import annotations

from collections.abc import Iterator
import contextlib
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
  """Makes a folder for what is moved to a place once it is whole.

  It is on the place's file system, and deleted at the end.

  Args:
    place: an absolute path; the folder that it is in is made.

  Raises:
    OSError: nothing can be made there.
  """
  place.parent.mkdir(parents=True, exist_ok=True)
  with tempfile.TemporaryDirectory(
    prefix=f".{place.name}-", dir=place.parent
  ) as name:
    yield pathlib.Path(name)
