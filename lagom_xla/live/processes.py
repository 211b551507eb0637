# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Check that a job's processes agree on their collectives and settings.

Each NCCL rank chooses its algorithm, protocol and channels, and each process
compiles its own executable. If choices or collectives differ, the job hangs
without a message. So before the first collective, the processes compare the
settings behind NCCL's choices, the settings that change compiles, and the
program.
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

# Equal to the time-out of jax.distributed.initialize, in seconds.
_TIMEOUT_S = 300.0
# Time-out between live steps, in seconds. It is longer, because a process may
# do other work between two signatures.
_STEP_TIMEOUT_S = 1800.0
# Number of program lines per digest.
_NUM_LINES = 16
# Most hosts that a message names.
_MAX_HOSTS = 4
# JAX's settings that change which program a step becomes.
_TRACED = (
  *("jax_enable_x64", "jax_numpy_dtype_promotion", "jax_default_prng_impl"),
  *("jax_default_matmul_precision", "jax_threefry_partitionable"),
)

# Members that agreed, with their vote on a step, or None.
_agreed: set[tuple[store_lib.Store, tuple[int, ...], bytes | None]] = set()
_lock = threading.Lock()


def check_processes(*, timeout_s: float = _TIMEOUT_S) -> None:
  """Checks that all processes of a job have the same settings.

  Call it on every process, after `jax.distributed.initialize` and before the
  first collective. It compares the NCCL tuner plugin and its table, the NCCL
  settings that ranks choose by (including nccl.conf), the plan whose env.sh was
  sourced, the XLA_FLAGS that change compiles for GPUs (not dumps, for example),
  and JAX's settings that reach XLA or change how steps are traced, such as
  jax_enable_x64. XLA then reads its flags, but no device is used. Once the
  check has passed, or in a job of one process, it returns at once.

  Args:
    timeout_s: time to wait for the other processes, in seconds.

  Raises:
    SettingsDifferError: settings differ; the message says where, and is the
      same on all processes.
    ProcessesError: some processes did not answer; the message names them.
  """
  check(None, timeout_s=timeout_s)


def check_step(members: Iterable[int], lowered: jax.stages.Lowered) -> None:
  """Like `check_processes`, for a step's processes and its program."""
  check(members, lowered, timeout_s=_STEP_TIMEOUT_S)


def check(
  members: Iterable[int] | None,
  lowered: jax.stages.Lowered | None = None,
  *,
  timeout_s: float = _TIMEOUT_S,
) -> None:
  """Like `check_processes`, for `members` of the job; None for all."""
  store = store_lib.of_job()
  if store is None:
    return
  everyone = tuple(range(store.num_processes))
  chosen = everyone if members is None else tuple(sorted(members))
  with _lock:
    if len(chosen) < 2:
      return
    # After Ctrl-C in a first call, only interrupted processes repeat the check.
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
    f"Cannot compare the settings of this job's processes: {decision.reason}"
    " Start all processes, and make this call in each."
  )


def _compared(
  members: tuple[int, ...], shown: bytes, timeout_s: float
) -> agreement.Decision:
  """The members' decision on their settings.

  After Ctrl-C, the next call votes on the same question again.
  """
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
  """The settings of a process with these variables, for `difference`."""
  # Imported here, because a job of one process does not need them.
  from lagom_xla.apply.nccl import state as state_lib
  from lagom_xla.jax_internals import request

  entries = state_lib.of_environment(environ)
  handed = request.handed_for(lowered) if lowered else request.handed_for_any()
  digest, options = _compiled(environ, handed)
  shown = {
    "host": socket.gethostname(),
    "settings": {name: [it.value, it.reason] for name, it in entries.items()}
    | {name: [str(getattr(jax.config, name)), ""] for name in _TRACED},
    "digest": digest,
    "options": {name: [value, ""] for name, value in options.items()},
    "program": lowerings.lines_digests(lowered, _NUM_LINES) if lowered else [],
  }
  return json.dumps(shown).encode()


def _compiled(
  environ: Mapping[str, str], handed: request_lib.Handed
) -> tuple[str, Mapping[str, str]]:
  """A hash of all options that change compiles, and the options that are set.

  XLA has already read the flags of this process's own environment.
  """
  from lagom_xla.flags import debug_options
  from lagom_xla.flags import environment
  from lagom_xla.flags import syntax

  settings = environment.of_compile(handed)
  try:
    text = syntax.follow(environ.get("XLA_FLAGS", ""))
    flags, _ = syntax.parse(text)
    if environ is os.environ:
      values = debug_options.of_debug(handed.read)
    else:
      values = debug_options.under(text)
  except (OSError, ValueError, errors.OptionsError, errors.ProbeError):
    # XLA would end the process on these flags, or does not show its options.
    flags, values = (), {}
  everything = environment.of_step({**values, **settings.values})
  named = {f.name: values.get(f.name, f.value or "") for f in flags}
  set_here = environment.of_step({**named, **settings.values})
  return hashlib.sha256(repr(everything).encode()).hexdigest(), {
    name if name in settings.build else f"--{name}": environment.shown(value)
    for name, value in set_here.items()
  }


def difference(votes: Mapping[int, bytes]) -> str | None:
  """The differences between processes, in a sentence; None without any."""
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
      " set the same options for XLA and JAX."
    )
  programs = {member: shown["program"] for member, shown in read.items()}
  return _other_programs(programs, hosts)


def _differences(
  part: str, read: Mapping[int, Any], hosts: Mapping[int, str]
) -> Iterator[str]:
  """Yields the differences in one part of the votes, by name."""
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
  """The processes with another program than the first's, in a sentence.

  None if all are equal.
  """
  first = min(programs)
  others = [m for m in sorted(programs) if programs[m] != programs[first]]
  if not others:
    return None
  pairs = itertools.zip_longest(programs[first], programs[others[0]])
  place = next(place for place, (a, b) in enumerate(pairs) if a != b)
  line = place * _NUM_LINES + 1
  return (
    "The processes of this job lower the step to different programs, so its"
    f" collectives may hang: {_where(others, hosts)} and"
    f" {_where([first], hosts)} differ in lines {line} to"
    f" {line + _NUM_LINES - 1} of step.lower(...).as_text(). Look there for a"
    " shape, sharding, constant or operation that depends on the process."
  )


def _difference(
  name: str,
  settings: Mapping[int, Mapping[str, state_lib.Entry]],
  hosts: Mapping[int, str],
) -> str | None:
  """The values of a setting and their processes; None if all are equal."""
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
