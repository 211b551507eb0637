# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Processes of a job, and whether they would run the same collectives alike.

NCCL's ranks choose algorithm, protocol and channels each for itself, and each
process compiles its own executable. Where they choose differently, or compile
other collectives, one waits forever, and nothing says why. So before the first
one the processes show each other what they would choose by, what changes their
compiles, and the program.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
import hashlib
import itertools
import json
import os
import socket
import threading
from typing import TYPE_CHECKING, Any

import jax

from lagom_xla import errors
from lagom_xla.jax_internals import lowerings
from lagom_xla.jax_internals import store as store_lib
from lagom_xla.live import agreement

if TYPE_CHECKING:
  from lagom_xla.apply.nccl import state as state_lib
  from lagom_xla.jax_internals import request as request_lib

# As long as jax.distributed.initialize waits for processes, in seconds.
_TIMEOUT_S = 300.0
# As long as live steps wait for each other, in seconds: between two signatures
# a process may do something else.
_STEP_TIMEOUT_S = 1800.0
# Lines of a program that are told apart as one.
_NUM_LINES = 16
# More hosts than these are left to their processes' numbers.
_MAX_HOSTS = 4

# Those that were found to have the same settings, with what they showed of a
# step, None of no step.
_agreed: set[tuple[store_lib.Store, tuple[int, ...], bytes | None]] = set()
_lock = threading.Lock()


def check_processes(*, timeout_s: float = _TIMEOUT_S) -> None:
  """Checks that all processes of a job choose alike and compile alike.

  Call it on every process, after `jax.distributed.initialize` and before the
  first collective. It compares the NCCL tuner plugin and its table, the NCCL
  settings that ranks choose by (also those of nccl.conf), which plan's env.sh
  was sourced, XLA_FLAGS but for what changes no compile for GPUs, such as
  dumps, and JAX's settings that reach XLA. XLA reads its flags for that. It
  uses no device. Once it has passed it returns at once, as it does where the
  job has one process.

  Args:
    timeout_s: how long to wait for the other processes.

  Raises:
    SettingsDifferError: they differ; the message says where, and is the same
      on all processes.
    ProcessesError: some processes did not answer; the message names them.
  """
  check(None, timeout_s=timeout_s)


def check_step(members: Iterable[int], lowered: jax.stages.Lowered) -> None:
  """As `check_processes`, of those that run a step, and of its program."""
  check(members, lowered, timeout_s=_STEP_TIMEOUT_S)


def check(
  members: Iterable[int] | None,
  lowered: jax.stages.Lowered | None = None,
  *,
  timeout_s: float = _TIMEOUT_S,
) -> None:
  """As `check_processes`, for some processes of the job, None for all."""
  store = store_lib.of_job()
  if store is None:
    return
  everyone = tuple(range(store.num_processes))
  chosen = everyone if members is None else tuple(sorted(members))
  with _lock:
    if len(chosen) < 2:
      return
    # A first call is made again after Ctrl-C, by those alone that it met.
    of_step = None if lowered is None else vote(os.environ, lowered)
    known = {(store, chosen, of_step)}
    if of_step is None:
      known.add((store, everyone, None))
    if known & _agreed:
      return
    shown = vote(os.environ) if of_step is None else of_step
    decision = _compared(chosen, shown, timeout_s)
    if decision.is_agreed:
      _agreed.update({(store, chosen, of_step), (store, chosen, None)})
      return
  if decision.is_answered:
    raise errors.SettingsDifferError(decision.reason)
  raise errors.ProcessesError(
    f"The settings of this job's processes cannot be compared:"
    f" {decision.reason} Start all processes, and have each make this call."
  )


def _compared(
  members: tuple[int, ...], shown: bytes, timeout_s: float
) -> agreement.Decision:
  """What members decide on their settings; the same question after Ctrl-C."""
  store = agreement.next_store("settings", members)
  try:
    decision = agreement.decision(store, shown, difference, timeout_s=timeout_s)
  except Exception:
    agreement.take(store)
    raise
  agreement.take(store)
  return decision


def vote(
  environ: Mapping[str, str], lowered: jax.stages.Lowered | None = None
) -> bytes:
  """What a process of these variables shows to the others, for `difference`."""
  # Not imported where the job has one process.
  from lagom_xla.apply.nccl import state as state_lib
  from lagom_xla.jax_internals import request

  entries = state_lib.of_environment(environ)
  handed = request.handed_for(lowered) if lowered else request.handed_for_any()
  digest, options = _compiled(environ, handed)
  shown = {
    "host": socket.gethostname(),
    "settings": {name: [it.value, it.reason] for name, it in entries.items()},
    "digest": digest,
    "options": {name: [value, ""] for name, value in options.items()},
    "program": lowerings.lines_digests(lowered, _NUM_LINES) if lowered else [],
  }
  return json.dumps(shown).encode()


def _compiled(
  environ: Mapping[str, str], handed: request_lib.Handed
) -> tuple[str, Mapping[str, str]]:
  """What changes compiles: a hash of all options, and those that are set.

  Of this process's own environment XLA has read the flags already.
  """
  from lagom_xla.flags import debug_options
  from lagom_xla.flags import environment
  from lagom_xla.flags import syntax

  beside = environment.of_compile(handed)
  try:
    text = syntax.follow(environ.get("XLA_FLAGS", ""))
    flags, _ = syntax.parse(text)
    if environ is os.environ:
      values = debug_options.of_debug(handed.read)
    else:
      values = debug_options.under(text)
  except (OSError, ValueError, errors.OptionsError, errors.ProbeError):
    flags, values = (), {}  # XLA ends the process, or hides what it reads.
  everything = environment.of_step({**values, **beside.values})
  named = {f.name: values.get(f.name, f.value or "") for f in flags}
  told = environment.of_step({**named, **beside.values})
  return hashlib.sha256(repr(everything).encode()).hexdigest(), {
    name if name in beside.build else f"--{name}": environment.shown(value)
    for name, value in told.items()
  }


def difference(votes: Mapping[int, bytes]) -> str | None:
  """What differs between processes, in a sentence; None where nothing does."""
  read = {member: json.loads(shown) for member, shown in votes.items()}
  hosts = {member: shown["host"] for member, shown in read.items()}
  differences = list(_differences("settings", read, hosts))
  if len({shown["digest"] for shown in read.values()}) > 1:
    of_options = list(_differences("options", read, hosts))
    differences += of_options or ["XLA's options differ"]
  if differences:
    return (
      "The settings of this job's processes differ, so its collectives may"
      f" hang: {'; '.join(differences)}. Source the same plan's env.sh before"
      " every process starts, install the plugin on all nodes or on none, and"
      " set the same options of XLA and JAX."
    )
  programs = {member: shown["program"] for member, shown in read.items()}
  return _other_programs(programs, hosts)


def _differences(
  part: str, read: Mapping[int, Any], hosts: Mapping[int, str]
) -> Iterator[str]:
  """What differs in a part of what processes show, by name."""
  from lagom_xla.apply.nccl import state as state_lib

  entries = {
    member: {
      name: state_lib.Entry(value=value, reason=reason)
      for name, (value, reason) in shown[part].items()
    }
    for member, shown in read.items()
  }
  for name in sorted({name for it in entries.values() for name in it}):
    text = _difference(name, entries, hosts)
    if text is not None:
      yield text


def _other_programs(
  programs: Mapping[int, Sequence[str]], hosts: Mapping[int, str]
) -> str | None:
  """Who has lowered another program than the first; None where nobody has."""
  first = min(programs)
  others = [m for m in sorted(programs) if programs[m] != programs[first]]
  if not others:
    return None
  pairs = itertools.zip_longest(programs[first], programs[others[0]])
  place = next(place for place, (a, b) in enumerate(pairs) if a != b)
  line = place * _NUM_LINES + 1
  return (
    "The processes of this job lower the step to different programs, so its"
    " collectives may hang: that of"
    f" {_where(others, hosts)} differs from that of {_where([first], hosts)} in"
    f" lines {line} to {line + _NUM_LINES - 1} of"
    " step.lower(...).as_text(). Look there for a shape, a sharding, a constant"
    " or an operation that depends on the process."
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
