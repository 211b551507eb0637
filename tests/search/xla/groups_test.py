# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""XLA makes the combine groups that the search tries."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
import functools
import itertools
import math

import jax
import pytest

import compiles
import fake_target
from lagom_xla.compile import config as config_lib
from lagom_xla.compile import target as target_lib
from lagom_xla.passes import collectives as collectives_lib
from lagom_xla.passes import combine
from lagom_xla.passes import hlo
from lagom_xla.search.xla import candidates
from lagom_xla.search.xla import evaluation
from lagom_xla.search.xla import groups as groups_lib

LowerStep = Callable[..., jax.stages.Lowered]


def _target(lowered: jax.stages.Lowered) -> target_lib.Target:
  """A step that donates nothing, for which every JAX allows groups."""
  module = compiles.target(lowered).identity()
  proto = type(module.proto)()
  proto.CopyFrom(module.proto)
  proto.ClearField("input_output_alias")
  proto.ClearField("buffer_donor")
  kept = hlo.Module(proto, module.num_partitions)
  return fake_target.schedule_only(
    target_lib.of_module(kept, compiles.H100S, name="step")
  )


def _search(
  lowered: jax.stages.Lowered, until_s: float = math.inf, **options: bool
) -> list[candidates.Candidate]:
  """All configs with groups, first the one without combining."""
  evaluate = functools.partial(evaluation.evaluate, target=_target(lowered))
  default = evaluate(config_lib.XlaConfig(options=options))
  assert isinstance(default, candidates.Candidate), default.reason
  found = groups_lib.search(
    candidates.Search(default=default), evaluate, until_s=until_s
  )
  first, *tried = found.scheduled
  assert first is default and tried == [*found.others]
  assert tried[0].config.combine_groups == ()
  return tried


@pytest.fixture(scope="module", params=["unrolled", "double-buffered"])
def tried(
  request: pytest.FixtureRequest, fsdp_step: LowerStep
) -> list[candidates.Candidate]:
  if request.param == "unrolled":
    return _search(fsdp_step(unroll=True))
  option = "xla_gpu_enable_while_loop_double_buffering"
  return _search(fsdp_step(), **{option: True})


def _labels(candidate: candidates.Candidate) -> Counter[tuple[str, ...]]:
  """The contents of scheduled collectives, with their number."""
  module = candidate.step.analysis.module
  groups = candidate.config.combine_groups
  assert groups is not None
  return Counter(combine.labels(module, groups).values())


def _kinds(alone: candidates.Candidate) -> dict[str, str]:
  """Kinds by label, in the order of first starts."""
  module = alone.step.analysis.module
  labels = combine.labels(module)
  return {
    labels[c.name][0]: c.kind
    for c in collectives_lib.find(module)
    if c.name in labels
  }


def test_groups_are_disjoint_runs_of_collectives_of_a_kind(tried):
  alone, *others = tried
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


def test_xla_combines_exactly_the_groups_that_are_tried(tried, request):
  alone, *others = tried
  copies = _labels(alone)
  has_copies = "double-buffered" in request.node.name
  assert (max(copies.values()) > 1) == has_copies
  for candidate in others:
    groups = candidate.config.combine_groups
    grouped = set(itertools.chain(*groups))
    held = _labels(candidate)
    assert set(held) == {*groups, *(m for m in copies if m[0] not in grouped)}
    # XLA combines first, and then copies what is in loops.
    for members, num_copies in held.items():
      assert num_copies == copies[members[:1]]


def test_chains_are_tried_one_by_one_and_gaining_ones_together(tried):
  alone, *others = tried
  chains = groups_lib.combinable_chains(alone.step.analysis.module)
  assert len(chains) > 1
  at_of = {m.label: at for at, chain in enumerate(chains) for m in chain}

  def chains_of(candidate: candidates.Candidate) -> frozenset[int]:
    groups = candidate.config.combine_groups or ()
    return frozenset(at_of[label] for label in itertools.chain(*groups))

  touched = set(map(chains_of, others))
  assert touched.issuperset(frozenset([at]) for at in range(len(chains)))
  gained = any(
    candidates.tuned_us(c) < candidates.tuned_us(alone) for c in others
  )
  fastest = min(tried, key=candidates.tuned_us)
  assert (len(chains_of(fastest)) > 1) == gained


def test_no_group_is_tried_without_two_collectives_to_combine(tp_step):
  # The two all-reduces of a layer are in separate loops.
  assert len(_search(tp_step)) == 1


def test_no_group_is_compiled_once_the_time_is_up(fsdp_step):
  assert len(_search(fsdp_step(unroll=True), until_s=0.0)) == 1


def test_collectives_without_labels_are_in_no_chain(fsdp_unrolled):
  # Collectives that were scheduled without groups have no labels.
  assert groups_lib.combinable_chains(fsdp_unrolled) == ()


def test_groups_that_xla_cannot_make_are_recorded_as_refused(fsdp_step):
  groups = (("no-such-collective", "nor-this"),)
  config = config_lib.XlaConfig(combine_groups=groups)
  refused = evaluation.evaluate(config, target=_target(fsdp_step()))
  assert isinstance(refused, candidates.Refused)
  assert refused.config == config
  assert "no-such-collective" in refused.reason
