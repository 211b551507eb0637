# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Sync collectives: why XLA runs nothing between a start and its done."""

from __future__ import annotations

from lagom_xla.explain import places
from lagom_xla.explain import subject as subject_lib
from lagom_xla.explain import words


def why(subject: subject_lib.Subject) -> str:
  """Why a sync collective is sync, as far as its schedule shows."""
  if not subject.is_latency_hidden:
    return "XLA's latency-hiding scheduler did not make this schedule"
  if subject.parts.hideable_us <= 0:
    return "no kernel of its computation could run beside it"
  if others := _in_flight(subject):
    return (
      f"{words.some(others)} {'is' if len(others) == 1 else 'are'} in flight"
      " there, and XLA's scheduler keeps one collective in flight by default"
    )
  if "sync" not in subject.parts.us:
    return (
      "in this order no kernel that is independent of it comes between what"
      " makes its operands and what needs its result"
    )
  return (
    "XLA's scheduler put no kernel between its start and its done, by its own"
    " costs"
  )


def _in_flight(subject: subject_lib.Subject) -> list[str]:
  """Other collectives that are started before and awaited after it."""
  computation = subject.place.computation
  found = []
  for other in subject.step.analysis.collectives:
    if other.form != "async" or other.computation != computation.name:
      continue
    begin = computation.position[other.start_id]
    if begin < subject.place.start < places.done_at(computation, other):
      found.append(other.name)
  return found
