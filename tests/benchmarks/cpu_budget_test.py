# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Budgets of searches: no look is begun that might go beyond one."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from benchmarks.live.cpu import proposer


class _Clock:
  now_s = 100.0

  def __call__(self) -> float:
    return self.now_s


def _look(budget: proposer.Budget, clock: _Clock, kind: str, took_s: float):
  with budget.looking(kind):
    clock.now_s += took_s


def test_the_next_look_is_taken_to_be_the_dearest_of_its_kind():
  clock = _Clock()
  budget = proposer.Budget(10.0, clock)
  for took_s in (2.0, 1.0):
    _look(budget, clock, "groups", took_s)
  _look(budget, clock, "strands", 4.5)
  # 2.5 s are left.
  assert budget.has_time("groups")
  assert not budget.has_time("strands")
  assert not budget.has_time("slices"), "as dear as the dearest of all"


def test_what_was_done_between_looks_counts():
  clock = _Clock()
  budget = proposer.Budget(10.0, clock)
  _look(budget, clock, "groups", 2.0)
  clock.now_s += 6.5
  assert not budget.has_time("groups")


@given(
  st.floats(0, 20),
  st.lists(st.tuples(st.sampled_from("ab"), st.floats(0.1, 3)), min_size=1),
)
def test_a_budget_is_passed_by_less_than_what_the_last_look_took(
  most_s: float, looks: list[tuple[str, float]]
):
  clock = _Clock()
  budget = proposer.Budget(most_s, clock)
  last_s = 0.0
  for kind, took_s in looks:
    if not budget.has_time(kind):
      break
    _look(budget, clock, kind, took_s)
    last_s = took_s
  assert clock.now_s - _Clock.now_s <= most_s + last_s + 1e-9


def test_without_a_bound_there_is_always_time():
  clock = _Clock()
  budget = proposer.Budget(None, clock)
  _look(budget, clock, "groups", 1e9)
  assert budget.has_time("groups")
