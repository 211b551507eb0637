# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Agreement of a job's processes: all do the same thing, or none does.

Steps with different collectives wait for each other forever, so whatever
changes a step must change it on all processes or on none. Each one votes, and
whoever sees that all have decides. What is decided is an entry of a key-value
store, JAX's distributed client, that can be set only once: whoever waits too
long, or fails, sets it to a refusal, and whoever comes later finds it. So no
two processes ever see different decisions, and none waits longer than its own
time-out.

A call of the store that fails is made again for a while: a network does fail
for a moment, and a process that is alone with that would part from the others.
Python acts on Ctrl-C between two calls, so none is long.

A process that has come to a `barrier` and then loses touch goes through: the
others see that it has come. So what one process fails in never parts it from
the others; it would take two at once.
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

# Seconds in which a process that cannot reach the others tries to. JAX ends one
# from which it has heard nothing for 100 s.
REACH_S = 120.0
# The longest call of the store, and how often the first process looks who has
# voted, in seconds.
_LOOK_S = 0.5
# Between two tries of a call: the first pause, and the longest, in seconds.
_PAUSES_S = (0.05, 1.0)
# How many calls it may take to read what is known to be set.
_NUM_CALLS = 120
# The others look who has voted as well, should the first one be lost after it
# voted: so often in their time, as the answers are long where processes are
# many.
_NUM_LOOKS = 4
# What a process may be behind another one: one finds its compiles in a cache,
# the other one compiles. In seconds.
_TIMEOUT_S = 1800.0
# What is decided at a barrier to which all have come.
_OPEN = b""
# Of the one question of a store that is asked once.
_QUESTION = "question"

_Result = TypeVar("_Result")

# Votes by process -> why they are no agreement; None where they are one.
Judge = Callable[[Mapping[int, bytes]], str | None]


class JobStore(Protocol):
  """Where the members of a job set entries, each once.

  All of its methods raise a ProcessesError where the processes cannot reach
  each other.

  Attributes:
    process_id: This process.
    members: The processes that read and set entries here, in order.
  """

  process_id: int
  members: tuple[int, ...]

  def put(self, name: str, value: bytes) -> bytes:
    """Sets an entry; returns what stands: this, or what was there before."""

  def get(self, name: str, *, timeout_s: float) -> bytes | None:
    """Waits for an entry; None where it does not come in time."""

  def in_folder(self, folder: str) -> Mapping[str, bytes]:
    """Entries whose names begin with `folder`/, by the rest of their names."""


def is_first(store: JobStore) -> bool:
  """Whether this process is the one that decides for the others."""
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
    self.number = number  # Of those with this name.
    self._reach_s = reach_s

  def put(self, name: str, value: bytes) -> bytes:
    # Where it came through and only the answer was lost, the value stands.
    key = self._key(name)
    if self._reach(lambda: self.store.put(key, value)):
      return value
    for _ in range(_NUM_CALLS):
      found = self._look(key, _LOOK_S)
      if found is not None:  # As is to be expected: it could not be set.
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
  """A store of one process, in memory."""

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


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Decision:
  """Whether all members act, or why all stay as they were.

  It is not answered where some members did not vote in time.
  """

  is_agreed: bool
  reason: str = ""
  is_answered: bool = True

  def to_json(self) -> bytes:
    """This decision, for `_read`."""
    return json.dumps(dataclasses.asdict(self)).encode()


def _read(found: bytes) -> Decision:
  return Decision(**json.loads(found))


# Where the processes cannot reach each other, all of what follows raises a
# ProcessesError.


def vote(store: JobStore, question: str, value: bytes) -> None:
  """Votes on a question; a ProcessesError if it has voted otherwise before."""
  if store.put(f"{question}/votes/{store.process_id}", value) != value:
    raise errors.ProcessesError(
      f"{in_words([store.process_id])} has already cast another vote."
    )


def votes(store: JobStore, question: str) -> Mapping[int, bytes]:
  """The votes on a question so far, by process."""
  found = store.in_folder(f"{question}/votes")
  return {int(member): value for member, value in found.items()}


def decide(store: JobStore, question: str, decision: bytes) -> bytes:
  """Decides, if nobody has; returns what stands."""
  return store.put(f"{question}/decision", decision)


def _decided(
  store: JobStore,
  question: str,
  judged: Callable[[Mapping[int, bytes]], bytes],
  closing: Callable[[Sequence[int]], bytes],
  deadline: float,
) -> bytes:
  """What is decided of a question, once this process has voted.

  That is what is `judged` of the votes of all, the same in all members, or what
  `closing` makes of those who have not voted at a deadline.
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
  """Waits until all members have come to a barrier, which is used once.

  Returns None if it is open, in all members; if it is closed, what `closing`
  makes of those that did not come in time, the same in all of them. Where the
  others cannot be reached it raises only if this process has not come.
  """
  deadline = time.monotonic() + timeout_s
  vote(store, question, b"")
  try:
    found = _decided(store, question, lambda _: _OPEN, closing, deadline)
  except errors.ProcessesError:
    return None  # It has come, as the others see.
  return None if found == _OPEN else found


def decision(
  store: JobStore, value: bytes, judge: Judge, *, timeout_s: float
) -> Decision:
  """Votes, and waits for what all members decide, by the same judge."""

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
  """Has all members stay as they were, and returns what they decided.

  That is this refusal unless there is a decision already.
  """
  by = in_words([store.process_id])
  refusal = Decision(is_agreed=False, reason=f"{by}: {reason}")
  return _read(decide(store, _QUESTION, refusal.to_json()))


def _unanswered(reason: str) -> Decision:
  return Decision(is_agreed=False, reason=reason, is_answered=False)


def propose(store: JobStore, proposal: bytes) -> None:
  """Shows a proposal to the other members; only the first one may, once."""
  if store.put("proposal", proposal) != proposal:
    raise errors.ProcessesError("Another proposal was made already.")


def proposal(store: JobStore, *, timeout_s: float = _TIMEOUT_S) -> bytes:
  """Waits for the proposal.

  There is none, which is a ProcessesError, where a member refused, or nothing
  came in time, which refuses for all.
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
  """A judge: whether all votes are that of the first process."""
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
  """Does something here, and returns it once all members have done the same.

  `work` gets a store of the members, where the first one may `propose`. Where
  it raises, here or elsewhere, or its results have other digests, all members
  do without: a ProcessesError names who else failed. The name is the same on
  all members, which come to it equally often.
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
