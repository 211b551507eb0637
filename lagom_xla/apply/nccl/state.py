# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""The settings that decide NCCL's choices in this process.

Each entry must be equal on all ranks of a communicator, or they hang. Entries
say what really happens here, not what a launcher meant to set: if the plugin
does not load, or refuses its table, NCCL makes its own choices on this rank.
"""

from __future__ import annotations

from collections.abc import Mapping
import dataclasses
import pathlib

from lagom_xla import errors
from lagom_xla.apply.nccl import build
from lagom_xla.apply.nccl import table as table_lib
from lagom_xla.costs.nccl import environment

# Variables that decide how a rank runs a collective, and that ranks do not
# exchange when a communicator starts. Interfaces, topology and debugging may
# differ from node to node.
DECISIVE = (*environment.COSTED, *environment.UNCOSTED)

# Which plan's env.sh was sourced, and its outcome; see `apply/env.py`.
ENV = "LAGOM_XLA_ENV"

_TUNER = environment.TUNER
_TABLE = "LAGOM_XLA_NCCL_TABLE"
_CHECKSUM = "LAGOM_XLA_NCCL_CHECKSUM"
# NCCL also accepts the middle part of a library's file name.
_PREFIX, _SUFFIX = "libnccl-tuner-", ".so"


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Entry:
  """A setting that decides NCCL's choices.

  Attributes:
    value: its value here.
    reason: why it has that value; may differ from node to node.
  """

  value: str
  reason: str = dataclasses.field(default="", compare=False)


def of_environment(environ: Mapping[str, str]) -> Mapping[str, Entry]:
  """The settings that decide NCCL's choices in a process with these variables.

  Loads lagom_xla's plugin in another process. Of other plugins only the name is
  known, and of AWS's tuner nothing.

  Returns:
    Setting -> its entry.
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
  """The effect of NCCL_TUNER_PLUGIN."""
  if not is_ours(named):
    # Its folder may differ from node to node.
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
  """The effect of the table on our plugin."""
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
