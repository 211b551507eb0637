# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""The settings of a step are what the chosen searcher finds, or NCCL's own."""

from __future__ import annotations

import dataclasses

import pytest

from lagom_xla import cluster as cluster_lib
from lagom_xla.costs import step as step_lib
from lagom_xla.costs import uncertainty
from lagom_xla.passes import hlo
from lagom_xla.search import nccl as nccl_search
from lagom_xla.search.nccl import searcher as searcher_lib
from lagom_xla.search.nccl import settings


@pytest.fixture
def step(fsdp_unrolled: hlo.Module) -> step_lib.Step:
  cluster = cluster_lib.parse("1x8xh100")
  return step_lib.of_module(fsdp_unrolled, cluster)


class _StartAlone(searcher_lib.Searcher):
  """Tries nothing but the start."""

  def trials(self, problem, cluster, start, first, seed):
    yield from ()


@pytest.fixture
def known(monkeypatch: pytest.MonkeyPatch) -> None:
  """The cost model is taken to be right."""
  monkeypatch.setattr(uncertainty, "scenarios", lambda cluster, measured: ())


@pytest.mark.usefixtures("known")
@pytest.mark.parametrize("name", nccl_search.SEARCHERS)
def test_a_searcher_is_chosen_by_its_name(step, name):
  found = settings.search(step, nccl_search.SEARCHERS[name])
  default_us = step.timeline(step.default).step_time_us
  assert step.timeline(found.configuration).step_time_us < default_us


@pytest.mark.usefixtures("known")
def test_balance_searches_if_nothing_else_is_said(step):
  assert settings.search(step) == settings.search(
    step, nccl_search.SEARCHERS["balance"]
  )
  assert settings.search(step) != settings.search(
    step, nccl_search.SEARCHERS["lagom"]
  )


def test_what_no_search_improves_is_left_to_nccl(step):
  found = settings.search(step, _StartAlone())
  assert found.configuration == step.default


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Counting(nccl_search.Balance):
  """Balance, which writes down the searches that it begins."""

  told: list[float] = dataclasses.field(default_factory=list, compare=False)

  def trials(self, problem, cluster, start, first, seed):
    self.told.append(first.total_us)
    return super().trials(problem, cluster, start, first, seed)


def test_overlaps_that_another_schedule_has_too_are_searched_once(
  step, fsdp_unrolled
):
  searcher = _Counting(least_gain=0.0123)  # One that no other test asks.
  first = settings.search(step, searcher)
  num_told = len(searcher.told)
  assert num_told > 0
  again = step_lib.of_module(fsdp_unrolled, step.cluster)
  assert settings.search(again, searcher) == first
  assert len(searcher.told) == num_told
