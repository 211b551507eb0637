# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""A search takes back options that cost once others are beside them."""

from __future__ import annotations

from collections.abc import Mapping

import fake_target
import gather_steps
import hlo_text
from lagom_xla import cluster as cluster_lib
from lagom_xla.compile import config as config_lib
from lagom_xla.passes import hlo
from lagom_xla.search import nccl
from lagom_xla.search.xla import candidates
from lagom_xla.search.xla import drops
from lagom_xla.search.xla import evaluation
from lagom_xla.search.xla import joint

H100 = cluster_lib.parse("1x8xh100")


def _candidate(options: Mapping[str, int]) -> candidates.Candidate:
  """A step that is shorter by a microsecond for each option."""

  def schedule(config: config_lib.XlaConfig) -> hlo.Module:
    start, done = hlo_text.all_gather("all-gather", 2**18)
    return hlo_text.load(f"""
  p = f32[256,256] parameter(0)
  {start}
  {done}
  {hlo_text.kernel("kernel", 100.0 - len(config.options))}
  ROOT result = (f32[256,256]) tuple(kernel)
""")

  return evaluation.evaluate_or_raise(
    config_lib.XlaConfig(options=dict(options)),
    target=fake_target.FakeTarget(
      name="step", cluster=H100, scheduled=schedule
    ),
    searcher=nccl.SEARCHERS["lagom"],
  )


def _dropped(
  default: Mapping[str, int], best: Mapping[str, int]
) -> list[set[str]]:
  search = candidates.Search(default=_candidate(default))
  search = search.with_candidate(_candidate(best))
  return [set(config.options) for _, config in drops.of(search)]


def test_each_option_that_was_added_is_dropped_alone():
  assert _dropped({}, {"a": 1, "b": 1, "c": 1}) == [
    {"b", "c"},
    {"a", "c"},
    {"a", "b"},
  ]


def test_what_the_search_began_with_is_never_dropped():
  assert _dropped({"a": 1}, {"a": 1, "b": 1, "c": 1}) == [
    {"a", "c"},
    {"a", "b"},
  ]
  assert not _dropped({"a": 1}, {"a": 1})


def test_few_options_are_dropped():
  best = {f"option_{i}": 1 for i in range(2 * drops.MOST)}
  assert len(_dropped({}, best)) == drops.MOST


def test_a_search_keeps_less_than_it_added_where_that_is_faster():
  heuristic = "xla_gpu_experimental_enable_heuristic_collective_combining"

  def schedule(config: config_lib.XlaConfig) -> hlo.Module:
    # Each gains when it is added, and the first one costs beside the other.
    gained_us = len(config.options)
    if heuristic in config.options:
      gained_us += 1 if gather_steps.GATHER in config.options else 3
    return gather_steps.module(
      *gather_steps.APART, kernels_us=3.0, tail_us=100.0 - gained_us
    )

  found = joint.search(gather_steps.target(schedule), arms=())
  best = found.best
  added_more = [
    c
    for c in found.scheduled[: found.scheduled.index(best)]
    if best.config.options.items() < c.config.options.items()
  ]
  assert gather_steps.GATHER not in best.config.options
  assert added_more
  assert all(best.tuned.step_time_us < c.tuned.step_time_us for c in added_more)
