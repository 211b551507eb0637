# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Files beside a plan, which keep results of a search for later commands.

Each holds a dataclass as compressed JSON.
"""

from __future__ import annotations

import dataclasses
import gzip
import json
import pathlib
from typing import Final, Generic, TypeVar
import zlib

from lagom_xla import errors
from lagom_xla import validation
from lagom_xla.validation import whole_files

_T = TypeVar("_T")

PLAN: Final = "plan.json"
REPORT: Final = "report.json.gz"
EXPLANATION: Final = "explain.json.gz"
NAMES = frozenset([REPORT, EXPLANATION])


@dataclasses.dataclass(frozen=True, kw_only=True)
class File(Generic[_T]):
  """A file beside the plan in a plan's folder.

  Attributes:
    name: the file's name.
    noun: a noun for it, to follow "a" in errors.
    of: the dataclass that it holds, which has a field `format_version`.
    format_version: the version that this lagom_xla reads.
    instead: another way out if the file is missing, to follow "Make the plan
      again".
  """

  name: str
  noun: str
  of: type[_T]
  format_version: int
  instead: str = ""

  def write(self, value: _T, folder: pathlib.Path) -> pathlib.Path:
    """Writes the file into a plan's folder, and returns its path.

    Raises:
      OutputError: it cannot be written.
    """
    path = folder / self.name
    data = json.dumps(validation.write(value), separators=(",", ":")).encode()
    try:
      # No time of day, so that equal plans have equal files.
      path.write_bytes(gzip.compress(data, compresslevel=6, mtime=0))
    except OSError as error:
      raise errors.OutputError(
        f"{path} cannot be written: {error.strerror}."
      ) from error
    return path

  def read(self, plan: pathlib.Path) -> _T:
    """Reads the file in a plan's folder, or beside its plan.json.

    Raises:
      PlanError: there is none, or it has another format version.
    """
    path = (plan.parent if plan.name == PLAN else plan) / self.name
    try:
      data = whole_files.read_bytes(path)
    except OSError as error:
      raise errors.PlanError(
        f"{path} cannot be read ({error.strerror or error}); `lagom-xla tune`"
        f" writes it beside a plan. Make the plan again{self.instead}."
      ) from error
    try:
      raw = json.loads(gzip.decompress(data))
    except (OSError, EOFError, ValueError, zlib.error) as error:
      raise errors.PlanError(
        f"{path} is damaged: {error}. Make the plan again."
      ) from error
    version = raw.get("format_version") if isinstance(raw, dict) else None
    if version != self.format_version:
      raise errors.PlanError(
        f"{path} is not a {self.noun} of format version"
        f" {self.format_version}, which this lagom_xla reads. Make the plan"
        " again."
      )
    try:
      return validation.read(self.of, raw)
    except validation.InvalidError as error:
      raise errors.PlanError(
        f"{path} is not a usable {self.noun}: {error}. Make the plan again."
      ) from error
