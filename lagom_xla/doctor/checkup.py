# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""The checkup: what was found on a machine, as plain data."""

from __future__ import annotations

import dataclasses
from typing import Any, Final, Literal

from lagom_xla import validation

# Raised whenever a field changes its meaning.
FORMAT_VERSION: Final = 1

Status = Literal["works", "missing", "fails"]


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Version:
  """A package and its version.

  Attributes:
    package: its name, as pip has it; "python" for Python itself.
    version: as installed.
  """

  package: str
  version: str


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Finding:
  """A thing that was tried.

  Attributes:
    name: what was tried.
    status: "works", "missing" where it is not here, or "fails".
    is_essential: whether `inspect` and `tune` need it.
    found: what came of it, in a sentence.
    advice: what to do where it does not work; "" where there is nothing to do.
  """

  name: str
  status: Status
  is_essential: bool
  found: str
  advice: str


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Checkup:
  """What works on a machine.

  Attributes:
    format_version: raised when a field changes its meaning.
    works: whether all that is essential works.
    versions: of what is installed.
    findings: what was tried, what is essential first.
  """

  __pydantic_config__ = validation.STRICT

  format_version: Literal[1] = FORMAT_VERSION
  works: bool
  versions: tuple[Version, ...]
  findings: tuple[Finding, ...]


def schema() -> dict[str, Any]:
  """The JSON schema of `lagom-xla doctor --format=json`."""
  return validation.schema(Checkup)
