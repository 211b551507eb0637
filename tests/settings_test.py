# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""The settings of a step are what the chosen searcher finds, or NCCL's own."""

from __future__ import annotations

from typing import Any

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


class _StartAlone(searcher_lib.Searcher[None]):
  """Tries nothing but the start."""

  def _begin(self, problem: Any, cluster: Any, start: Any, seed: int) -> None:
    pass

  def _next(self, state: Any, profile: Any) -> tuple[None, None]:
    return None, None


@pytest.fixture
def known(monkeypatch: pytest.MonkeyPatch) -> None:
  """The cost model is taken to be right."""
  monkeypatch.setattr(uncertainty, "scenarios", lambda cluster: ())


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
