# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Cache of plans and their measurements, from one run to the next.

A run that finds an entry needs no search: it tries the adopted plan first or,
if nothing was faster, leaves the step unchanged. The key covers everything that
a plan and its verdict depend on, so entries never become stale. Files may be
deleted at any time; above 64 MiB in total, the least recently used are deleted.
An unreadable folder or file causes one message and counts as missing.

Use it in threads: the import is slow, and file systems may be.
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

# Part of the key. Increment it when a field of an entry changes its meaning.
_FORMAT = 2
_SUFFIX = ".plan.json"
_MAX_BYTES = 64 * 2**20
_WITHOUT = "lagom_xla ignores the plans of earlier runs"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Entry:
  """The result of tuning a step.

  Attributes:
    date: time of the measurement, in UTC (ISO 8601).
    adopted: payload of the adopted proposal; None if nothing was faster.
    name: the adopted proposal in words, or "".
    verdict: the verdict on it, or on the last trial; "" without trials.
  """

  date: str
  adopted: str | None
  name: str
  verdict: str


class PlanCache:
  """The cache entry of a step: a file that processes may share."""

  def __init__(
    self,
    folder: pathlib.Path,
    key: str,
    *,
    max_bytes: int = _MAX_BYTES,
    warn: Callable[[str], None] = logging.warning,
  ):
    """Does not touch the folder yet."""
    self._folder = folder
    self._key = key
    self._path = folder / f"{key}{_SUFFIX}"
    self._max_bytes = max_bytes
    self._warn = warn
    self._has_warned = False

  @property
  def risk(self) -> PlanCache:
    """The entry for a proposal that runs for the first time, or ended a run."""
    return PlanCache(self._folder, f"{self._key}-risk", warn=self._warn)

  def get(self) -> Entry | None:
    """The entry; None if it is missing or unusable."""
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
    """Saves an entry atomically, or warns; the last writer wins."""
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
    """Deletes the entry, if any."""
    try:
      self._path.unlink(missing_ok=True)
    except OSError as error:
      self._say(f"lagom_xla cannot delete a plan that failed: {error}")

  def _checksum(self, raw: Any) -> str:
    """The checksum of an entry under this key."""
    text = self._key + json.dumps(raw, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()

  def _say(self, problem: str) -> None:
    if not self._has_warned:
      self._has_warned = True
      self._warn(problem)


def folder_of(named: pathlib.Path | bool) -> pathlib.Path | None:
  """The folder of plans: `named`, the default for True, None for False.

  The default is in the user's compile cache; None if that cache is off.
  """
  if not isinstance(named, bool):
    return named
  compiles = cache.folder_of_user() if named else None
  return None if compiles is None else compiles / "plans"


def key(lowered: Any, machine: str) -> str:
  """A key that is equal for equal steps, machines and versions.

  Includes the settings of XLA and NCCL in this process's environment.
  """
  step = nnx_step.lowered_inside(lowered)
  nccl = state_lib.of_environment(os.environ)
  handed = request_lib.handed_for(step)
  # By name, because the package's `__init__` imports modules above this one.
  package = importlib.import_module(__name__.partition(".")[0])
  parts = (
    _FORMAT,
    lowerings.digest_of(step),
    sorted(handed.jit.items()),
    sorted(environment.of_compile(handed).jax.items()),
    machine,
    (jax.__version__, jaxlib.__version__, package.__version__),
    os.environ.get("XLA_FLAGS", ""),
    sorted((name, entry.value) for name, entry in nccl.items()),
  )
  return hashlib.sha256(repr(parts).encode()).hexdigest()
