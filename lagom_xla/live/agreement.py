# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Agreement of a job's processes: all do the same thing, or none does.

Steps with different collectives hang, so a step must change on all processes or
on none. Each process votes, and the first to see all votes decides. The
decision is an entry in a key-value store, JAX's distributed client. It can be
set only once. A process that times out or fails sets it to a refusal, and the
others read that. So no two processes ever see different decisions, and none
waits longer than its own time-out.

Failed calls of the store are retried for a while: networks fail briefly, and a
process that gave up alone would diverge from the others. Each call is short,
because Python handles Ctrl-C only between calls.

A process that reached a `barrier` and then loses the connection passes it: the
others see that it arrived. So only two simultaneous failures can separate a
process from the others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
import contextlib
import dataclasses
import json
import threading
import time
from typing import Protocol, TypeVar

from lagom_xla import errors
from lagom_xla.jax_internals import store as store_lib

# Time to retry a failed call of the store, in seconds. JAX ends a process that
# has been silent for 100 s.
REACH_S = 120.0
# The longest call of the store, and the interval at which the first process
# reads the votes, in seconds.
_LOOK_S = 0.5
# The first and the longest pause between retries, in seconds.
_PAUSES_S = (0.05, 1.0)
# Number of calls within which an entry that is set must be readable.
_NUM_CALLS = 120
# The other processes read the votes, too, in case the first process is lost
# after its vote. They read only this often within their time-out, because
# answers are long in large jobs.
_NUM_LOOKS = 4
# How far one process may be behind another, in seconds: one may find in a cache
# what the other compiles.
_TIMEOUT_S = 1800.0
# The decision at a barrier that all members have reached.
_OPEN = b""
# The name of the question in a store with only one question.
_QUESTION = "question"

_Result = TypeVar("_Result")

# Votes by process -> why they disagree; None if they agree.
Judge = Callable[[Mapping[int, bytes]], str | None]


class JobStore(Protocol):
  """A store of entries that members of a job set, each only once.

  All methods raise a ProcessesError if the processes cannot reach each other.

  Attributes:
    process_id: The ID of this process.
    members: The IDs of the processes that use the store, in order.
  """

  process_id: int
  members: tuple[int, ...]

  def put(self, name: str, value: bytes) -> bytes:
    """Sets an entry if it is unset; returns its value afterwards."""

  def get(self, name: str, *, timeout_s: float) -> bytes | None:
    """Waits for an entry and returns it; None if it is not set in time."""

  def in_folder(self, folder: str) -> Mapping[str, bytes]:
    """The entries under `folder`/, by the rest of their names."""


def is_first(store: JobStore) -> bool:
  """Whether this process decides for the others."""
  return store.process_id == store.members[0]


class _Shared:
  """A folder in the store of JAX's distributed client."""

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
    self.number = number  # Among stores with this name.
    self._reach_s = reach_s

  def put(self, name: str, value: bytes) -> bytes:
    # If an earlier try set the value but its answer was lost, this returns it.
    key = self._key(name)
    if self._reach(lambda: self.store.put(key, value)):
      return value
    for _ in range(_NUM_CALLS):
      found = self._look(key, _LOOK_S)
      if found is not None:  # As expected, since it could not be set.
        return found
    raise errors.ProcessesError(
      f"JAX's distributed client has {key} but did not return it within"
      f" {_NUM_CALLS * _LOOK_S:g} s."
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
    """Calls the store, and retries while it fails."""
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
  """A store of one process, in memory."""

  def __init__(self, process_id: int):
    self.process_id = process_id
    self.members: tuple[int, ...] = (process_id,)
    self._entries: dict[str, bytes] = {}

  def put(self, name: str, value: bytes) -> bytes:
    return self._entries.setdefault(name, value)

  def get(self, name: str, *, timeout_s: float) -> bytes | None:
    del timeout_s  # No other process could set it.
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
  """The next store with this name and these members.

  All members number stores alike. Returns the same store until `take`.
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
  """Marks a store as used, so that `next_store` returns another one."""
  if isinstance(store, _Shared):
    with _lock:
      _num_taken[store.store, store.name] = store.number


def in_words(processes: Iterable[int]) -> str:
  """Processes in words, such as "processes 0-2, 7"."""
  runs: list[list[int]] = []
  for process in sorted(processes):
    if runs and process == runs[-1][-1] + 1:
      runs[-1][1:] = [process]
    else:
      runs.append([process])
  words = ", ".join("-".join(map(str, run)) for run in runs)
  is_one = len(runs) == 1 and len(runs[0]) == 1
  return f"process {words}" if is_one else f"processes {words}"


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Decision:
  """Whether all members act, or why none does.

  `is_answered` is False if some members did not vote in time.
  """

  is_agreed: bool
  reason: str = ""
  is_answered: bool = True

  def to_json(self) -> bytes:
    """This decision as JSON, for `_read`."""
    return json.dumps(dataclasses.asdict(self)).encode()


def _read(found: bytes) -> Decision:
  return Decision(**json.loads(found))


# All functions below raise a ProcessesError if the processes cannot reach each
# other.


def vote(store: JobStore, question: str, value: bytes) -> None:
  """Votes on a question.

  Raises a ProcessesError if this process has already voted differently.
  """
  if store.put(f"{question}/votes/{store.process_id}", value) != value:
    raise errors.ProcessesError(
      f"{in_words([store.process_id])} has already cast another vote."
    )


def votes(store: JobStore, question: str) -> Mapping[int, bytes]:
  """The votes on a question so far, by process."""
  found = store.in_folder(f"{question}/votes")
  return {int(member): value for member, value in found.items()}


def decide(store: JobStore, question: str, decision: bytes) -> bytes:
  """Decides a question unless it is decided; returns the decision."""
  return store.put(f"{question}/decision", decision)


def _decided(
  store: JobStore,
  question: str,
  judged: Callable[[Mapping[int, bytes]], bytes],
  closing: Callable[[Sequence[int]], bytes],
  deadline: float,
) -> bytes:
  """Waits for the decision on a question; this process has voted.

  The decision is `judged(votes)`, the same in all members, or, at the deadline,
  `closing` of the members that have not voted.
  """
  leads = is_first(store)
  look_s = (deadline - time.monotonic()) / _NUM_LOOKS
  if leads:
    look_s = _LOOK_S
  while True:
    left_s = deadline - time.monotonic()
    wait_s = max(min(left_s, look_s), 0)
    found = store.get(f"{question}/decision", timeout_s=0 if leads else wait_s)
    if found is not None:
      return found
    cast = votes(store, question)
    missing = [member for member in store.members if member not in cast]
    if not missing:
      return decide(store, question, judged(cast))
    if left_s <= wait_s:
      return decide(store, question, closing(missing))
    if leads:
      store.get(f"{question}/votes/{missing[0]}", timeout_s=wait_s)


def barrier(
  store: JobStore,
  question: str,
  closing: Callable[[Sequence[int]], bytes],
  *,
  timeout_s: float,
) -> bytes | None:
  """Waits until all members have reached a barrier; use each barrier once.

  All members return the same: None if all arrived in time, else `closing` of
  those that did not. If the others cannot be reached, raises a ProcessesError
  only if this process has not arrived either.
  """
  deadline = time.monotonic() + timeout_s
  vote(store, question, b"")
  try:
    found = _decided(store, question, lambda _: _OPEN, closing, deadline)
  except errors.ProcessesError:
    return None  # The others see that it arrived.
  return None if found == _OPEN else found


def decision(
  store: JobStore, value: bytes, judge: Judge, *, timeout_s: float
) -> Decision:
  """Votes, and waits for the decision, which is the same in all members."""

  def judged(cast: Mapping[int, bytes]) -> bytes:
    reason = judge(cast)
    return Decision(is_agreed=reason is None, reason=reason or "").to_json()

  def unanswered(missing: Sequence[int]) -> bytes:
    reason = f"{in_words(missing)} did not answer within {timeout_s:g} s."
    return _unanswered(reason).to_json()

  deadline = time.monotonic() + timeout_s
  vote(store, _QUESTION, value)
  return _read(_decided(store, _QUESTION, judged, unanswered, deadline))


def refuse(store: JobStore, reason: str) -> Decision:
  """Decides that no member acts, unless it is decided; returns the decision."""
  by = in_words([store.process_id])
  refusal = Decision(is_agreed=False, reason=f"{by}: {reason}")
  return _read(decide(store, _QUESTION, refusal.to_json()))


def _unanswered(reason: str) -> Decision:
  return Decision(is_agreed=False, reason=reason, is_answered=False)


def propose(store: JobStore, proposal: bytes) -> None:
  """Sends a proposal to the other members; only the first may, and once."""
  if store.put("proposal", proposal) != proposal:
    raise errors.ProcessesError("There is already another proposal.")


def proposal(store: JobStore, *, timeout_s: float = _TIMEOUT_S) -> bytes:
  """Waits for the proposal.

  Raises:
    ProcessesError: A member refused, or there was no proposal in time. The
      latter refuses for all members.
  """
  deadline = time.monotonic() + timeout_s
  while (left_s := deadline - time.monotonic()) > 0:
    found = store.get("proposal", timeout_s=min(left_s, _LOOK_S))
    if found is not None:
      return found
    decided = store.get(f"{_QUESTION}/decision", timeout_s=0)
    if decided is not None:
      raise errors.ProcessesError(_read(decided).reason)
  first = in_words(store.members[:1])
  reason = f"{first} made no proposal within {timeout_s:g} s."
  decide(store, _QUESTION, _unanswered(reason).to_json())
  raise errors.ProcessesError(reason)


def all_equal(votes: Mapping[int, object]) -> str | None:
  """A judge that requires all votes to equal the first process's."""
  first = min(votes)
  others = [member for member in votes if votes[member] != votes[first]]
  if not others:
    return None
  return f"{in_words(others)} got another result than {in_words([first])}."


def all_or_none(
  work: Callable[[JobStore], _Result],
  digest: Callable[[_Result], bytes],
  *,
  name: str,
  members: Iterable[int],
) -> _Result:
  """Runs `work`, and returns its result once all members have the same result.

  `work` gets a store of the members, in which the first may `propose`. All
  members must call this with the same name, equally often.

  Raises:
    ProcessesError: `work` raised in another member, or digests of the results
      differ. Names that member. All members fail.
  """
  store = next_store(name, members)
  take(store)
  if len(store.members) < 2:
    return work(store)
  try:
    result = work(store)
    value = digest(result)
  except BaseException as error:
    with contextlib.suppress(errors.ProcessesError):
      refuse(store, errors.first_line(error))
    raise
  decided = decision(store, value, all_equal, timeout_s=_TIMEOUT_S)
  if not decided.is_agreed:
    raise errors.ProcessesError(decided.reason)
  return result
