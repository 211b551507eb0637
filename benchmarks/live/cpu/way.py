# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Way of running a step on CPUs, as data: what a proposal's payload holds."""

from __future__ import annotations

import dataclasses
import json
from typing import Annotated

import pydantic

from lagom_xla import validation
from lagom_xla.passes.program import form as form_lib


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Way:
  """How a step is compiled for CPUs.

  All-reduces are put end to end up to `group_bytes`, and larger ones stay
  alone, as all do with 0; None leaves XLA's one tuple of all. In order,
  collectives are put behind products. Every chain of collectives and products
  is cut in `num_pieces`, where it can be.
  """

  __pydantic_config__ = validation.STRICT

  group_bytes: Annotated[int, pydantic.Field(ge=0, le=2**63 - 1)] | None = None
  is_ordered: bool = False
  strands: form_lib.Strands = "none"
  num_pieces: validation.Count = 1

  @property
  def has_passes(self) -> bool:
    """Whether passes in XLA's pipeline make it."""
    return self.is_ordered or self.group_bytes is not None

  @property
  def is_as_written(self) -> bool:
    """Whether its program is what was written."""
    return self.strands == "none" and self.num_pieces == 1


AS_XLA_DOES = Way()


def to_bytes(way: Way) -> bytes:
  """The payload of a proposal; equal ways have equal ones."""
  return json.dumps(validation.write(way), sort_keys=True).encode()


def from_bytes(payload: bytes) -> Way:
  """The way that a payload describes."""
  return validation.read(Way, json.loads(payload))


def in_words(way: Way) -> str:
  """A way in a few words, such as "strands paired, all-reduces one by one"."""
  parts = []
  if way.strands != "none":
    parts.append(f"strands {way.strands}")
  if way.num_pieces > 1:
    parts.append(f"chains in {way.num_pieces} pieces")
  if way.group_bytes:
    kib = way.group_bytes / 1024
    parts.append(f"all-reduces end to end up to {kib:,.0f} KiB")
  elif way.group_bytes is not None:
    parts.append("all-reduces one by one")
  if way.is_ordered:
    parts.append("collectives behind products")
  return ", ".join(parts) or "as XLA does"
