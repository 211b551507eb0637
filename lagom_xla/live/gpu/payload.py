# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Payload of a proposal on GPUs: an XlaConfig, and whether XLA survived it."""

from __future__ import annotations

import dataclasses
import json

from lagom_xla import errors
from lagom_xla import validation
from lagom_xla.compile import config as config_lib
from lagom_xla.compile import rewriting
from lagom_xla.passes.schedule import orders as orders_lib


@dataclasses.dataclass(frozen=True, kw_only=True)
class Payload:
  """What every process of a job compiles a proposal from.

  Attributes:
    xla: what XLA gets beside the step.
    is_proven: whether another process has compiled it as far as that goes
      without a GPU, and survived.
  """

  __pydantic_config__ = validation.STRICT

  xla: config_lib.XlaConfig
  is_proven: bool

  def to_bytes(self) -> bytes:
    """As a proposal has it."""
    return json.dumps(validation.write(self), sort_keys=True).encode()


def read(payload: bytes) -> Payload:
  """Reads a payload back.

  Raises:
    PlanError: it is none.
  """
  try:
    return validation.read(Payload, json.loads(payload))
  except (ValueError, validation.InvalidError) as error:
    raise errors.PlanError(
      f"What another process proposes is no config for XLA: {error}. Run one"
      " version of lagom_xla on all processes."
    ) from error


def in_words(config: config_lib.XlaConfig) -> str:
  """A config in a few words, such as "2 XLA options, 5 combine groups"."""
  parts = []
  if config.options:
    parts.append(_counted(len(config.options), "XLA option"))
  if config.combine_groups is not None:
    parts.append(_counted(len(config.combine_groups), "combine group"))
  if not config.program.is_as_written:
    parts.append(rewriting.in_words(config.program))
  if config.scheduler_profile is not None:
    parts.append("costs for XLA's scheduler")
  if config.orders:
    parts.append(orders_lib.in_words(config.orders))
  return ", ".join(parts) or "XLA's defaults"


def _counted(number: int, noun: str) -> str:
  return f"{number} {noun}{'' if number == 1 else 's'}"
