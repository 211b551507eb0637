# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""State of NCCL's settings in this process: what it would choose by.

Each entry must be equal on all ranks of a communicator, or they wait for each
other forever. What a launcher meant to set is no entry, but what comes of it
here: a plugin that does not load, and a table that it refuses, leave NCCL's own
choices on this rank.
"""

from __future__ import annotations

from collections.abc import Mapping
import dataclasses
import pathlib

from lagom_xla import errors
from lagom_xla.apply.nccl import build
from lagom_xla.apply.nccl import table as table_lib
from lagom_xla.costs.nccl import environment

# Those by which each rank decides for itself how a collective is run, and that
# NCCL's ranks do not exchange when a communicator starts. Interfaces, topology
# and debugging may well be a node's own.
DECISIVE = (*environment.COSTED, *environment.UNCOSTED)

# Which plan's env.sh was sourced, and what it could do; see `apply/env.py`.
ENV = "LAGOM_XLA_ENV"

_TUNER = environment.TUNER
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
  known = environment.as_nccl_reads(environ)
  entries = {
    name: Entry(value=known[name])
    for name in (ENV, *DECISIVE)
    if known.get(name)
  }
  tuner = known.get(_TUNER)
  if tuner:
    entries[_TUNER] = _tuner(tuner)
    if is_ours(tuner):
      checksum = known.get(_CHECKSUM)
      entries["the NCCL table"] = _table(known.get(_TABLE), checksum)
  return entries


def is_ours(tuner: str) -> bool:
  """Whether NCCL_TUNER_PLUGIN names lagom_xla's plugin."""
  name = pathlib.Path(tuner).name.removeprefix(_PREFIX).removesuffix(_SUFFIX)
  return f"{_PREFIX}{name}{_SUFFIX}" == build.LIBRARY


def _tuner(named: str) -> Entry:
  """What becomes of NCCL_TUNER_PLUGIN."""
  if not is_ours(named):
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
  return Entry(value="a plugin that does not load", reason=reasons[0])


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
    reason = f"{path} has checksum {found}, but {_CHECKSUM} is {checksum}"
    return Entry(value="refused", reason=reason)
  return Entry(value=f"the one with checksum {found}", reason=path)
