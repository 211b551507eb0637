# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Plans kept from one run to the next, with what was measured of them.

A run that finds an entry needs no search: it starts with what was adopted, or,
where nothing was faster, leaves the step alone. The key has all that a plan and
its verdict hold for, so that nothing in the folder grows old; files may be
deleted any time, and those that were of no use for longest are, where all would
have more than 64 MiB. Whatever is wrong with the folder or a file costs one
message and is as if nothing were there.

For threads beside training: to import what reads and writes plans takes long,
and so may a file system.
"""

from __future__ import annotations

from collections.abc import Callable
import contextlib
import dataclasses
import hashlib
import importlib
import json
import os
import pathlib
from typing import Any

from absl import logging
import jax
import jaxlib

from lagom_xla.apply.nccl import state as state_lib
from lagom_xla.compile import cache
from lagom_xla.compile import nnx_step
from lagom_xla.flags import environment
from lagom_xla.jax_internals import lowerings
from lagom_xla.jax_internals import request as request_lib
from lagom_xla.validation import whole_files

# Raised whenever a field of an entry changes its meaning; a part of the key.
_FORMAT = 2
_SUFFIX = ".plan.json"
_MAX_BYTES = 64 * 2**20
_WITHOUT = "lagom_xla ignores the plans of earlier runs"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Entry:
  """What became of tuning a step.

  Attributes:
    date: when it was measured, in UTC, as ISO 8601 has it.
    adopted: the payload of the proposal that runs; None where nothing was
      faster than the step as it was.
    name: of that proposal, in words; "" without.
    verdict: on it, or on what was tried last; "" where there was nothing to
      try.
  """

  date: str
  adopted: str | None
  name: str
  verdict: str


class PlanCache:
  """What runs have found out about a step: a file that processes may share.

  It is in a folder with those of other steps, by its key.
  """

  def __init__(
    self,
    folder: pathlib.Path,
    key: str,
    *,
    max_bytes: int = _MAX_BYTES,
    warn: Callable[[str], None] = logging.warning,
  ):
    """Touches nothing yet."""
    self._folder = folder
    self._key = key
    self._path = folder / f"{key}{_SUFFIX}"
    self._max_bytes = max_bytes
    self._warn = warn
    self._has_warned = False

  @property
  def risk(self) -> PlanCache:
    """What runs for the first time, or was what a run did not survive."""
    return PlanCache(self._folder, f"{self._key}-risk", warn=self._warn)

  def get(self) -> Entry | None:
    """What was kept; None where there is nothing usable."""
    try:
      text = self._path.read_text()
    except FileNotFoundError:
      return None
    except (OSError, UnicodeDecodeError) as error:
      self._say(f"{_WITHOUT}: {self._path} cannot be read: {error}")
      return None
    cache.note_use(self._path)
    with contextlib.suppress(ValueError, KeyError, TypeError, RecursionError):
      raw = json.loads(text)
      if raw["checksum"] == self._checksum(raw["entry"]):
        return Entry(**raw["entry"])
    self._say(f"{_WITHOUT}: {self._path} was modified or is incomplete")
    return None

  def put(self, entry: Entry) -> None:
    """Keeps an entry, whole or not at all, unless the folder does not let it.

    Of several processes that keep one under the same key, one's stays.
    """
    folder, raw = self._path.parent, dataclasses.asdict(entry)
    whole = {"checksum": self._checksum(raw), "entry": raw}
    try:
      whole_files.write(self._path, json.dumps(whole, indent=1).encode())
      cache.make_room(folder, suffix=_SUFFIX, max_bytes=self._max_bytes)
    except OSError as error:
      self._say(
        "lagom_xla cannot save what it found for the next run:"
        f" {folder} cannot be written: {error}"
      )

  def drop(self) -> None:
    """Deletes what was kept, if there is anything."""
    try:
      self._path.unlink(missing_ok=True)
    except OSError as error:
      self._say(f"lagom_xla cannot delete a plan that failed: {error}")

  def _checksum(self, raw: Any) -> str:
    """Of an entry under this key."""
    text = self._key + json.dumps(raw, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()

  def _say(self, problem: str) -> None:
    if not self._has_warned:
      self._has_warned = True
      self._warn(problem)


def folder_of(named: pathlib.Path | bool) -> pathlib.Path | None:
  """Where plans are: as named, the user's folder if True, and none if False.

  The user's is beside the user's compiles; there is none where those are off.
  """
  if not isinstance(named, bool):
    return named
  compiles = cache.folder_of_user() if named else None
  return None if compiles is None else compiles / "plans"


def key(lowered: Any, machine: str) -> str:
  """What equal steps share on equal machines under equal versions.

  The settings of XLA and NCCL in this process's environment are in it, too:
  what was measured rests on them.
  """
  step = nnx_step.lowered_inside(lowered)
  program: Any = step.compiler_ir("stablehlo")
  nccl = state_lib.of_environment(os.environ)
  handed = request_lib.handed_for(step)
  # By name: the package's own module shows what is above this one.
  package = importlib.import_module(__name__.partition(".")[0])
  parts = (
    _FORMAT,
    lowerings.digest(program),
    sorted(handed.jit.items()),
    sorted(environment.of_compile(handed).jax.items()),
    machine,
    (jax.__version__, jaxlib.__version__, package.__version__),
    os.environ.get("XLA_FLAGS", ""),
    sorted((name, entry.value) for name, entry in nccl.items()),
  )
  return hashlib.sha256(repr(parts).encode()).hexdigest()
