# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""State of NCCL's settings in this process: what it would choose by.

Each entry must be equal on all ranks of a communicator, or they wait for each
other forever. What a launcher meant to set is no entry, but what comes of it
here: a plugin that does not load, and a table that it refuses, leave NCCL's own
choices on this rank.

NCCL sets what its files say in the environment, where that does not say it
already: first the user's file, then the machine's (src/misc/param.cc). So a
node whose /etc/nccl.conf is not that of the others has settings that no
launcher shows.
"""

from __future__ import annotations

from collections.abc import Mapping
import dataclasses
import os
import pathlib
import pwd

from lagom_xla import errors
from lagom_xla.apply.nccl import build
from lagom_xla.apply.nccl import table as table_lib
from lagom_xla.flags import syntax

_MACHINE_FILE = pathlib.Path("/etc/nccl.conf")
_MAX_CHARACTERS = 1023  # NCCL cuts longer names and values.

# Those by which each rank decides for itself how a collective is run, and that
# NCCL's ranks do not exchange when a communicator starts: algorithm and
# protocol (src/graph/tuning.cc), channels and threads (src/graph/connect.cc,
# paths.cc, src/init.cc), buffers and the chunks they are cut in (src/init.cc,
# src/enqueue.cc). Interfaces, topology and debugging may well be a node's own.
DECISIVE = (
  *("NCCL_ALGO", "NCCL_PROTO", "NCCL_PAT_ENABLE", "NCCL_NVLS_ENABLE"),
  *("NCCL_COLLNET_ENABLE", "NCCL_CTA_POLICY", "NCCL_MIN_CTAS", "NCCL_MAX_CTAS"),
  *("NCCL_MIN_NCHANNELS", "NCCL_MAX_NCHANNELS", "NCCL_MIN_P2P_NCHANNELS"),
  *("NCCL_MAX_P2P_NCHANNELS", "NCCL_NCHANNELS_PER_NET_PEER"),
  *("NCCL_NVLS_NCHANNELS", "NCCL_CGA_CLUSTER_SIZE", "NCCL_NTHREADS"),
  *("NCCL_LL128_NTHREADS", "NCCL_THREAD_THRESHOLDS", "NCCL_BUFFSIZE"),
  *("NCCL_LL_BUFFSIZE", "NCCL_LL128_BUFFSIZE", "NCCL_CHUNK_SIZE"),
  *("NCCL_NVLS_CHUNKSIZE", "NCCL_NVLSTREE_MAX_CHUNKSIZE"),
  *("NCCL_P2P_NET_CHUNKSIZE", "NCCL_P2P_PCI_CHUNKSIZE"),
  "NCCL_P2P_NVL_CHUNKSIZE",
)


def as_nccl_reads(
  environ: Mapping[str, str], machine_file: pathlib.Path = _MACHINE_FILE
) -> Mapping[str, str]:
  """An environment as NCCL completes it; all of it, not NCCL's part alone."""
  user_file = _user_file(environ)
  of_user = {} if user_file is None else _in_file(user_file)
  return {**_in_file(machine_file), **of_user, **environ}


def _user_file(environ: Mapping[str, str]) -> pathlib.Path | None:
  """NCCL_CONF_FILE, or else .nccl.conf in the home that the system knows."""
  named = environ.get("NCCL_CONF_FILE")
  if named:
    return pathlib.Path(named)
  try:
    return pathlib.Path(pwd.getpwuid(os.getuid()).pw_dir) / ".nccl.conf"
  except KeyError:
    return None


def _in_file(file: pathlib.Path) -> dict[str, str]:
  """What a file sets; nothing where it cannot be read, as for NCCL."""
  try:
    lines = file.read_text(errors="surrogateescape").split("\n")
  except OSError:
    return {}
  found: dict[str, str] = {}
  for line in lines:
    name, equals, value = line.partition("=")
    if equals and not line.startswith("#"):
      # The first line that sets a variable stands.
      found.setdefault(name[:_MAX_CHARACTERS], value[:_MAX_CHARACTERS])
  return found


# Which plan's env.sh was sourced, and what it could do; see `apply/env.py`.
ENV = "LAGOM_XLA_ENV"

_TUNER = "NCCL_TUNER_PLUGIN"
_TABLE = "LAGOM_XLA_NCCL_TABLE"
_CHECKSUM = "LAGOM_XLA_NCCL_CHECKSUM"
# NCCL takes a library's name from the middle of its file's, too.
_PREFIX, _SUFFIX = "libnccl-tuner-", ".so"


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Entry:
  """One thing that NCCL chooses by.

  Attributes:
    value: what it is here.
    reason: why it is so, which may differ from node to node.
  """

  value: str
  reason: str = dataclasses.field(default="", compare=False)


def of_environment(environ: Mapping[str, str]) -> Mapping[str, Entry]:
  """What NCCL would choose by in a process with these variables.

  The plugin is loaded, by another process, if it is lagom_xla's; of another one
  only its name is known. AWS's tuner shows in no variable.

  Returns:
    What is set -> how.
  """
  known = as_nccl_reads(environ)
  entries = {
    name: Entry(value=known[name])
    for name in (ENV, *DECISIVE)
    if known.get(name)
  }
  tuner = known.get(_TUNER)
  if tuner:
    entries[_TUNER] = _tuner(tuner)
    if _is_ours(tuner):
      checksum = known.get(_CHECKSUM)
      entries["the NCCL table"] = _table(known.get(_TABLE), checksum)
  return entries | _xla_flags(environ.get("XLA_FLAGS", ""))


def _is_ours(tuner: str) -> bool:
  name = pathlib.Path(tuner).name.removeprefix(_PREFIX).removesuffix(_SUFFIX)
  return f"{_PREFIX}{name}{_SUFFIX}" == build.LIBRARY


def _tuner(named: str) -> Entry:
  """What becomes of NCCL_TUNER_PLUGIN."""
  if not _is_ours(named):
    # Its folder may be each node's own.
    return Entry(value=pathlib.Path(named).name)
  reasons = []
  for candidate in (named, f"{_PREFIX}{named}{_SUFFIX}"):
    try:
      source = build.source(candidate)
    except build.BuildError as error:
      reasons.append(str(error))
    else:
      return Entry(value=f"lagom_xla's (source {source[:8]})")
  return Entry(value="one that does not load", reason=reasons[0])


def _table(path: str | None, checksum: str | None) -> Entry:
  """What our plugin makes of its table."""
  if not path:
    return Entry(value="missing", reason=f"{_TABLE} is not set")
  try:
    table = table_lib.read(pathlib.Path(path))
  except errors.TableError as error:
    return Entry(value="refused", reason=str(error))
  found = table_lib.checksum(table.rules, version=table.version)
  if checksum and found != checksum:
    reason = f"{path} has checksum {found}, and {_CHECKSUM} is {checksum}"
    return Entry(value="refused", reason=reason)
  return Entry(value=f"that with checksum {found}", reason=path)


def _xla_flags(text: str) -> dict[str, Entry]:
  """XLA's flags for NCCL, which it hands on when a communicator starts."""
  try:
    flags, _ = syntax.parse(syntax.follow(text))
  except (OSError, ValueError):
    return {}  # XLA itself ends a process with such flags.
  return {
    f"--{flag.name}": Entry(value=flag.value or "set")
    for flag in flags  # The last one wins.
    if "nccl" in flag.name
  }
