# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Work that the processes of a job do each for itself, and use all or none."""

from __future__ import annotations

from collections.abc import Callable, Iterable
import contextlib
from typing import TypeVar

from lagom_xla import errors
from lagom_xla.jax_internals import store as store_lib
from lagom_xla.live.job import agreement

# What a process may be behind another one: one finds its compiles in a cache,
# the other one compiles. In seconds.
_TIMEOUT_S = 1800.0

_Result = TypeVar("_Result")


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
  store, members = store_lib.of_job(), tuple(members)
  if store is None or len(members) < 2:
    return work()
  round_ = agreement.next_round(store, name, members)
  return _agreed(round_, work, digest, timeout_s)


def first_decides(
  decide: Callable[[], _Result],
  tell: Callable[[_Result], bytes],
  follow: Callable[[bytes], _Result],
  digest: Callable[[_Result], bytes],
  *,
  name: str,
  members: Iterable[int],
) -> _Result:
  """As `all_or_none`, where the others do what the first member came to.

  Args:
    decide: what the first member does.
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
  store, members = store_lib.of_job(), tuple(members)
  if store is None or len(members) < 2:
    return decide()
  round_ = agreement.next_round(store, name, members)

  def work() -> _Result:
    if not round_.is_first:
      return follow(round_.proposal(timeout_s=_TIMEOUT_S))
    result = decide()
    round_.propose(tell(result))
    return result

  return _agreed(round_, work, digest, _TIMEOUT_S)


def _agreed(
  round_: agreement.Round,
  work: Callable[[], _Result],
  digest: Callable[[_Result], bytes],
  timeout_s: float,
) -> _Result:
  """What work returns, once all members have come to the same."""
  try:
    result = work()
    vote = digest(result)
  except BaseException as error:
    with contextlib.suppress(errors.ProcessesError):
      round_.refuse(errors.first_line(error))
    raise
  decision = round_.decision(vote, agreement.all_equal, timeout_s=timeout_s)
  if not decision.is_agreed:
    raise errors.ProcessesError(decision.reason)
  return result
