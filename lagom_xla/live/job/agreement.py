# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Agreement of a job's processes: all do the same thing, or none does.

Steps with different collectives wait for each other forever, so whatever
changes a step must change it on all processes or on none. Each one votes; the
first one judges when it has all votes. The decision is a key that can be set
only once: whoever waits too long, or fails, sets it to a refusal, and whoever
comes later finds it. So no two processes ever see different decisions, and none
waits longer than its own time-out. A process that cannot reach the store learns
no decision; JAX ends it, because its process 0 is gone.

    round = agreement.next_round(store, "plan of step", members)
    if round.is_first:
      round.propose(plan)
    plan = round.proposal(timeout_s=600)
    ...  # Compile with it, or round.refuse(why).
    decision = round.decision(digest, agreement.all_equal, timeout_s=600)

Members that come to act on a decision do so between the same two steps:
`decision` returns on none of them before all have voted or one has refused.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
import dataclasses
import json
import threading
import time

from lagom_xla import errors
from lagom_xla.jax_internals import store as store_lib
from lagom_xla.live.job import touch

# Rounds so far, by name and members.
_num_rounds: dict[tuple[store_lib.Store, str], int] = {}
_lock = threading.Lock()

# How often a process that waits for one key looks for a refusal, in seconds.
_LOOK_S = 1.0


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Decision:
  """What all members of a round do.

  Attributes:
    is_agreed: whether they act; if not, all stay as they were.
    reason: why they do not; it names the processes.
    is_answered: False where some members did not vote in time.
  """

  is_agreed: bool
  reason: str = ""
  is_answered: bool = True


# Votes by process -> why they are no agreement; None where they are one.
Judge = Callable[[Mapping[int, bytes]], str | None]


class Round:
  """One question that the members of a round answer together.

  Args:
    store: of the job.
    name: of the round, the same on all members and used only once.
    members: the processes, this one among them; all of the job by default.
  """

  def __init__(
    self,
    store: store_lib.Store,
    name: str,
    members: Iterable[int] | None = None,
  ):
    everyone = range(store.num_processes)
    self.members = tuple(sorted(everyone if members is None else members))
    self._store = touch.Store(store=store)
    self._folder = f"lagom_xla/{name}"

  @property
  def is_first(self) -> bool:
    """Whether this process is the one that proposes and judges."""
    return self._store.process_id == self.members[0]

  def propose(self, proposal: bytes) -> None:
    """Shows a proposal to the other members; only the first one may.

    Raises:
      ProcessesError: the store cannot be reached, or there is a proposal.
    """
    if self._store.put(self._key("proposal"), proposal) != proposal:
      raise errors.ProcessesError(f"{self._folder} has a proposal already.")

  def proposal(self, *, timeout_s: float) -> bytes:
    """Waits for the proposal.

    Raises:
      ProcessesError: there is none, as a member refused, or as nothing came in
        time, which refuses for all; or the store cannot be reached.
    """
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
      found = self._wait("proposal", deadline)
      if found is not None:
        return found
      decided = self._decided(0)
      if decided is not None:
        raise errors.ProcessesError(decided.reason)
    reason = (
      f"{in_words(self.members[:1])} proposed nothing within {timeout_s:g} s."
    )
    self._decide(Decision(is_agreed=False, reason=reason, is_answered=False))
    raise errors.ProcessesError(reason)

  def refuse(self, reason: str) -> Decision:
    """Has all members stay as they were, and returns what they decided.

    That is this refusal unless there is a decision already.

    Raises:
      ProcessesError: the store cannot be reached.
    """
    by = in_words([self._store.process_id])
    return self._decide(Decision(is_agreed=False, reason=f"{by}: {reason}"))

  def decision(
    self, vote: bytes, judge: Judge, *, timeout_s: float
  ) -> Decision:
    """Votes, and waits for what all members decide.

    Args:
      vote: of this process.
      judge: the same on all members.
      timeout_s: after which the members that have not voted are named.

    Raises:
      ProcessesError: this process has voted otherwise before, or the store
        cannot be reached.
    """
    deadline = time.monotonic() + timeout_s
    own = self._key(f"votes/{self._store.process_id}")
    if self._store.put(own, vote) != vote:
      raise errors.ProcessesError(f"{self._folder} was voted on already.")
    while True:
      left_s = 0 if self.is_first else deadline - time.monotonic()
      decided = self._decided(left_s)
      if decided is not None:
        return decided
      votes = self._votes()
      missing = [member for member in self.members if member not in votes]
      has_time = time.monotonic() < deadline
      # Others judge as well where the first one is gone after its vote.
      if not missing and (self.is_first or not has_time):
        return self._decide(_judged(judge, votes))
      if not has_time:
        return self._decide(_unanswered(missing, timeout_s))
      self._wait(f"votes/{missing[0]}", deadline)

  def _votes(self) -> Mapping[int, bytes]:
    found = self._store.in_folder(self._key("votes"))
    return {int(member): vote for member, vote in found.items()}

  def _wait(self, key: str, deadline: float) -> bytes | None:
    """Waits for a key, no longer than until the next look for a refusal."""
    left_s = min(deadline - time.monotonic(), _LOOK_S)
    return self._store.get(self._key(key), timeout_s=left_s)

  def _decided(self, timeout_s: float) -> Decision | None:
    found = self._store.get(self._key("decision"), timeout_s=timeout_s)
    return None if found is None else Decision(**json.loads(found))

  def _decide(self, decision: Decision) -> Decision:
    """Sets the decision, if there is none; returns the one that stands.

    Raises:
      ProcessesError: the store cannot be reached.
    """
    value = json.dumps(dataclasses.asdict(decision)).encode()
    standing = self._store.put(self._key("decision"), value)
    return Decision(**json.loads(standing))

  def _key(self, name: str) -> str:
    return f"{self._folder}/{name}"


def next_round(
  store: store_lib.Store, name: str, members: Iterable[int] | None = None
) -> Round:
  """The next round with a name and members; all members count them alike."""
  chosen = range(store.num_processes) if members is None else sorted(members)
  name = f"{name}/{in_words(chosen)}"
  with _lock:
    number = _num_rounds[store, name] = _num_rounds.get((store, name), 0) + 1
  return Round(store, f"{name}/{number}", chosen)


def all_equal(votes: Mapping[int, bytes]) -> str | None:
  """A judge: whether all votes are that of the first process."""
  first = min(votes)
  others = [member for member in votes if votes[member] != votes[first]]
  if not others:
    return None
  return f"{in_words(others)} came to something else than {in_words([first])}."


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


def _judged(judge: Judge, votes: Mapping[int, bytes]) -> Decision:
  reason = judge(votes)
  return Decision(is_agreed=reason is None, reason=reason or "")


def _unanswered(missing: Iterable[int], timeout_s: float) -> Decision:
  return Decision(
    is_agreed=False,
    reason=f"{in_words(missing)} did not answer within {timeout_s:g} s.",
    is_answered=False,
  )
