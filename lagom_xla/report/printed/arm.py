# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""An arm in JSON: a config that a user could run without a plan."""

from __future__ import annotations

from collections.abc import Mapping
import dataclasses

from lagom_xla.report.wording import arm_rows as arms_tables
from lagom_xla.report.wording import compared
from lagom_xla.search.xla import arms as arms_lib
from lagom_xla.search.xla import candidates as candidates_lib


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Arm:
  """What could be run without a plan; times are predicted.

  Times are None where it was refused or not tried.

  Attributes:
    name: of what runs today, or of a recipe.
    source: where it is published; "" for what is not.
    notes: what else should be known of it, in sentences.
    xla_options: XLA option -> value.
    failure: why XLA refused it; None where it did not.
    step_time_us: under NCCL's own choices.
    tuned_step_time_us: with searched settings; None also where none were
      searched, as the step is slower than today's without them.
  """

  name: str
  source: str
  notes: tuple[str, ...]
  xla_options: Mapping[str, bool | int | float | str]
  failure: str | None
  step_time_us: float | None
  tuned_step_time_us: float | None


def of_search(search: candidates_lib.Search) -> tuple[Arm, ...]:
  """All arms, what runs today first."""
  return tuple(_arm(arm, found) for arm, found in arms_tables.rows(search))


def _arm(arm: arms_lib.Arm, found: arms_tables.Found) -> Arm:
  taken = found if isinstance(found, candidates_lib.Candidate) else None
  refused = found if isinstance(found, candidates_lib.Refused) else None
  return Arm(
    name=arm.name,
    source=arm.source,
    notes=tuple(arm.notes),
    xla_options=arm.config.options,
    failure=refused.reason if refused else None,
    step_time_us=taken.under_nccl_defaults.step_time_us if taken else None,
    tuned_step_time_us=compared.tuned_us(taken) if taken else None,
  )
