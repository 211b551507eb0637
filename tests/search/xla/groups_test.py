# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Searched combine groups are ones that XLA can make, and does."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
import dataclasses
import functools
import itertools
from typing import Any

import jax
import pytest

import fake_target
from lagom_xla import cluster as cluster_lib
from lagom_xla.compile import compiler
from lagom_xla.compile import config as config_lib
from lagom_xla.compile import lowered as lowered_lib
from lagom_xla.compile import target as target_lib
from lagom_xla.costs import step as step_lib
from lagom_xla.flags import nccl_channels
from lagom_xla.flags import options as xla_options
from lagom_xla.passes import collectives as collectives_lib
from lagom_xla.passes import combine
from lagom_xla.passes import hlo
from lagom_xla.passes.combine import combinable
from lagom_xla.search.nccl.balance import Balance
from lagom_xla.search.xla import candidates
from lagom_xla.search.xla import evaluation
from lagom_xla.search.xla import groups as groups_lib
from lagom_xla.search.xla import joint
from lagom_xla.xla_schedule import reschedule

_H100 = cluster_lib.parse("1x8xh100")


@dataclasses.dataclass(frozen=True)
class _Case:
  """A target with options, scheduled with every collective alone."""

  step: lowered_lib.LoweredStep
  target: target_lib.Target
  options: dict[str, Any]
  apart: hlo.Module


def _pipelined() -> dict[str, Any]:
  """All-gathers pipelined, as the installed jaxlib spells it."""
  found = xla_options.translate("xla_gpu_enable_pipelined_all_gather", True)
  assert not isinstance(found, str), found
  name, value = found
  assert not isinstance(value, float)
  return {name: value}


def _double_buffered() -> dict[str, Any]:
  return {"xla_gpu_enable_while_loop_double_buffering": True}


_OPTIONS: Mapping[str, Callable[[], dict[str, Any]]] = {
  "pipelined": _pipelined,
  "double-buffered": _double_buffered,
}


@pytest.fixture(scope="module")
def case(
  fsdp_step: Callable[..., jax.stages.Lowered],
  tp_step: jax.stages.Lowered,
) -> Callable[..., _Case]:
  made: dict[str, _Case] = {}

  def make(name: str) -> _Case:
    if name not in made:
      lowered = (
        tp_step if name == "tp" else fsdp_step(unroll=name == "unrolled")
      )
      options = _OPTIONS.get(name, dict)()
      # Its schedule is all that is asked for.
      step = target_lib.of_step(lowered, _H100, name=name)
      target = fake_target.schedule_only(step)
      apart = target.schedule(
        config_lib.XlaConfig(options=options, combine_groups=())
      )
      made[name] = _Case(step.lowered, target, options, apart)
    return made[name]

  return make


_CASES = ["scan", "unrolled", "tp", "pipelined", "double-buffered"]


@pytest.fixture(scope="module")
def search(case: Callable[[str], _Case]) -> Callable[..., groups_lib.Result]:
  @functools.cache
  def found(name: str, max_predictions: int = 30) -> groups_lib.Result:
    return groups_lib.search(
      case(name).apart, _H100, max_predictions=max_predictions
    )

  return found


def _in_order(module: hlo.Module) -> list[str]:
  """Labels in the order in which their collectives are first started."""
  labels = combine.labels(module)
  starts = [labels[c.name][0] for c in collectives_lib.find(module)]
  return list(dict.fromkeys(starts))


@pytest.mark.parametrize("name", _CASES)
def test_groups_are_ones_that_the_module_can_have(case, name, search):
  config = config_lib.XlaConfig(options=case(name).options)
  found = combinable.find(compiler.before_combining(case(name).step, config))
  for max_predictions in (4, 30):
    combinable.check(found, search(name, max_predictions).groups)


@pytest.mark.parametrize("name", _CASES)
def test_groups_are_disjoint_runs_of_collectives_of_a_kind(case, name, search):
  module = case(name).apart
  kind_of = {
    combine.labels(module)[c.name][0]: c.kind
    for c in collectives_lib.find(module)
  }
  groups = search(name).groups
  grouped = [label for group in groups for label in group]
  assert len(set(grouped)) == len(grouped)
  order = _in_order(module)
  for group in groups:
    assert len(group) > 1
    (kind,) = {kind_of[label] for label in group}
    alike = [label for label in order if kind_of[label] == kind]
    at = alike.index(group[0])
    assert tuple(alike[at : at + len(group)]) == group


def test_unrolled_layers_have_something_to_group(case, search):
  assert len(search("unrolled").groups) > 1


def test_what_stands_alone_has_no_groups(case, search):
  # The two all-reduces of a layer are in loops of their own.
  found = search("tp")
  assert found == groups_lib.Result(groups=(), num_predicted=1)


@pytest.mark.parametrize("name", ["unrolled", "double-buffered"])
def test_the_same_module_gives_the_same_groups(case, name, search):
  again = groups_lib.search(case(name).apart, _H100, max_predictions=30)
  assert again == search(name)


@pytest.mark.parametrize("max_predictions", [1, 2, 3, 4, 10, 25])
def test_no_more_is_predicted_than_allowed(case, monkeypatch, max_predictions):
  real = reschedule.reschedule
  predicted = []

  def counted(*args, **kwargs):
    predicted.append(1)
    return real(*args, **kwargs)

  monkeypatch.setattr(reschedule, "reschedule", counted)
  module = case("unrolled").apart
  found = groups_lib.search(module, _H100, max_predictions=max_predictions)
  assert len(predicted) == found.num_predicted <= max_predictions


def test_more_predictions_are_never_worse(case, search):
  times_us = [
    _predicted_us(case("unrolled").apart, search("unrolled", n).groups)
    for n in (1, 4, 10, 30)
  ]
  assert times_us == sorted(times_us, reverse=True)
  assert times_us[-1] < times_us[0]


def _predicted_us(
  apart: hlo.Module,
  groups: combine.Groups,
  max_channels: int | None = None,
) -> float:
  """Step time of a module without copies, under NCCL's own choices."""
  name_of = {label: name for name, (label,) in combine.labels(apart).items()}
  assert len(name_of) == len(combine.labels(apart))
  names = [[name_of[label] for label in group] for group in groups]
  return _step_time_us(reschedule.reschedule(apart, names, _H100), max_channels)


def _step_time_us(module: hlo.Module, max_channels: int | None = None) -> float:
  step = step_lib.of_module(module, _H100, max_channels=max_channels)
  return step.timeline(step.default).step_time_us


def test_groups_are_predicted_no_worse_than_all_together_or_all_apart(
  case, search
):
  module = case("unrolled").apart
  found_us = _predicted_us(module, search("unrolled").groups)
  by_kind: dict[object, list[str]] = {}
  for chain in groups_lib.combinable_chains(module):
    by_kind[chain] = [member.label for member in chain]
  for groups in ((), tuple(map(tuple, by_kind.values()))):
    assert found_us <= _predicted_us(module, groups) * (1 + 1e-9)


def test_groups_are_those_for_the_channels_that_a_process_has(
  case, monkeypatch, search
):
  module = case("unrolled").apart
  monkeypatch.setenv("XLA_FLAGS", f"--{nccl_channels.OPTION}=2")
  capped = groups_lib.search(module, _H100, max_predictions=30).groups
  free = search("unrolled").groups
  for most, best, other in ((2, capped, free), (None, free, capped)):
    best_us = _predicted_us(module, best, most)
    assert best_us < _predicted_us(module, other, most)


def test_what_has_no_label_is_left_alone(fsdp_unrolled):
  # Scheduled without groups, no collective says what it holds.
  found = groups_lib.search(fsdp_unrolled, _H100, max_predictions=10)
  assert found.groups == ()


# As XLA compiles them.


def _held(step: step_lib.Step, groups: combine.Groups) -> Counter:
  """What each scheduled collective holds, with how many of them do."""
  module = step.analysis.module
  return Counter(combine.labels(module, groups).values())


@pytest.mark.parametrize("name", _CASES)
def test_xla_makes_the_groups_that_were_found(case, name, search):
  groups = search(name).groups
  config = config_lib.XlaConfig(
    options=case(name).options, combine_groups=groups
  )
  made = evaluation.evaluate(
    config, target=case(name).target, searcher=Balance()
  )
  assert isinstance(made, candidates.Candidate), made.reason
  grouped = set(itertools.chain(*groups))
  alone = Counter(combine.labels(case(name).apart).values())
  held = _held(made.step, groups)
  assert set(held) == {
    *groups,
    *(one for one in alone if one[0] not in grouped),
  }
  # XLA combines first, and then copies what is in loops.
  for members, num_copies in held.items():
    assert num_copies == alone[members[:1]]


@pytest.mark.parametrize("name", ["pipelined", "double-buffered"])
def test_the_copies_that_a_loop_has_of_a_collective_count_as_one(
  case, name, search
):
  labels = Counter(combine.labels(case(name).apart).values())
  assert max(labels.values()) > 1
  groups = search(name).groups
  assert groups
  for group in groups:
    assert len(set(group)) == len(group)


def test_a_joint_search_compiles_the_groups_that_it_found(case):
  found = joint.search(_without_donation(case("unrolled")), in_process=True)
  (candidate,) = [
    c
    for c in found.others
    if isinstance(c, candidates.Candidate)
    and c.config.combine_groups
    and c.config.scheduler_profile is None
  ]
  groups = candidate.config.combine_groups
  assert groups is not None and len(groups) > 1
  held = _held(candidate.step, groups)
  assert {members for members in held if len(members) > 1} == set(groups)
  assert (
    candidate.under_nccl_defaults.step_time_us
    < found.default.under_nccl_defaults.step_time_us
  )


def _without_donation(case: _Case) -> target_lib.Target:
  """The same step with arguments of its own: no JAX refuses it groups."""
  module = case.target.identity()
  proto = type(module.proto)()
  proto.CopyFrom(module.proto)
  proto.ClearField("input_output_alias")
  proto.ClearField("buffer_donor")
  kept = hlo.Module(proto, module.num_partitions)
  return target_lib.of_module(kept, _H100, name="step")


def test_groups_that_xla_cannot_make_are_recorded_and_not_raised(case):
  target = case("unrolled").target
  groups = (("no-such-collective", "nor-this"),)
  config = config_lib.XlaConfig(combine_groups=groups)
  refused = evaluation.evaluate(config, target=target, searcher=Balance())
  assert isinstance(refused, candidates.Refused)
  assert refused.config == config
  assert "no-such-collective" in refused.reason
