# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Board on which the processes of a job post entries, each once for all time.

Whoever waits too long for an entry posts what is to be read in its place, so
that whoever comes later reads the same: no two processes ever read different
entries, and none waits longer than its own time-out. A job of one process has a
board of its own, in memory.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
import threading
from typing import Protocol

from lagom_xla.compile import _jax_store
from lagom_xla.live.job import agreement


class Board(Protocol):
  """Where the members of a job post entries.

  Attributes:
    process_id: This process.
    members: The processes that read and post here, in order.
  """

  process_id: int
  members: tuple[int, ...]

  def post(self, name: str, value: bytes) -> bytes:
    """Posts an entry, and returns what stands: this, or what was there before.

    Raises:
      ProcessesError: The processes cannot reach each other.
    """
    ...

  def wait(self, name: str, *, timeout_s: float, otherwise: bytes) -> bytes:
    """Waits for an entry; posts `otherwise` where it does not come in time.

    Raises:
      ProcessesError: The processes cannot reach each other.
    """
    ...

  def entries(self, folder: str) -> Mapping[str, bytes]:
    """Entries whose names begin with `folder`/, by the rest of their names.

    Raises:
      ProcessesError: The processes cannot reach each other.
    """
    ...


def is_first(board: Board) -> bool:
  """Whether this process is the one that decides for the others."""
  return board.process_id == board.members[0]


class _Shared:
  """A board in the store of JAX's distributed client."""

  def __init__(
    self, store: _jax_store.Store, folder: str, members: Iterable[int]
  ):
    self.process_id = store.process_id
    self.members = tuple(sorted(members))
    self._store = store
    self._folder = folder

  def post(self, name: str, value: bytes) -> bytes:
    if self._store.put(self._key(name), value):
      return value
    return self._standing(name)

  def wait(self, name: str, *, timeout_s: float, otherwise: bytes) -> bytes:
    found = self._store.get(self._key(name), timeout_s=timeout_s)
    return self.post(name, otherwise) if found is None else found

  def entries(self, folder: str) -> Mapping[str, bytes]:
    return self._store.in_folder(self._key(folder))

  def _standing(self, name: str) -> bytes:
    found = None
    while found is None:  # It is there: it could not be set.
      found = self._store.get(self._key(name), timeout_s=1.0)
    return found

  def _key(self, name: str) -> str:
    return f"{self._folder}/{name}"


class _Alone:
  """A board of one process."""

  def __init__(self, process_id: int):
    self.process_id = process_id
    self.members: tuple[int, ...] = (process_id,)
    self._entries: dict[str, bytes] = {}

  def post(self, name: str, value: bytes) -> bytes:
    return self._entries.setdefault(name, value)

  def wait(self, name: str, *, timeout_s: float, otherwise: bytes) -> bytes:
    del timeout_s  # Nobody else would post it.
    return self.post(name, otherwise)

  def entries(self, folder: str) -> Mapping[str, bytes]:
    start = f"{folder}/"
    return {
      name.removeprefix(start): value
      for name, value in list(self._entries.items())
      if name.startswith(start)
    }


_num_boards: dict[tuple[_jax_store.Store, str], int] = {}
_lock = threading.Lock()


def next_board(name: str, members: Iterable[int]) -> Board:
  """The next board with a name and members; all members count them alike."""
  store = _jax_store.of_job()
  members = tuple(members)
  if store is None or len(members) < 2:
    return _Alone(0 if store is None else store.process_id)
  folder = f"lagom_xla/board/{name}/{agreement.in_words(members)}"
  with _lock:
    number = _num_boards[store, folder] = (
      _num_boards.get((store, folder), 0) + 1
    )
  return _Shared(store, f"{folder}/{number}", members)
