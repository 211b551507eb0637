# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Agreement of a job's processes: all do the same thing, or none does.

Steps with different collectives wait for each other forever, so whatever
changes a step must change it on all processes or on none. Each one votes, and
whoever sees that all have decides. The decision is an entry that can be set
only once: whoever waits too long, or fails, sets it to a refusal, and whoever
comes later finds it. So no two processes ever see different decisions, and none
waits longer than its own time-out.

Members that come to act on a decision do so between the same two steps: it
comes on none of them before all have voted or one has refused.

A question is put to all at once (`decision`), by the first one
(`first_decides`) or after work that each does (`all_or_none`). A `barrier` has
votes
that say nothing but that a process has come: before all do something else than
before, they make sure that each of them knows what. Whoever loses touch with
the others goes on with what it does. A process that has come to a barrier and
then loses touch goes through: the others see that it has come. So what one
process fails in never parts it from the others; it would take two at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
import contextlib
import dataclasses
import json
import time
from typing import TypeVar

from lagom_xla import errors
from lagom_xla.live import job_store

# How often the first process looks who has voted, in seconds.
_LOOK_S = 0.5
# The others look as well, should it be lost after it voted: so often in their
# time, as the answers are long where processes are many.
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
# Processes that have not come -> what is to be read at a closed barrier.
Closing = Callable[[Sequence[int]], bytes]


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Decision:
  """What all members do.

  Attributes:
    is_agreed: whether they act; if not, all stay as they were.
    reason: why they do not; it names the processes.
    is_answered: False where some members did not vote in time.
  """

  is_agreed: bool
  reason: str = ""
  is_answered: bool = True

  def to_json(self) -> bytes:
    """This decision, for `_read`."""
    return json.dumps(dataclasses.asdict(self)).encode()


def _read(found: bytes) -> Decision:
  return Decision(**json.loads(found))


def vote(store: job_store.JobStore, question: str, value: bytes) -> None:
  """Votes on a question.

  Raises:
    ProcessesError: This process has voted otherwise before, or the others
      cannot be reached.
  """
  if store.put(f"{question}/votes/{store.process_id}", value) != value:
    raise errors.ProcessesError(
      f"{job_store.in_words([store.process_id])} has voted otherwise before."
    )


def votes(store: job_store.JobStore, question: str) -> Mapping[int, bytes]:
  """The votes on a question so far, by process."""
  found = store.in_folder(f"{question}/votes")
  return {int(member): value for member, value in found.items()}


def decide(store: job_store.JobStore, question: str, decision: bytes) -> bytes:
  """Decides, if nobody has; returns what stands.

  Raises:
    ProcessesError: The others cannot be reached.
  """
  return store.put(f"{question}/decision", decision)


def _decided(
  store: job_store.JobStore,
  question: str,
  judged: Callable[[Mapping[int, bytes]], bytes],
  closing: Closing,
  *,
  deadline: float,
  timeout_s: float,
) -> bytes:
  """What is decided of a question, once this process has voted.

  Args:
    store: Of the members.
    question: Its name.
    judged: What is decided of the votes of all; the same in all members.
    closing: What is, if some do not vote in time.
    deadline: When that is, by `time.monotonic`.
    timeout_s: How long it was until then when this process came.

  Raises:
    ProcessesError: The others cannot be reached.
  """
  is_first = job_store.is_first(store)
  look_s = _LOOK_S if is_first else timeout_s / _NUM_LOOKS
  while True:
    left_s = deadline - time.monotonic()
    wait_s = max(min(left_s, look_s), 0)
    found = store.get(
      f"{question}/decision", timeout_s=0 if is_first else wait_s
    )
    if found is not None:
      return found
    cast = votes(store, question)
    missing = [member for member in store.members if member not in cast]
    if not missing:
      return decide(store, question, judged(cast))
    if left_s <= wait_s:
      return decide(store, question, closing(missing))
    if is_first:
      store.get(f"{question}/votes/{missing[0]}", timeout_s=wait_s)


def barrier(
  store: job_store.JobStore,
  question: str,
  closing: Closing,
  *,
  timeout_s: float,
) -> bytes | None:
  """Waits until all members have come.

  Args:
    store: Of the members.
    question: Name of the barrier, used once.
    closing: What all members get if some do not come in time.
    timeout_s: How long to wait for them.

  Returns:
    None if it is open, in all members; what is read there if it is closed, the
    same in all of them.

  Raises:
    ProcessesError: The others cannot be reached, and this process has not come.
  """
  deadline = time.monotonic() + timeout_s
  vote(store, question, b"")
  try:
    found = _decided(
      store,
      question,
      lambda _: _OPEN,
      closing,
      deadline=deadline,
      timeout_s=timeout_s,
    )
  except errors.ProcessesError:
    return None  # It has come, as the others see.
  return None if found == _OPEN else found


def decision(
  store: job_store.JobStore, value: bytes, judge: Judge, *, timeout_s: float
) -> Decision:
  """Votes, and waits for what all members decide.

  Args:
    store: of the members; for one question.
    value: the vote of this process.
    judge: the same on all members.
    timeout_s: after which the members that have not voted are named.

  Raises:
    ProcessesError: this process has voted otherwise before, or the others
      cannot be reached.
  """

  def judged(cast: Mapping[int, bytes]) -> bytes:
    reason = judge(cast)
    return Decision(is_agreed=reason is None, reason=reason or "").to_json()

  def unanswered(missing: Sequence[int]) -> bytes:
    return Decision(
      is_agreed=False,
      reason=f"{job_store.in_words(missing)} did not answer within"
      f" {timeout_s:g} s.",
      is_answered=False,
    ).to_json()

  deadline = time.monotonic() + timeout_s
  vote(store, _QUESTION, value)
  found = _decided(
    store,
    _QUESTION,
    judged,
    unanswered,
    deadline=deadline,
    timeout_s=timeout_s,
  )
  return _read(found)


def refuse(store: job_store.JobStore, reason: str) -> Decision:
  """Has all members stay as they were, and returns what they decided.

  That is this refusal unless there is a decision already.

  Raises:
    ProcessesError: the others cannot be reached.
  """
  by = job_store.in_words([store.process_id])
  refusal = Decision(is_agreed=False, reason=f"{by}: {reason}")
  return _read(decide(store, _QUESTION, refusal.to_json()))


def propose(store: job_store.JobStore, proposal: bytes) -> None:
  """Shows a proposal to the other members; only the first one may.

  Raises:
    ProcessesError: the others cannot be reached, or there is a proposal.
  """
  if store.put("proposal", proposal) != proposal:
    raise errors.ProcessesError("There is a proposal already.")


def proposal(store: job_store.JobStore, *, timeout_s: float) -> bytes:
  """Waits for the proposal.

  Raises:
    ProcessesError: there is none, as a member refused, or as nothing came in
      time, which refuses for all; or the others cannot be reached.
  """
  deadline = time.monotonic() + timeout_s
  while (left_s := deadline - time.monotonic()) > 0:
    found = store.get("proposal", timeout_s=min(left_s, _LOOK_S))
    if found is not None:
      return found
    decided = store.get(f"{_QUESTION}/decision", timeout_s=0)
    if decided is not None:
      raise errors.ProcessesError(_read(decided).reason)
  first = job_store.in_words(store.members[:1])
  reason = f"{first} proposed nothing within {timeout_s:g} s."
  refusal = Decision(is_agreed=False, reason=reason, is_answered=False)
  decide(store, _QUESTION, refusal.to_json())
  raise errors.ProcessesError(reason)


def all_equal(votes: Mapping[int, bytes]) -> str | None:
  """A judge: whether all votes are that of the first process."""
  first = min(votes)
  others = [member for member in votes if votes[member] != votes[first]]
  if not others:
    return None
  return (
    f"{job_store.in_words(others)} came to something else than"
    f" {job_store.in_words([first])}."
  )


def all_or_none(
  work: Callable[[], _Result],
  digest: Callable[[_Result], bytes],
  *,
  name: str,
  members: Iterable[int],
  timeout_s: float = _TIMEOUT_S,
) -> _Result:
  """Does something here, and returns it once all members have done the same.

  Args:
    work: what to do; where it raises, all members do without.
    digest: of a result, what must be the same on all members.
    name: of the work, the same on all members, which come to it equally often.
    members: the processes that do it; where it is one, it does it alone.
    timeout_s: how long to wait for the others after this one's work.

  Returns:
    What `work` returned here.

  Raises:
    ProcessesError: another member failed, came to something else or did not
      answer; the message names it.
    Exception: whatever `work` raised here.
  """
  store = job_store.next_store(name, members)
  job_store.take(store)
  return _agreed(store, work, digest, timeout_s)


def first_decides(
  first: Callable[[], _Result],
  tell: Callable[[_Result], bytes],
  follow: Callable[[bytes], _Result],
  digest: Callable[[_Result], bytes],
  *,
  name: str,
  members: Iterable[int],
) -> _Result:
  """As `all_or_none`, where the others do what the first member came to.

  Args:
    first: what the first member does.
    tell: what the others need to know of its result.
    follow: what the others do with that.
    digest: of a result, what must be the same on all members.
    name: of the work, the same on all members, which come to it equally often.
    members: the processes that do it; where it is one, it decides alone.

  Returns:
    The result here.

  Raises:
    ProcessesError: another member failed, came to something else or did not
      answer; the message names it.
    Exception: whatever was raised here.
  """
  store = job_store.next_store(name, members)
  job_store.take(store)

  def work() -> _Result:
    if not job_store.is_first(store):
      return follow(proposal(store, timeout_s=_TIMEOUT_S))
    result = first()
    propose(store, tell(result))
    return result

  return _agreed(store, work, digest, _TIMEOUT_S)


def _agreed(
  store: job_store.JobStore,
  work: Callable[[], _Result],
  digest: Callable[[_Result], bytes],
  timeout_s: float,
) -> _Result:
  """What work returns, once all members have come to the same."""
  if len(store.members) < 2:
    return work()
  try:
    result = work()
    value = digest(result)
  except BaseException as error:
    with contextlib.suppress(errors.ProcessesError):
      refuse(store, errors.first_line(error))
    raise
  decided = decision(store, value, all_equal, timeout_s=timeout_s)
  if not decided.is_agreed:
    raise errors.ProcessesError(decided.reason)
  return result
