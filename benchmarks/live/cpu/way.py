# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Way of running a step on CPUs, as data: what a proposal's payload holds."""

from __future__ import annotations

import dataclasses
import json
from typing import Annotated

import pydantic

from lagom_xla import errors
from lagom_xla import validation
from lagom_xla.passes.program import form as form_lib

_KIB = 1 << 10


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Way:
  """How a step is compiled for CPUs.

  Attributes:
    group_bytes: all-reduces are put end to end up to so many bytes, and larger
      ones stay alone, as all do with 0; null leaves XLA's one tuple of all.
    is_ordered: whether collectives are put behind products.
    strands: as in `program.form.Form`.
    num_pieces: that every chain of collectives and products is cut into, where
      it can be; 1 cuts none.
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
  def form(self) -> tuple[form_lib.Strands, int]:
    """How its program differs from what was written: strands and pieces."""
    return self.strands, self.num_pieces

  @property
  def is_as_written(self) -> bool:
    """Whether its program does not."""
    return self.form == ("none", 1)


AS_XLA_DOES = Way()


def to_bytes(way: Way) -> bytes:
  """The payload of a proposal; equal ways have equal ones."""
  return json.dumps(validation.write(way), sort_keys=True).encode()


def from_bytes(payload: bytes) -> Way:
  """The way that a payload describes.

  Raises:
    PlanError: it is none.
  """
  try:
    return validation.read(Way, json.loads(payload))
  except ValueError as error:
    raise errors.PlanError(
      f"A proposal for CPUs cannot be read: {errors.first_line(error)};"
      " have all processes of the job run one version of lagom_xla."
    ) from error


def in_words(way: Way) -> str:
  """A way in a few words, such as "gradients up to 4 MiB as one"."""
  parts = []
  if way.strands != "none":
    parts.append(f"strands {way.strands}")
  if way.num_pieces > 1:
    parts.append(f"chains in {way.num_pieces} pieces")
  if way.group_bytes is not None:
    parts.append(_groups_in_words(way.group_bytes))
  if way.is_ordered:
    parts.append("collectives behind products")
  return ", ".join(parts) or "as XLA does"


def _groups_in_words(group_bytes: int) -> str:
  if not group_bytes:
    return "all-reduces one by one"
  return f"all-reduces end to end up to {group_bytes / _KIB:,.0f} KiB"
