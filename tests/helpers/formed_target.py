# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""A target that is faster in some forms, and its compiles in a search."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import fake_target
import hlo_text
from lagom_xla import cluster as cluster_lib
from lagom_xla.compile import config as config_lib
from lagom_xla.passes import hlo
from lagom_xla.passes.program import form as form_lib
from lagom_xla.search.xla import joint
from lagom_xla.search.xla import knobs

H100 = cluster_lib.parse("1x8xh100")
GATHER = knobs.OPTIONS["all-gather"]


def module(kernels_us: list[float], gathers: list[int]) -> hlo.Module:
  """Exposed all-gathers with these numbers of operands, then kernels."""
  lines = [
    line
    for i, num_operands in enumerate(gathers)
    for line in hlo_text.all_gather(f"g.{i}", *[64 * 2**10] * num_operands)
  ]
  lines += [hlo_text.kernel(f"k.{i}", us) for i, us in enumerate(kernels_us)]
  text = ["p = f32[256,256] parameter(0)", *lines, "ROOT end = () tuple()"]
  return hlo_text.load("\n".join(text))


def schedule(config: config_lib.XlaConfig) -> hlo.Module:
  """A step of one kernel, of which a form makes two.

  Together they are shorter if the program is "merged", and much shorter if it
  is "rotated", but then it has many more gathers, which XLA only combines on
  request.
  """
  strands = config.program.strands
  kernels_us = {"merged": 225.0, "rotated": 150.0}.get(strands, 500.0)
  num_gathers = 32 if strands == "rotated" else 8
  combined = GATHER in config.options
  return module(
    [kernels_us] * (1 if strands == "none" else 2),
    [num_gathers] if combined else [1] * num_gathers,
  )


def rewrite(form: form_lib.Form) -> form_lib.Outcome:
  if form.strands == "staggered":
    refusal = form_lib.Refusal(where="train.py:7", reason="it has no loop")
    return form_lib.Outcome(refusals=(refusal,))
  if form.is_as_written or form.keyed:
    return form_lib.Outcome()
  return form_lib.Outcome(actions=("Two loops became one.",))


def target(
  peak_bytes: Callable[[config_lib.XlaConfig], int] | None = None,
) -> fake_target.FakeTarget:
  return fake_target.of(schedule, peak_bytes=peak_bytes, rewritten=rewrite)


def configs(
  schedule: Callable[[config_lib.XlaConfig], hlo.Module],
  rewrite: Callable[[form_lib.Form], form_lib.Outcome],
  seconds: float = 0,
  **others: Any,
) -> list[config_lib.XlaConfig]:
  """The configs compiled in a search over forms, without rounds of feedback."""
  asked: list[config_lib.XlaConfig] = []

  def recorded(config: config_lib.XlaConfig) -> hlo.Module:
    asked.append(config)
    return schedule(config)

  target = fake_target.of(recorded, rewritten=rewrite, **others)
  joint.search(target, arms=(), seconds=seconds, in_process=True)
  return [
    config
    for config in asked
    if config.scheduler_profile is None and config.combine_groups is None
  ]


def acts(*forms: form_lib.Form) -> Callable[..., form_lib.Outcome]:
  return lambda form: form_lib.Outcome(
    actions=("Done.",) if form in forms else ()
  )
