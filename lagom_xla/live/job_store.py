# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Key-value store of the processes that run a step; each key is set once.

Whoever waits too long for an entry sets what is to be read in its place, so
that whoever comes later reads the same: no two processes ever read different
entries, and none waits longer than its own time-out. It is JAX's distributed
client; a job of one process has a store of its own, in memory.

A call that fails is made again for a while: a network does fail for a moment,
and a process that is alone with that would part from the others. Python acts on
Ctrl-C between two calls, so none is long.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
import threading
import time
from typing import Protocol, TypeVar

from lagom_xla import errors
from lagom_xla.jax_internals import store as store_lib

# Seconds in which a process that cannot reach the others tries to. JAX ends one
# from which it has heard nothing for 100 s.
REACH_S = 120.0
# The longest call, in seconds.
_LOOK_S = 0.5
# Between two tries of a call: the first pause, and the longest, in seconds.
_PAUSES_S = (0.05, 1.0)
# How many calls it may take to read what is known to be set.
_NUM_LOOKS = 120

_Result = TypeVar("_Result")


class JobStore(Protocol):
  """Where the members of a job set entries.

  Attributes:
    process_id: This process.
    members: The processes that read and set entries here, in order.
  """

  process_id: int
  members: tuple[int, ...]

  def put(self, name: str, value: bytes) -> bytes:
    """Sets an entry, and returns what stands: this, or what was there before.

    Raises:
      ProcessesError: The processes cannot reach each other.
    """
    ...

  def get(self, name: str, *, timeout_s: float) -> bytes | None:
    """Waits for an entry; None where it does not come in time.

    Raises:
      ProcessesError: The processes cannot reach each other.
    """
    ...

  def in_folder(self, folder: str) -> Mapping[str, bytes]:
    """Entries whose names begin with `folder`/, by the rest of their names.

    Raises:
      ProcessesError: The processes cannot reach each other.
    """
    ...


def is_first(store: JobStore) -> bool:
  """Whether this process is the one that decides for the others."""
  return store.process_id == store.members[0]


class _Shared:
  """A folder in the store of JAX's distributed client.

  Args:
    store: JAX's.
    name: Of the folder.
    number: Of those with this name.
    members: The processes.
    reach_s: Seconds in which a call that fails is made again.
  """

  def __init__(
    self,
    store: store_lib.Store,
    name: str,
    number: int,
    members: tuple[int, ...],
    reach_s: float,
  ):
    self.process_id = store.process_id
    self.members = members
    self.store = store
    self.name = name
    self.number = number
    self._reach_s = reach_s

  def put(self, name: str, value: bytes) -> bytes:
    # Where it came through and only the answer was lost, the value stands.
    key = self._key(name)
    if self._reach(lambda: self.store.put(key, value)):
      return value
    for _ in range(_NUM_LOOKS):
      found = self._look(key, _LOOK_S)
      if found is not None:  # As is to be expected: it could not be set.
        return found
    raise errors.ProcessesError(
      f"JAX's distributed client has {key}, and did not show it within"
      f" {_NUM_LOOKS * _LOOK_S:g} s."
    )

  def get(self, name: str, *, timeout_s: float) -> bytes | None:
    key = self._key(name)
    deadline = time.monotonic() + timeout_s
    while True:
      left_s = max(deadline - time.monotonic(), 0)
      found = self._look(key, min(left_s, _LOOK_S))
      if found is not None or left_s <= _LOOK_S:
        return found

  def in_folder(self, folder: str) -> Mapping[str, bytes]:
    key = self._key(folder)
    return self._reach(lambda: self.store.in_folder(key))

  def _key(self, name: str) -> str:
    return f"{self.name}/{self.number}/{name}"

  def _look(self, key: str, timeout_s: float) -> bytes | None:
    return self._reach(lambda: self.store.get(key, timeout_s=timeout_s))

  def _reach(self, call: Callable[[], _Result]) -> _Result:
    """What a call of the store comes to, made again while it fails."""
    deadline = time.monotonic() + self._reach_s
    pause_s, longest_s = _PAUSES_S
    while True:
      try:
        return call()
      except errors.ProcessesError:
        if time.monotonic() + pause_s > deadline:
          raise
      time.sleep(pause_s)
      pause_s = min(2 * pause_s, longest_s)


class _Alone:
  """A store of one process."""

  def __init__(self, process_id: int):
    self.process_id = process_id
    self.members: tuple[int, ...] = (process_id,)
    self._entries: dict[str, bytes] = {}

  def put(self, name: str, value: bytes) -> bytes:
    return self._entries.setdefault(name, value)

  def get(self, name: str, *, timeout_s: float) -> bytes | None:
    del timeout_s  # Nobody else would set it.
    return self._entries.get(name)

  def in_folder(self, folder: str) -> Mapping[str, bytes]:
    start = f"{folder}/"
    return {
      name.removeprefix(start): value
      for name, value in list(self._entries.items())
      if name.startswith(start)
    }


_num_taken: dict[tuple[store_lib.Store, str], int] = {}
_lock = threading.Lock()


def next_store(
  name: str, members: Iterable[int], *, reach_s: float = REACH_S
) -> JobStore:
  """The next store with a name and members; all members count them alike.

  It stays the next one until it is taken.

  Args:
    name: Of the store.
    members: The processes.
    reach_s: Seconds in which a call that fails is made again.
  """
  store = store_lib.of_job()
  members = tuple(sorted(members))
  if store is None or len(members) < 2:
    return _Alone(0 if store is None else store.process_id)
  folder = f"lagom_xla/{name}/{in_words(members)}"
  with _lock:
    number = _num_taken.get((store, folder), 0) + 1
  return _Shared(store, folder, number, members, reach_s)


def take(store: JobStore) -> None:
  """The store is in use: the next one is another one."""
  if isinstance(store, _Shared):
    with _lock:
      _num_taken[store.store, store.name] = store.number


def in_words(processes: Iterable[int]) -> str:
  """Processes as a message names them, such as "processes 0-2, 7"."""
  runs: list[list[int]] = []
  for process in sorted(processes):
    if runs and process == runs[-1][-1] + 1:
      runs[-1][1:] = [process]
    else:
      runs.append([process])
  words = ", ".join("-".join(map(str, run)) for run in runs)
  is_one = len(runs) == 1 and len(runs[0]) == 1
  return f"process {words}" if is_one else f"processes {words}"
