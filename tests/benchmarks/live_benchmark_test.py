# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""The benchmark of the live loop: its cases, turns, rows and command.

Nothing is timed here, and no hosts are made.
"""

from __future__ import annotations

from typing import Any

import jax
import pytest

from benchmarks.live import __main__ as command
from benchmarks.live import cases
from benchmarks.live import host
from benchmarks.live.cpu import compiling
from lagom_xla.passes import collectives

ADOPTED = {
  "proposal": "gradients in one group",
  "predicted_ratio": 0.5,
  "adopted": True,
}
REJECTED = {
  "proposal": "chains in 4 pieces",
  "predicted_ratio": 0.9,
  "adopted": False,
}
CASE = "many small gradients"


def found(
  *trials: dict[str, Any], chosen: tuple[float, ...] = (1.0, 1.1, 0.9)
) -> list[dict[str, Any]]:
  """What two hosts found; the second one is twice as slow."""
  return [
    {
      "trials": list(trials),
      "num_steps": 120,
      "is_same": True,
      "load": 1.5,
      "seconds": {
        "default": [factor * x for x in (1.0, 1.1, 0.9)],
        "chosen": [factor * x for x in chosen],
      },
    }
    for factor in (1, 2)
  ]


def test_a_row_is_of_what_was_adopted_and_of_the_slower_host():
  row = command.row(
    CASE, 200, found(REJECTED, ADOPTED, chosen=(0.25, 0.275, 0.225))
  )
  assert row["adopted"] == "yes"
  assert row["way"] == ADOPTED["proposal"]
  assert row["predicted_ratio"] == ADOPTED["predicted_ratio"]
  assert row["default_ms"] == pytest.approx(2000)
  for field in ("ratio", "low", "high"):
    assert row[field] == pytest.approx(0.25)
  assert (row["tried"], row["steps"]) == (2, 120)


def test_four_cases_have_to_be_surely_faster_and_none_slower():
  won = found(ADOPTED, chosen=(0.5, 0.55, 0.45))
  names = list(cases.CASES)
  rows = [command.row(name, 200, won) for name in names[:4]]
  # The same case at another rate is no other case.
  again = [*rows[:3], command.row(names[0], 400, won)]
  lost = command.row(names[4], 200, found(ADOPTED, chosen=(1.2, 1.32, 1.08)))

  def are_met(rows: list[dict[str, Any]]) -> list[bool]:
    return [target.is_met for target in command.table_of(rows).targets]

  assert are_met(rows) == [True, True]
  assert are_met(again) == [False, True]
  assert are_met([*rows, lost]) == [True, False]


def test_all_steps_come_first_equally_often_and_each_trains_on():
  made = cases.perceptrons(jax.devices()[:2], num_layers=1, width=8, num_rows=4)
  ran: list[str] = []

  def step(name: str) -> host.Step:
    def run(state: Any, batch: Any) -> Any:
      ran.append(name)
      return made.step(state, batch)

    return run

  steps = {name: step(name) for name in "ab"}
  state, seconds = host.measure(
    made, steps, made.state, num_rounds=4, num_steps=2
  )
  assert "".join(ran) == "aabbbbaaaabbbbaa"
  assert {name: len(each) for name, each in seconds.items()} == {"a": 4, "b": 4}
  assert jax.tree.structure(state) == jax.tree.structure(made.state)


# One of each kind: the others have other sizes.
@pytest.mark.parametrize(
  "name",
  [
    "one all-reduce beside products",
    "many small gradients",
    "tensor-parallel Llama",
    "slices of few tokens",
  ],
)
def test_cases_have_collectives(name: str):
  made = cases.CASES[name].build(jax.devices()[:2])
  lowered = made.step.lower(made.state, made.batches[0])
  assert collectives.find(compiling.schedule(lowered, compiling.AS_XLA_DOES))
