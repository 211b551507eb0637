# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Processes of a job, and whether their NCCL settings are the same.

NCCL's ranks choose algorithm, protocol and channels each for itself. Where they
choose differently a collective waits forever, and nothing says why. So before
the first one the processes show each other what they would choose by.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
import json
import os
import socket
import threading
from typing import TYPE_CHECKING

from lagom_xla import errors
from lagom_xla.jax_internals import store as store_lib
from lagom_xla.live import agreement

if TYPE_CHECKING:
  from lagom_xla.apply.nccl import state as state_lib

# As long as jax.distributed.initialize waits for processes, in seconds.
_TIMEOUT_S = 300.0
# More hosts than these are left to their processes' numbers.
_MAX_HOSTS = 4

# Those that were found to have the same settings.
_agreed: set[tuple[store_lib.Store, tuple[int, ...]]] = set()
_lock = threading.Lock()


def check_processes(*, timeout_s: float = _TIMEOUT_S) -> None:
  """Checks that NCCL would choose alike on all processes of a job.

  Call it on every process, after `jax.distributed.initialize` and before the
  first collective. It compares the NCCL tuner plugin and its table, the NCCL
  settings that ranks choose by (also those of nccl.conf), XLA's flags for NCCL
  and which plan's env.sh was sourced. It uses no device. Once it has passed it
  returns at once, as it does where the job has one process.

  Args:
    timeout_s: how long to wait for the other processes.

  Raises:
    SettingsDifferError: they differ; the message says where, and is the same
      on all processes.
    ProcessesError: some processes did not answer; the message names them.
  """
  check(None, timeout_s=timeout_s)


def check(
  members: Iterable[int] | None, *, timeout_s: float = _TIMEOUT_S
) -> None:
  """As `check_processes`, for some processes of the job, None for all."""
  store = store_lib.of_job()
  if store is None:
    return
  everyone = tuple(range(store.num_processes))
  chosen = everyone if members is None else tuple(sorted(members))
  with _lock:
    if len(chosen) < 2 or {(store, chosen), (store, everyone)} & _agreed:
      return
    decision = _compared(chosen, timeout_s)
    if decision.is_agreed:
      _agreed.add((store, chosen))
      return
  if decision.is_answered:
    raise errors.SettingsDifferError(decision.reason)
  raise errors.ProcessesError(
    f"The NCCL settings of this job cannot be compared: {decision.reason}"
    " Start all processes, and have all of them come here."
  )


def _compared(members: tuple[int, ...], timeout_s: float) -> agreement.Decision:
  """What members decide on their settings; the same question after Ctrl-C."""
  store = agreement.next_store("NCCL settings", members)
  try:
    decision = agreement.decision(
      store, vote(os.environ), difference, timeout_s=timeout_s
    )
  except Exception:
    agreement.take(store)
    raise
  agreement.take(store)
  return decision


def vote(environ: Mapping[str, str]) -> bytes:
  """What a process of these variables shows to the others, for `difference`."""
  from lagom_xla.apply.nccl import state as state_lib

  entries = state_lib.of_environment(environ)
  settings = {name: [it.value, it.reason] for name, it in entries.items()}
  return json.dumps(
    {"host": socket.gethostname(), "settings": settings}
  ).encode()


def difference(votes: Mapping[int, bytes]) -> str | None:
  """What differs between processes, in a sentence; None where nothing does."""
  from lagom_xla.apply.nccl import state as state_lib

  read = {member: json.loads(shown) for member, shown in votes.items()}
  hosts = {member: shown["host"] for member, shown in read.items()}
  settings = {
    member: {
      name: state_lib.Entry(value=value, reason=reason)
      for name, (value, reason) in shown["settings"].items()
    }
    for member, shown in read.items()
  }
  names = sorted({name for entries in settings.values() for name in entries})
  differences = [
    text
    for name in names
    if (text := _difference(name, settings, hosts)) is not None
  ]
  if not differences:
    return None
  return (
    "The NCCL settings of this job's processes differ, and its collectives"
    f" would wait forever: {'; '.join(differences)}. Source the env.sh of one"
    " plan on every process before it starts, and have the plugin on all nodes"
    " or on none."
  )


def _difference(
  name: str,
  settings: Mapping[int, Mapping[str, state_lib.Entry]],
  hosts: Mapping[int, str],
) -> str | None:
  """Who has what, of one setting; None where all have the same."""
  members_by_entry: dict[state_lib.Entry | None, list[int]] = {}
  for member in sorted(settings):
    entry = settings[member].get(name)
    members_by_entry.setdefault(entry, []).append(member)
  if len(members_by_entry) == 1:
    return None
  parts = [
    f"{_shown(entry)} in {_where(members, hosts)}"
    for entry, members in members_by_entry.items()
  ]
  return f"{name} is {', '.join(parts[:-1])} and {parts[-1]}"


def _shown(entry: state_lib.Entry | None) -> str:
  if entry is None:
    return "not set"
  return f"{entry.value} ({entry.reason})" if entry.reason else entry.value


def _where(members: Sequence[int], hosts: Mapping[int, str]) -> str:
  names = sorted({hosts[member] for member in members})
  if len(names) > _MAX_HOSTS:
    names[_MAX_HOSTS:] = ["..."]
  return f"{agreement.in_words(members)} on {', '.join(names)}"
