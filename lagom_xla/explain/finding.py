# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""The finding of a collective in an explanation, by its name."""

from __future__ import annotations

import dataclasses
import difflib

from lagom_xla import errors
from lagom_xla.explain import explanation as explanation_lib
from lagom_xla.explain import words

_MOST_NEAR = 3


def find(
  explanation: explanation_lib.Explanation, name: str
) -> tuple[explanation_lib.Step, explanation_lib.Collective]:
  """The collective of a name, and the step that has it.

  That is the step as it runs today; the one with the plan if only that has it.

  Raises:
    UnknownCollectiveError: neither has; the message says which names are near.
  """
  steps = [explanation.before]
  if explanation.after is not None:
    steps.append(explanation.after)
  names = []
  for step in steps:
    for collective in step.collectives:
      if collective.name == name:
        return step, collective
      names.append(collective.name)
  near = difflib.get_close_matches(name, dict.fromkeys(names), n=_MOST_NEAR)
  shown = near or [c.name for c in explanation.before.collectives[:_MOST_NEAR]]
  raise errors.UnknownCollectiveError(
    f"{explanation.module_name} has no collective {name!r}; "
    + (
      f"{'the nearest names are' if near else 'it has'} {words.some(shown)}."
      if shown
      else "it has none at all."
    )
  )


def only(
  explanation: explanation_lib.Explanation, name: str
) -> explanation_lib.Explanation:
  """An explanation without the collectives of other names.

  Raises:
    UnknownCollectiveError: neither step has it.
  """
  find(explanation, name)

  def of_name(step: explanation_lib.Step) -> explanation_lib.Step:
    named = tuple(c for c in step.collectives if c.name == name)
    return dataclasses.replace(step, collectives=named)

  after = explanation.after
  return dataclasses.replace(
    explanation,
    before=of_name(explanation.before),
    after=None if after is None else of_name(after),
  )
