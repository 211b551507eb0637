# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""What a step is compared with: all defaults, or what runs with XLA_FLAGS.

NCCL_MAX_CTAS is no part of it. A plan's table, and its cap, take its place, so
that no time of a plan is under it; reports say what it does to today's step.
"""

from __future__ import annotations

from lagom_xla.costs import in_words
from lagom_xla.costs import step as step_lib
from lagom_xla.flags import environment
from lagom_xla.flags import nccl_channels
from lagom_xla.search.nccl import channel_cap


def words() -> str:
  """What to call it."""
  return "what runs today" if environment.is_set() else "all defaults"


def note() -> str:
  """What XLA_FLAGS makes of it, in a sentence; "" where it is not set."""
  if not environment.is_set():
    return ""
  return f"What runs today is XLA's defaults with {environment.xla_flags()}"


def uncosted() -> str:
  """That NCCL_MAX_CTAS is set, and not costed; "" where it is not set."""
  most = nccl_channels.inherited()
  if most is None:
    return ""
  return f"{nccl_channels.VARIABLE} is {most} here, and no time is under it"


def uncosted_of(step: step_lib.Step) -> str:
  """The same, with the time that a step takes today under NCCL_MAX_CTAS."""
  most = nccl_channels.inherited()
  if most is None:
    return ""
  own = step.capped(None)  # NCCL takes its variable in place of XLA's cap.
  capped = channel_cap.capped(own.default, most)
  time_us = own.timeline(capped).step_time_us
  return (
    f"{uncosted()} but this one: today's step takes {in_words.ms(time_us)} ms"
    f" with it, {step.basis}"
  )
