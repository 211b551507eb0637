# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""The table of rules in a file, which the tuner plugin maps and counts in.

A file has two slots of rules, and a version whose lowest bit says which one is
valid. `switch` fills the other slot and then stores the next version, so that a
job that has the file mapped sees the old table or the new one, never a part of
each; plugin.c describes the bytes.

All ranks of a communicator must choose alike, or they wait for each other
forever. So every node needs the same table, and a table may be switched only
between two barriers, while no rank has work in flight. A captured CUDA graph
keeps the settings that it was captured with. The counters are sums over the
processes of a node that map the file; on a shared file system, give each node
its own copy.
"""

from __future__ import annotations

from collections.abc import Iterable
import fcntl
import mmap
import pathlib

from lagom_xla import errors
from lagom_xla.apply.nccl import layout
from lagom_xla.apply.nccl import rules as rules_lib
from lagom_xla.validation import place
from lagom_xla.validation import source


def write(path: pathlib.Path, rules: Iterable[rules_lib.Rule]) -> None:
  """Writes a new table, whole or not at all.

  A job that has an older file of this name mapped keeps reading that one; use
  `switch` to change it.

  Raises:
    RuleError, TableError: as `layout.encode`; or the file cannot be written.
  """
  content = layout.encode(rules)
  try:
    place.write(path, content)
  except OSError as error:
    raise errors.TableError(
      f"Cannot write {path}: {error.strerror}."
    ) from error


def switch(path: pathlib.Path, rules: Iterable[rules_lib.Rule]) -> int:
  """Gives a table new rules, in place, for the jobs that have it mapped.

  Counters restart at zero. The module's docstring says when this may be done.

  Returns:
    The new version.

  Raises:
    RuleError, TableError: as `layout.encode`; or the file is no table, cannot
      be written, or has no room for the rules.
  """
  ordered = rules_lib.ordered(rules)
  try:
    with path.open("r+b") as file:
      fcntl.flock(file, fcntl.LOCK_EX)
      old = layout.decode(file.read(), where=str(path))
      if len(ordered) > old.capacity:
        raise errors.TableError(
          f"{path} has room for {old.capacity} rules, not for {len(ordered)};"
          " write a new table and start the job with that."
        )
      with mmap.mmap(file.fileno(), 0) as mapped:
        layout.fill_slot(mapped, old.capacity, old.version + 1, ordered)
        mapped.flush()  # All of the slot before the version that points to it.
        with memoryview(mapped) as view, view.cast("Q") as words:
          words[layout.VERSION_WORD] = old.version + 1
        mapped.flush()
  except OSError as error:
    raise errors.TableError(
      f"Cannot switch {path}: {error.strerror}."
    ) from error
  return old.version + 1


def read(path: pathlib.Path) -> layout.Table:
  """Reads a table and its counters, also while a job uses it.

  Raises:
    TableError: the file cannot be read, or is not a complete table.
  """
  for _ in range(3):
    try:
      return layout.decode(source.read_bytes(path), where=str(path))
    except OSError as error:
      raise errors.TableError(
        f"Cannot read {path}: {error.strerror}."
      ) from error
    except errors.TableError as error:
      found = error  # It may have been switched during the read.
  raise found
