# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""A verification in JSON: what each knob of a plan did on this compile.

What `lagom-xla verify --format=json` prints.
"""

from __future__ import annotations

import dataclasses
from typing import Any

from lagom_xla import plan as plan_lib
from lagom_xla import validation
from lagom_xla.flags import environment
from lagom_xla.verify import effects as effects_lib
from lagom_xla.verify import verification as verification_lib


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Verification:
  """What a plan was seen to do.

  Attributes:
    module_name: name of the HLO module.
    cluster: its name.
    xla_flags: what `XLA_FLAGS` was, in one line; "" for none.
    default_us: predicted step time without the plan, on this compile.
    planned_us: predicted step time with all of it.
    default_range_us: what the plan holds of the step without it.
    gain_us: what the plan holds of what all of it that is applied gains.
    effects: what each knob did.
  """

  __pydantic_config__ = validation.STRICT

  module_name: str
  cluster: str
  xla_flags: str
  default_us: float
  planned_us: float
  default_range_us: plan_lib.Range
  gain_us: plan_lib.Range
  effects: tuple[effects_lib.Effect, ...]


def of_verification(verified: verification_lib.Verification) -> Verification:
  """What is to be said of a plan that was verified."""
  plan = verified.plan
  return Verification(
    module_name=plan.module_name,
    cluster=plan.cluster.name,
    xla_flags=environment.xla_flags(),
    default_us=verified.default_us,
    planned_us=verified.planned_us,
    default_range_us=plan.prediction.default_range_us,
    gain_us=plan.gain_us,
    effects=verified.effects,
  )


def schema() -> dict[str, Any]:
  """The JSON schema of `lagom-xla verify --format=json`."""
  return validation.schema(Verification)
