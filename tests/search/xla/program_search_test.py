# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Forms of the program are tried if they may gain, and judged like the rest."""

from __future__ import annotations

from collections.abc import Callable, Sequence
import functools

import jax
import jax.numpy as jnp
import pytest

import fake_target
import formed_target
from formed_target import acts
import hlo_text
from lagom_xla.compile import config as config_lib
from lagom_xla.compile import target as target_lib
from lagom_xla.costs import step as step_lib
from lagom_xla.passes import hlo
from lagom_xla.passes import registry
from lagom_xla.passes.program import form as form_lib
from lagom_xla.passes.program.slices import chains as chains_lib
from lagom_xla.search.xla import candidates
from lagom_xla.search.xla import evaluation
from lagom_xla.search.xla import forms
from lagom_xla.search.xla import joint
from lagom_xla.tuner import tuner
import strands_step
import tensor_parallel_step

_GIB = 2**30


def _tried(
  found: candidates.Search, strands: str
) -> list[candidates.Candidate | candidates.Refused]:
  return [c for c in found.others if c.config.program.strands == strands]


@pytest.fixture(scope="module")
def found() -> candidates.Search:
  return joint.search(formed_target.target(), in_process=True)


def test_forms_are_not_tried_for_launchers():
  found = joint.search(formed_target.target(), arms=(), seconds=0)
  assert list(found.others) == _tried(found, "none")


def test_each_form_with_an_effect_is_tried_with_the_best_options(found):
  for strands in ("merged", "rotated"):
    first, *_ = _tried(found, strands)
    assert formed_target.GATHER in first.config.options


def test_the_leading_form_is_also_tried_with_default_options(found):
  assert config_lib.XlaConfig(program=found.best.config.program) in [
    c.config for c in found.others
  ]


def test_a_form_that_does_not_apply_is_refused_once_with_the_reason(found):
  (refused,) = _tried(found, "staggered")
  assert isinstance(refused, candidates.Refused)
  assert "train.py:7: it has no loop" in refused.reason


def test_the_best_candidate_combines_a_form_and_options(found):
  best = found.best.config
  assert best.program == form_lib.Form(strands="rotated")
  assert formed_target.GATHER in best.options


def test_launcher_gains_are_predicted_for_the_program_as_written(found):
  target = formed_target.target()
  plan = tuner.plan_of(target, found)
  alone = target.schedule(config_lib.XlaConfig(options=plan.xla.options))
  launched = step_lib.of_module(alone, formed_target.H100)
  assert plan.prediction.xla_us == pytest.approx(
    launched.timeline(launched.default).step_time_us
  )
  assert plan.prediction.xla_us > plan.prediction.nccl_settings_us
  assert plan.needs_process


def test_options_are_also_searched_from_a_form_that_is_still_slower():
  def schedule(config: config_lib.XlaConfig) -> hlo.Module:
    is_coupled = formed_target.GATHER not in config.options
    if config.program.strands == "merged":
      return formed_target.module([350.0], [1] * 32 if is_coupled else [32])
    return formed_target.module([500.0], [1])

  target = fake_target.of(schedule, rewritten=acts(_MERGED))
  found = joint.search(target, arms=(), in_process=True)
  first, *_ = _tried(found, "merged")
  assert isinstance(first, candidates.Candidate)
  assert first.tuned.step_time_us > found.default.tuned.step_time_us
  assert found.best.config.program.strands == "merged"
  assert formed_target.GATHER in found.best.config.options


def test_a_form_that_does_not_fit_in_memory_is_refused_with_its_need():
  def peak_bytes(config: config_lib.XlaConfig) -> int:
    return (90 if config.program.strands == "rotated" else 50) * _GIB

  told: list[str] = []
  tuning = tuner.tune(
    formed_target.target(peak_bytes),
    arms=(),
    in_process=True,
    progress=told.append,
  )
  assert "strands merged" in told
  assert tuning.plan.xla.program == form_lib.Form(strands="merged")
  reasons = [
    c.reason
    for c in tuning.candidates
    if isinstance(c, candidates.Refused)
    and c.config.program.strands == "rotated"
  ]
  assert (
    "It needs 96.6 GB of the 63.7 GB that JAX takes of 84.9 GB (79.1 GiB) per"
    " GPU." in reasons
  )


# Which forms are compiled at all.


_MERGED = form_lib.Form(strands="merged")
_MERGED_APART = form_lib.Form(strands="merged", keyed=True)
_APART = form_lib.Form(keyed=True)


def _combining(config: config_lib.XlaConfig) -> hlo.Module:
  """A step of whose gathers XLA makes one, without keys."""
  combined = [1] * 8 if config.program.keyed else [8]
  is_written = config.program.is_as_written
  return formed_target.module([500.0 if is_written else 450.0], combined)


def _slow(config: config_lib.XlaConfig) -> hlo.Module:
  """A step whose kernels take longer in a form, but nothing else."""
  kernels_us = 500.0 if config.program.is_as_written else 900.0
  return formed_target.module([kernels_us], [1] * 8)


@pytest.mark.parametrize(
  ("schedule", "act", "compiled"),
  [
    # With keys where XLA combines something,
    (_combining, [_MERGED, _MERGED_APART], [_MERGED, _MERGED_APART]),
    # without where it does not, or where the form is behind in any case,
    (formed_target.schedule, [_MERGED, _MERGED_APART], [_MERGED]),
    (_slow, [_MERGED, _MERGED_APART], [_MERGED]),
    # and only keys where no form makes strands.
    (_combining, [_APART], [_APART]),
    (_combining, [_MERGED, _APART], [_MERGED]),
  ],
)
def test_strands_are_tried_with_keys_only_where_keys_may_matter(
  schedule: Callable[[config_lib.XlaConfig], hlo.Module],
  act: list[form_lib.Form],
  compiled: list[form_lib.Form],
):
  asked = formed_target.configs(schedule, acts(*act))
  assert [c.program for c in asked] == [form_lib.AS_WRITTEN, *compiled]


def test_forms_that_make_the_same_program_are_compiled_once():
  asked = formed_target.configs(
    formed_target.schedule,
    acts(_MERGED, _MERGED_APART),
    digested=lambda form: str(form.is_as_written),
  )
  assert [c.program for c in asked] == [form_lib.AS_WRITTEN, _MERGED]


def _options(*forms: form_lib.Form) -> list[dict[str, object]]:
  """The options with which the last of these forms is compiled."""
  asked = formed_target.configs(_combining, acts(*forms), seconds=60)
  return [dict(c.options) for c in asked if c.program == forms[-1]]


def test_strands_are_tried_without_combining_and_with_two_in_flight():
  tried = _options(_MERGED)  # Neither is predicted to gain.
  assert {formed_target.GATHER: 0} in tried
  assert any(2 in options.values() for options in tried)


def test_strands_separated_by_keys_are_not_separated_by_thresholds():
  tried = _options(_MERGED, _MERGED_APART)
  assert {} in tried
  assert not any(formed_target.GATHER in options for options in tried)


# A real step.


@pytest.fixture(scope="module")
def real(h100s: Sequence[jax.Device]) -> candidates.Search:
  jitted, args = strands_step.lowerable(h100s, width=4096, num_rows=16384)
  lowered = jitted.lower(*args)
  target = target_lib.of_step(lowered, formed_target.H100, name="step")
  return joint.search(target, seconds=0, in_process=True)


def test_strands_of_a_real_step_hide_exposed_communication(real):
  merged = real.found(config_lib.XlaConfig(program=_MERGED))
  assert isinstance(merged, candidates.Candidate)
  assert len(merged.outcome.actions) == 2
  before = real.default.under_nccl_defaults
  after = merged.under_nccl_defaults
  assert after.total_exposed_us < before.total_exposed_us
  assert after.step_time_us < before.step_time_us


def test_a_real_step_gets_no_slower_with_or_without_nccl_settings(real):
  best, default = real.best, real.default
  assert best.tuned.step_time_us <= default.tuned.step_time_us
  assert (
    best.under_nccl_defaults.step_time_us
    <= default.under_nccl_defaults.step_time_us
  )
  assert not best.config.program.is_as_written


def test_strands_of_a_real_step_are_compiled_with_and_without_keys(real):
  programs = [c.config.program for c in real.scheduled]
  assert _MERGED in programs and _MERGED_APART in programs


def test_groups_are_refused_where_donations_would_be_lost(real):
  assert real.default.step.analysis.module.proto.input_output_alias.entries
  groups, *others = [
    c for c in real.others if c.config.combine_groups is not None
  ]
  if registry.keeps_donation():
    assert isinstance(groups, candidates.Candidate)
  else:
    assert isinstance(groups, candidates.Refused)
    assert "donates inputs" in groups.reason
    assert not others


# Chains are cut where that is predicted to gain; cuts that gain are kept.


_LAYERS = ("layer.0", "layer.1")


def _chain(label: str, num_products: int) -> chains_lib.Chain:
  return chains_lib.Chain(
    label=label,
    where="train.py:7",
    collectives=("stablehlo.all_gather",),
    nccl_bytes=64 * 2**20,
    num_products=num_products,
    pieces=(2, 4, 8),
  )


_CHAINS = (*(_chain(label, 1) for label in _LAYERS), _chain("head", 2))


def _sliced(config: config_lib.XlaConfig) -> hlo.Module:
  """A step that gains by two or four pieces of each layer, and by no others.

  A gather outside all chains is exposed, too; the one of "hidden" is not.
  """
  pieces = config.program.slices
  by_layer = {1: 1500.0, 2: 1300.0, 4: 1200.0, 8: 1400.0}
  lines = ["p = f32[256,256] parameter(0)"]
  for label in (*_LAYERS, "head", ""):
    start, done = hlo_text.all_gather(f"gather{label}", 64 * 2**20)
    tag = f', frontend_attributes={{lagom_chain="{label}"}}' if label else ""
    lines += [start + tag, done]
  start, done = hlo_text.all_gather("beside", 64 * 2**20)
  hidden = f'{start}, frontend_attributes={{lagom_chain="hidden"}}'
  lines += [hidden, hlo_text.kernel("long", 5000.0), done]
  for i, label in enumerate(_LAYERS):
    lines.append(hlo_text.kernel(f"layer{i}", by_layer[pieces.get(label, 1)]))
  lines.append(hlo_text.kernel("last", 300.0 * pieces.get("head", 1)))
  return hlo_text.load("\n".join([*lines, "ROOT end = () tuple()"]))


def _cuts(*chains: chains_lib.Chain) -> list[dict[str, int]]:
  asked = formed_target.configs(
    _sliced,
    lambda form: form_lib.Outcome(actions=("Cut.",) if form.slices else ()),
    sliceable=chains,
  )
  cuts = [dict(config.program.slices) for config in asked]
  return [slices for slices in cuts if slices]


def test_similar_chains_are_cut_equally_while_the_step_gets_shorter():
  assert _cuts(*_CHAINS[:2]) == [
    dict.fromkeys(_LAYERS, num_pieces) for num_pieces in (2, 4, 8)
  ]


def test_all_chains_are_cut_at_once_and_then_kind_by_kind():
  tried = _cuts(*_CHAINS)
  assert tried[0].keys() == {*_LAYERS, "head"}
  assert all(
    {*_LAYERS} <= slices.keys() or not {*_LAYERS} & slices.keys()
    for slices in tried
  )
  assert len(tried) <= forms.MAX_SLICES


def test_chains_without_exposed_communication_are_not_cut():
  assert _cuts(_chain("hidden", 1)) == []


# A real step whose collectives XLA's partitioner places.


# A target, and the result of a search of its chains.
_Cut = tuple[target_lib.Target, candidates.Search]


@pytest.fixture(scope="module", params=["shard_map", "whole at entry"])
def partitioned(
  request: pytest.FixtureRequest, h100s: Sequence[jax.Device]
) -> _Cut:
  lowered = tensor_parallel_step.lower(
    request.param,
    tokens=4096,
    width=8192,
    hidden=28672,
    dtype=jnp.bfloat16,
    devices=h100s,
  )
  target = target_lib.of_step(lowered, formed_target.H100, name="step")
  evaluate = functools.partial(
    evaluation.evaluate_or_raise,
    target=target,
  )
  default = candidates.Search(default=evaluate(config_lib.DEFAULT))
  return target, forms.search_slices(target, default, evaluate)


def test_exposed_time_is_reported_by_kind_of_chain(partitioned: _Cut):
  target, found = partitioned
  kinds = forms.of_chains(target, found.default, target.chains())
  # Both dimensions of a chain have the same collectives.
  by_collectives = {kind.collectives: kind.exposed_us for kind in kinds}
  assert len(by_collectives) == len(kinds) / 2 == 2
  assert all(0 < kind.gain_us < kind.exposed_us for kind in kinds)
  # All but the loss's all-reduce, which is in no chain.
  exposed_us = found.default.under_nccl_defaults.exposed_us
  of_loss = [
    collective.name
    for collective in found.default.step.analysis.collectives
    if collective.kind == "all-reduce"
  ]
  assert len(of_loss) == 1
  assert sum(by_collectives.values()) == pytest.approx(
    sum(us for name, us in exposed_us.items() if name not in of_loss)
  )


def test_cuts_gain_for_explicit_and_for_partitioned_collectives(
  partitioned: _Cut,
):
  _, found = partitioned
  quickest = min(found.scheduled, key=lambda c: c.tuned.step_time_us)
  assert quickest.config.program.slices
  before, after = found.default.tuned, quickest.tuned
  assert after.total_exposed_us < before.total_exposed_us
  least_us = (1 - candidates.LEAST_GAIN) * before.step_time_us
  assert after.step_time_us < least_us
  assert len(found.others) <= forms.MAX_SLICES


def test_pieces_that_xla_recombines_are_tried_without_combining(
  partitioned: _Cut,
  request: pytest.FixtureRequest,
):
  _, found = partitioned
  *together, last = found.scheduled
  # XLA recombines only pieces of partitioned programs.
  if "shard_map" in request.node.name:
    assert not any(c.config.options for c in found.others)
    return
  assert not any(c.config.options for c in together)
  quickest = min(together, key=candidates.tuned_us)
  assert last.config.program == quickest.config.program
  assert set(last.config.options.values()) == {0}
  assert {c.num_operands for c in quickest.step.analysis.collectives} != {1}
  assert {c.num_operands for c in last.step.analysis.collectives} == {1}
