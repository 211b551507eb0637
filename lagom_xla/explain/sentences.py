# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Sentences on the parts of an exposed time, with names and source lines."""

from __future__ import annotations

from collections.abc import Mapping

from lagom_xla.costs import in_words
from lagom_xla.explain import arrays
from lagom_xla.explain import explanation as explanation_lib
from lagom_xla.explain import parts as parts_lib
from lagom_xla.explain import subject as subject_lib
from lagom_xla.explain import sync

_ms = in_words.milliseconds
# Parts that a sentence has room for, and the least share that is worth it.
_MOST_PARTS = 2
_LEAST_SHARE = 0.1


def of_parts(exposed_us: float, parts: tuple[explanation_lib.Part, ...]) -> str:
  """The largest parts in one sentence; "" where nothing is exposed.

  Args:
    exposed_us: their sum.
    parts: of a collective, the largest first.
  """
  if exposed_us <= 0 or not parts:
    return ""
  shown = [
    part for part in parts[:_MOST_PARTS] if part.us >= _LEAST_SHARE * exposed_us
  ] or list(parts[:1])
  said = "; ".join(f"{_ms(p.us)}: {p.sentence}" for p in shown)
  rest_us = exposed_us - sum(part.us for part in shown)
  more = f"; {_ms(rest_us)} for other reasons" if rest_us > 0.5 else ""
  return f"{said}{more}."


def of_part(subject: subject_lib.Subject, reason: parts_lib.Reason) -> str:
  """What a part of a collective's exposed time is due to, without a full stop.

  Args:
    subject: the collective.
    reason: one of its parts.
  """
  match reason:
    case "slowed":
      return "kernels beside it take memory bandwidth from it"
    case "queue":
      return (
        f"{_most(subject.parts.ahead_us)} was ahead of it on the communication"
        " stream"
      )
    case "sync":
      return f"it is sync: {sync.why(subject)}"
    case "started_late":
      return (
        f"its operands are there {_since(subject)}, and XLA starts it later"
      )
    case "awaited_early":
      return f"XLA waits for it earlier than {_need(subject)}"
    case "combined":
      return arrays.sentence(subject)
    case "operand_late":
      return (
        f"its operand comes late, {_since(subject)}; independent kernels before"
        " that could have hidden it"
      )
    case "consumer_early":
      return (
        f"it is needed early, {_by(subject)}; independent kernels after that"
        " could have hidden it"
      )
    case "stream_busy":
      return (
        "the kernels that could hide it hide others, such as"
        f" {_most(subject.parts.beside_us)}"
      )
    case "too_long":
      return _too_long(subject)
    case "no_slack":
      return (
        "no slack: all kernels of its computation either come before it or"
        " wait for it"
      )


def _too_long(subject: subject_lib.Subject) -> str:
  lone_us = subject.lone_us * subject.collective.executions
  return (
    f"it takes {_ms(lone_us)}, and all kernels that are independent of it"
    f" {_ms(subject.parts.hideable_us)}"
  )


def _since(subject: subject_lib.Subject) -> str:
  if subject.maker is None:
    return f"from the beginning of {subject.collective.computation}"
  return f"after {subject.named(subject.maker)}"


def _need(subject: subject_lib.Subject) -> str:
  if subject.user is None:
    return f"the end of {subject.collective.computation} needs it"
  return f"{subject.named(subject.user)} needs it"


def _by(subject: subject_lib.Subject) -> str:
  if subject.user is None:
    return f"at the end of {subject.collective.computation}"
  return f"by {subject.named(subject.user)}"


def _most(others_us: Mapping[str, float]) -> str:
  """The other collective that most is due to."""
  if not others_us:
    return "another"
  name = max(others_us, key=lambda other: others_us[other])
  more = len(others_us) - 1
  return f"{name} (and {more:,} more)" if more else name
