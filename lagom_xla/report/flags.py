# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Flags in JSON: those of a plan, an XLA_FLAGS checked, and both merged.

What `lagom-xla flags --format=json` prints: with PLAN, with --check, and with
PLAN and --merge.
"""

from __future__ import annotations

from collections.abc import Mapping
import dataclasses

from lagom_xla import plan as plan_lib
from lagom_xla import validation
from lagom_xla.flags import check as check_lib
from lagom_xla.flags import merge as merge_lib
from lagom_xla.flags import options as xla_options


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Planned:
  """The flags and variables of a plan.

  Attributes:
    xla_flags: what XLA_FLAGS should have.
    messages: what was translated or left out for the installed jaxlib.
    nccl_env: NCCL's environment variables.
  """

  __pydantic_config__ = validation.STRICT

  xla_flags: str
  messages: tuple[str, ...]
  nccl_env: Mapping[str, str]


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Checked:
  """What was found in an XLA_FLAGS.

  Attributes:
    jaxlib_version: of the jaxlib that it was checked against.
    num_flags: number of flags that XLA reads.
    findings: in the order of the flags.
    suggestion: flags that say what was meant and that jaxlib takes.
    is_fatal: whether XLA would end the process; the exit status is then 1.
  """

  __pydantic_config__ = validation.STRICT

  jaxlib_version: str
  num_flags: int
  findings: tuple[check_lib.Finding, ...]
  suggestion: str
  is_fatal: bool


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Merged:
  """The XLA_FLAGS that is set, with the flags and variables of a plan.

  Attributes:
    entries: the merged flags, in order.
    messages: a sentence for each flag that was translated or left out.
    xla_flags: what XLA_FLAGS should be.
    nccl_env: NCCL's environment variables.
  """

  __pydantic_config__ = validation.STRICT

  entries: tuple[merge_lib.Entry, ...]
  messages: tuple[str, ...]
  xla_flags: str
  nccl_env: Mapping[str, str]


# What `lagom-xla flags --format=json` prints.
Flags = Planned | Checked | Merged


def of_plan(plan: plan_lib.Plan) -> Planned:
  """What a plan sets."""
  flags = xla_options.flags(plan.xla.options)
  return Planned(
    xla_flags=" ".join(map(str, flags.flags)),
    messages=flags.messages,
    nccl_env=plan.nccl_env,
  )


def of_check(report: check_lib.Report) -> Checked:
  """What was found in an XLA_FLAGS."""
  return Checked(
    jaxlib_version=report.jaxlib_version,
    num_flags=report.num_flags,
    findings=report.findings,
    suggestion=report.suggestion,
    is_fatal=report.is_fatal,
  )


def of_merge(merged: merge_lib.Merged, plan: plan_lib.Plan) -> Merged:
  """What an XLA_FLAGS and a plan make together."""
  return Merged(
    entries=merged.entries,
    messages=merged.messages,
    xla_flags=merged.xla_flags,
    nccl_env=plan.nccl_env,
  )
