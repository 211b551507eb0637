# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Searched combine groups are ones that XLA can make, and does."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
import dataclasses
import functools
import itertools
import math

import jax
import pytest

import fake_target
from lagom_xla import cluster as cluster_lib
from lagom_xla.compile import config as config_lib
from lagom_xla.compile import target as target_lib
from lagom_xla.passes import collectives as collectives_lib
from lagom_xla.passes import combine
from lagom_xla.passes import hlo
from lagom_xla.search.nccl.balance import Balance
from lagom_xla.search.xla import candidates
from lagom_xla.search.xla import evaluation
from lagom_xla.search.xla import groups as groups_lib

_H100 = cluster_lib.parse("1x8xh100")


@dataclasses.dataclass(frozen=True)
class _Case:
  """A target, and what a search of its groups finds.

  Attributes:
    target: a step with inputs of its own, for which no JAX refuses groups.
    search: of its groups, until a time by `time.monotonic`.
  """

  target: target_lib.Target
  search: Callable[[float], candidates.Search]

  @functools.cached_property
  def found(self) -> candidates.Search:
    return self.search(math.inf)

  @property
  def tried(self) -> list[candidates.Candidate]:
    """All that has groups of its own, every collective alone first."""
    assert all(isinstance(c, candidates.Candidate) for c in self.found.others)
    return [c for c in self.found.scheduled if c is not self.found.default]


@pytest.fixture(scope="module")
def case(
  fsdp_step: Callable[..., jax.stages.Lowered],
  tp_step: jax.stages.Lowered,
) -> Callable[[str], _Case]:
  @functools.cache
  def made(name: str) -> _Case:
    step = tp_step if name == "tp" else fsdp_step(unroll=name == "unrolled")
    of_step = target_lib.of_step(step, _H100, name=name)
    target = fake_target.schedule_only(_without_donation(of_step))
    options = (
      {"xla_gpu_enable_while_loop_double_buffering": True}
      if name == "double-buffered"
      else {}
    )

    def evaluate(
      config: config_lib.XlaConfig,
    ) -> candidates.Candidate | candidates.Refused:
      return evaluation.evaluate(config, target=target, searcher=Balance())

    def search(until_s: float) -> candidates.Search:
      default = evaluate(config_lib.XlaConfig(options=options))
      assert isinstance(default, candidates.Candidate), default.reason
      so_far = candidates.Search(default=default)
      return groups_lib.search(so_far, evaluate, until_s=until_s)

    return _Case(target, search)

  return made


def _without_donation(step: target_lib.Target) -> target_lib.Target:
  module = step.identity()
  proto = type(module.proto)()
  proto.CopyFrom(module.proto)
  proto.ClearField("input_output_alias")
  proto.ClearField("buffer_donor")
  kept = hlo.Module(proto, module.num_partitions)
  return target_lib.of_module(kept, _H100, name="step")


_WITH_GROUPS = ["unrolled", "double-buffered"]


def _labels(candidate: candidates.Candidate) -> Counter[tuple[str, ...]]:
  """What each scheduled collective holds, with how many of them do."""
  module = candidate.step.analysis.module
  groups = candidate.config.combine_groups
  assert groups is not None
  return Counter(combine.labels(module, groups).values())


def _kinds(alone: candidates.Candidate) -> dict[str, str]:
  """Kinds by label, in the order in which they are first started."""
  module = alone.step.analysis.module
  labels = combine.labels(module)
  return {
    labels[c.name][0]: c.kind
    for c in collectives_lib.find(module)
    if c.name in labels
  }


@pytest.mark.parametrize("name", _WITH_GROUPS)
def test_groups_are_disjoint_runs_of_collectives_of_a_kind(case, name):
  alone, *others = case(name).tried
  assert alone.config.combine_groups == ()
  kinds = _kinds(alone)
  assert others
  for candidate in others:
    groups = candidate.config.combine_groups
    assert groups
    assert max(Counter(itertools.chain(*groups)).values()) == 1
    for group in groups:
      assert len(group) > 1
      (kind,) = {kinds[label] for label in group}
      alike = [label for label, other in kinds.items() if other == kind]
      at = alike.index(group[0])
      assert tuple(alike[at : at + len(group)]) == group


@pytest.mark.parametrize("name", _WITH_GROUPS)
def test_xla_makes_the_groups_that_are_tried(case, name):
  alone, *others = case(name).tried
  copies = _labels(alone)
  for candidate in others:
    groups = candidate.config.combine_groups
    grouped = set(itertools.chain(*groups))
    held = _labels(candidate)
    assert set(held) == {*groups, *(m for m in copies if m[0] not in grouped)}
    # XLA combines first, and then copies what is in loops.
    for members, num_copies in held.items():
      assert num_copies == copies[members[:1]]


def test_every_chain_of_a_step_is_tried_by_itself(case):
  alone, *others = case("unrolled").tried
  chains = groups_lib.combinable_chains(alone.step.analysis.module)
  assert len(chains) > 1
  for chain in chains:
    labels = {member.label for member in chain}
    assert any(
      labels.issuperset(itertools.chain(*c.config.combine_groups))
      for c in others
    )


def test_groups_of_several_chains_that_gained_are_combined(case):
  found = case("unrolled").found
  best = found.best.config.combine_groups
  assert best
  chains = groups_lib.combinable_chains(
    case("unrolled").tried[0].step.analysis.module
  )
  of = {m.label: at for at, chain in enumerate(chains) for m in chain}
  assert len({of[label] for group in best for label in group}) > 1
  assert candidates.tuned_us(found.best) <= min(
    map(candidates.tuned_us, found.scheduled)
  )


def test_the_copies_that_a_loop_has_of_a_collective_count_as_one(case):
  alone, *others = case("double-buffered").tried
  assert max(_labels(alone).values()) > 1
  for candidate in others:
    for group in candidate.config.combine_groups:
      assert len(set(group)) == len(group)


def test_what_stands_alone_is_tried_alone(case):
  # The two all-reduces of a layer are in loops of their own.
  (alone,) = case("tp").tried
  assert alone.config.combine_groups == ()


def test_no_more_is_compiled_once_the_time_is_up(case):
  stopped = case("unrolled").search(0.0)
  (alone,) = stopped.others
  assert alone.config.combine_groups == ()


def test_what_has_no_label_is_in_no_chain(fsdp_unrolled):
  # Scheduled without groups, no collective says what it holds.
  assert groups_lib.combinable_chains(fsdp_unrolled) == ()


def test_groups_that_xla_cannot_make_are_recorded_and_not_raised(case):
  target = case("unrolled").target
  groups = (("no-such-collective", "nor-this"),)
  config = config_lib.XlaConfig(combine_groups=groups)
  refused = evaluation.evaluate(config, target=target, searcher=Balance())
  assert isinstance(refused, candidates.Refused)
  assert refused.config == config
  assert "no-such-collective" in refused.reason
