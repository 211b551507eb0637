# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Idle times of a device: when none of its kernels ran."""

from __future__ import annotations

import bisect
from collections.abc import Iterator, Sequence
import itertools

from lagom_xla.profiling import events as events_lib
from lagom_xla.profiling import steps as steps_lib

# Begin and end, in microseconds.
Span = tuple[float, float]


def union(events: Sequence[events_lib.Event]) -> list[Span]:
  """The times in which any of these ran, in order and apart."""
  spans: list[Span] = []
  for event in sorted(events, key=lambda e: e.begin_us):
    if spans and event.begin_us <= spans[-1][1]:
      spans[-1] = spans[-1][0], max(spans[-1][1], event.end_us)
    else:
      spans.append((event.begin_us, event.end_us))
  return spans


def of_step(step: steps_lib.DeviceStep) -> Iterator[Span]:
  """The times of a step in which no kernel ran."""
  last = step.begin_us
  for begin, end in union(step.kernels):
    if begin > last:
      yield last, begin
    last = end
  if step.end_us > last:
    yield last, step.end_us


def common_us(spans: Sequence[Span], begin_us: float, end_us: float) -> float:
  """How much of a time lies in any of these, which are in order and apart."""
  common_us = 0.0
  first = bisect.bisect_right(spans, begin_us, key=lambda span: span[1])
  for begin, end in itertools.islice(spans, first, None):
    if begin >= end_us:
      break
    common_us += min(end, end_us) - max(begin, begin_us)
  return common_us
