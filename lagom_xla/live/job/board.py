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

from lagom_xla.jax_internals import store as store_lib
from lagom_xla.live.job import agreement
from lagom_xla.live.job import touch


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

  def read(self, name: str, *, timeout_s: float) -> bytes | None:
    """Waits for an entry; None where it does not come in time.

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


def wait(
  board: Board, name: str, *, timeout_s: float, otherwise: bytes
) -> bytes:
  """Waits for an entry; posts `otherwise` where it does not come in time.

  Raises:
    ProcessesError: The processes cannot reach each other.
  """
  found = board.read(name, timeout_s=timeout_s)
  return board.post(name, otherwise) if found is None else found


class _Shared:
  """A board in the store of JAX's distributed client."""

  def __init__(
    self, store: touch.Store, name: str, number: int, members: Iterable[int]
  ):
    self.process_id = store.process_id
    self.members = tuple(sorted(members))
    self.store = store.store
    self.name = name
    self.number = number
    self._store = store

  def post(self, name: str, value: bytes) -> bytes:
    return self._store.put(self._key(name), value)

  def read(self, name: str, *, timeout_s: float) -> bytes | None:
    return self._store.get(self._key(name), timeout_s=timeout_s)

  def entries(self, folder: str) -> Mapping[str, bytes]:
    return self._store.in_folder(self._key(folder))

  def _key(self, name: str) -> str:
    return f"{self.name}/{self.number}/{name}"


class _Alone:
  """A board of one process."""

  def __init__(self, process_id: int):
    self.process_id = process_id
    self.members: tuple[int, ...] = (process_id,)
    self._entries: dict[str, bytes] = {}

  def post(self, name: str, value: bytes) -> bytes:
    return self._entries.setdefault(name, value)

  def read(self, name: str, *, timeout_s: float) -> bytes | None:
    del timeout_s  # Nobody else would post it.
    return self._entries.get(name)

  def entries(self, folder: str) -> Mapping[str, bytes]:
    start = f"{folder}/"
    return {
      name.removeprefix(start): value
      for name, value in list(self._entries.items())
      if name.startswith(start)
    }


_num_taken: dict[tuple[store_lib.Store, str], int] = {}
_lock = threading.Lock()


def next_board(
  name: str, members: Iterable[int], *, touch_s: float = touch.TOUCH_S
) -> Board:
  """The next board with a name and members; all members count them alike.

  It stays the next one until it is taken.

  Args:
    name: Of the board.
    members: The processes.
    touch_s: Seconds in which a call of the store that fails is made again.
  """
  store = store_lib.of_job()
  members = tuple(members)
  if store is None or len(members) < 2:
    return _Alone(0 if store is None else store.process_id)
  folder = f"lagom_xla/board/{name}/{agreement.in_words(members)}"
  with _lock:
    number = _num_taken.get((store, folder), 0) + 1
  patient = touch.Store(store=store, touch_s=touch_s)
  return _Shared(patient, folder, number, members)


def take(board: Board) -> None:
  """The board is in use: the next one is another one."""
  if isinstance(board, _Shared):
    with _lock:
      _num_taken[board.store, board.name] = board.number
