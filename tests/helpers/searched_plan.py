# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Plans from a search, for steps as small as those of tests."""

from __future__ import annotations

import dataclasses
import pathlib
from typing import Any
from unittest import mock

import jax

import fake_target
from lagom_xla import cluster as cluster_lib
from lagom_xla import plan as plan_lib
from lagom_xla.apply.nccl import table as table_lib
from lagom_xla.compile import config as config_lib
from lagom_xla.compile import target as target_lib
from lagom_xla.costs import uncertainty
from lagom_xla.search.xla import arms
from lagom_xla.tuner import tuner
from lagom_xla.verify import verification as verification_lib

H100 = cluster_lib.parse("1x8xh100")


@dataclasses.dataclass(frozen=True)
class Tuned:
  target: target_lib.Target
  plan: plan_lib.Plan


def plan_of(target: target_lib.Target) -> plan_lib.Plan:
  """The plan if the cost model is right, without recipes.

  With uncertainty, no change would be sure for such small steps; and with a
  recipe, NCCL's own choices are the best.
  """
  with (
    mock.patch.object(uncertainty, "scenarios", return_value=()),
    mock.patch.object(arms, "known", return_value=arms.Known(arms=())),
  ):
    return tuner.tune(target).plan


def search_unrolled(lowered: jax.stages.Lowered) -> Tuned:
  """The result of a search for the unrolled layers of conftest."""
  target = target_lib.of_step(lowered, H100, name="unrolled")
  target = fake_target.schedule_only(target)
  return Tuned(target, plan_of(target))


def verify_with(
  tuned: Tuned, *, told: Any = None, **changes: Any
) -> verification_lib.Verification:
  """Verifies the plan with changed fields; `told` replaces its XlaConfig."""
  if told is not None:
    changes["xla"] = config_lib.XlaConfig(**told)
  plan = dataclasses.replace(tuned.plan, **changes)
  return verification_lib.verify(plan, tuned.target)


def exchange_settings(table: pathlib.Path) -> None:
  """Gives a plan's NCCL table other settings."""
  rules = table_lib.decode(table.read_bytes(), where="").rules
  fewer = dataclasses.replace(rules[0], num_channels=1)
  table.write_bytes(table_lib.encode([fewer, *rules[1:]]))
