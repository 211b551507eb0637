# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Forms of the program are tried, judged and reported as all else is."""

from __future__ import annotations

from collections.abc import Callable
import io
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import Mesh
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P
import numpy as np
import pytest
import rich.console

import fake_target
import hlo_text
from lagom_xla import cluster as cluster_lib
from lagom_xla import planning
from lagom_xla import tuner
from lagom_xla.compile import config as config_lib
from lagom_xla.compile import devices as devices_lib
from lagom_xla.compile import lowered as lowered_lib
from lagom_xla.compile import target as target_lib
from lagom_xla.costs import step as step_lib
from lagom_xla.passes import hlo
from lagom_xla.passes import pjrt_transform
from lagom_xla.passes.program import form as form_lib
from lagom_xla.passes.program import outcome as outcome_lib
from lagom_xla.passes.program.slices import chains as chains_lib
from lagom_xla.report import as_json
from lagom_xla.report import program_tables
from lagom_xla.report import tuning_tables
from lagom_xla.search import nccl
from lagom_xla.search.xla import candidates
from lagom_xla.search.xla import exposure
from lagom_xla.search.xla import joint
from lagom_xla.search.xla import slices as slices_lib
from lagom_xla.search.xla import thresholds
from lagom_xla.verify import verification
import strands_step

_H100 = cluster_lib.parse("1x8xh100")
_GATHER = thresholds.OPTIONS["all-gather"]
_GIB = 2**30


def _module(kernels_us: list[float], gathers: list[int]) -> hlo.Module:
  """Exposed all-gathers, of so many operands each, and kernels after them."""
  lines = [
    line
    for i, num_operands in enumerate(gathers)
    for line in hlo_text.all_gather(f"g.{i}", *[64 * 2**10] * num_operands)
  ]
  lines += [hlo_text.kernel(f"k.{i}", us) for i, us in enumerate(kernels_us)]
  text = ["p = f32[256,256] parameter(0)", *lines, "ROOT end = () tuple()"]
  return hlo_text.load("\n".join(text))


def _schedule(config: config_lib.XlaConfig) -> hlo.Module:
  """A step of one kernel; a form makes two of it.

  They are shorter than the one if the program is "merged", and much shorter if
  it is "rotated", but with many more gathers, which XLA does not combine unless
  it is told to.
  """
  strands = config.program.strands
  kernels_us = {"none": 500.0, "merged": 225.0, "rotated": 150.0}[strands]
  num_gathers = 32 if strands == "rotated" else 8
  combined = _GATHER in config.options
  return _module(
    [kernels_us] * (1 if strands == "none" else 2),
    [num_gathers] if combined else [1] * num_gathers,
  )


def _rewrite(form: form_lib.Form) -> outcome_lib.Outcome:
  if form.strands == "staggered":
    refusal = outcome_lib.Refusal(where="train.py:7", reason="it has no loop")
    return outcome_lib.Outcome(refusals=(refusal,))
  if form.is_as_written or form.keyed:
    return outcome_lib.Outcome()
  return outcome_lib.Outcome(actions=("Two loops became one.",))


def _needing(
  peak_bytes: Callable[[form_lib.Form], int],
) -> Callable[[config_lib.XlaConfig], lowered_lib.Compilation]:
  def compile_(config: config_lib.XlaConfig) -> lowered_lib.Compilation:
    return lowered_lib.Compilation(
      module=_schedule(config),
      compiled=None,
      peak_bytes=peak_bytes(config.program),
    )

  return compile_


def _target(
  peak_bytes: Callable[[form_lib.Form], int] | None = None,
) -> fake_target.FakeTarget:
  return fake_target.FakeTarget(
    name="step",
    cluster=_H100,
    scheduled=_schedule,
    rewritten=_rewrite,
    compiled=None if peak_bytes is None else _needing(peak_bytes),
  )


def _strands(found: candidates.Search) -> list[str]:
  return [c.config.program.strands for c in found.others]


@pytest.fixture(scope="module")
def found() -> candidates.Search:
  return joint.search(_target(), in_process=True)


def test_a_launcher_is_offered_no_form():
  assert set(_strands(joint.search(_target()))) == {"none"}


def test_each_form_that_acts_is_tried_under_the_default_and_the_best_options(
  found,
):
  options = [
    dict(c.config.options)
    for c in found.others
    if c.config.program.strands == "merged"
  ]
  assert options[0] == {}
  assert _GATHER in options[1]


def test_a_form_that_cannot_act_is_refused_once_with_the_reason(found):
  (refused,) = [
    c for c in found.others if c.config.program.strands == "staggered"
  ]
  assert isinstance(refused, candidates.Refused)
  assert "train.py:7: it has no loop" in refused.reason


def test_the_best_is_chosen_over_forms_and_options_together(found):
  best = found.best.config
  assert best.program == form_lib.Form(strands="rotated")
  assert _GATHER in best.options


def test_options_are_searched_from_a_form_that_is_not_ahead_yet():
  def schedule(config: config_lib.XlaConfig) -> hlo.Module:
    is_coupled = _GATHER not in config.options
    if config.program.strands == "merged":
      return _module([350.0], [1] * 32 if is_coupled else [32])
    return _module([500.0], [1])

  def rewrite(form: form_lib.Form) -> outcome_lib.Outcome:
    is_merged = form.strands == "merged"
    return outcome_lib.Outcome(actions=("Merged.",) if is_merged else ())

  target = fake_target.FakeTarget(
    name="step", cluster=_H100, scheduled=schedule, rewritten=rewrite
  )
  found = joint.search(target, in_process=True)
  first = next(c for c in found.others if c.config.program.strands == "merged")
  assert isinstance(first, candidates.Candidate)
  assert first.tuned.step_time_us > found.default.tuned.step_time_us
  assert found.best.config.program.strands == "merged"
  assert _GATHER in found.best.config.options


def test_progress_is_told_no_more_often_than_announced():
  told: list[str] = []
  target = _target()
  tuner.tune(target, in_process=True, progress=told.append)
  assert "strands merged" in told
  assert len(told) <= tuner.max_progress(target, in_process=True)


def test_what_a_launcher_gains_is_predicted_for_the_program_as_written(found):
  target = _target()
  plan = planning.plan_of(target, found)
  alone = target.schedule(config_lib.XlaConfig(options=plan.xla.options))
  launched = step_lib.of_module(alone, _H100)
  assert plan.prediction.xla_us == pytest.approx(
    launched.timeline(launched.default).step_time_us
  )
  assert plan.prediction.xla_us > plan.prediction.nccl_settings_us
  assert plan.needs_process


def test_a_form_that_does_not_fit_the_device_is_refused_with_what_it_needs():
  def peak_bytes(form: form_lib.Form) -> int:
    return (90 if form.strands == "rotated" else 70) * _GIB

  tuning = tuner.tune(_target(peak_bytes), in_process=True)
  assert tuning.plan.xla.program == form_lib.Form(strands="merged")
  reasons = [
    c.reason
    for c in tuning.candidates
    if isinstance(c, candidates.Refused)
    and c.config.program.strands == "rotated"
  ]
  needed, available = 90 * _GIB / 1e9, _H100.gpu.hbm_bytes / 1e9
  assert f"It needs {needed:.1f} GB of {available:.1f} GB." in reasons


# What users see of it.


@pytest.fixture(scope="module")
def tuning() -> tuner.Tuning:
  return tuner.tune(_target(lambda form: _GIB), in_process=True)


def _text(table: object) -> str:
  console = rich.console.Console(file=io.StringIO(), width=200)
  console.print(table)
  assert isinstance(console.file, io.StringIO)
  return console.file.getvalue()


def test_the_effect_of_a_form_is_what_it_did_and_what_it_exposes(tuning):
  (effect,) = [e for e in tuning.effects if e.knob == "program"]
  assert effect.value == "strands rotated"
  assert effect.acted
  assert effect.evidence.startswith("Two loops became one; ")
  assert "exposed became" in effect.evidence


def test_verification_takes_a_plan_with_a_form(tuning):
  verified = verification.verify(tuning.plan, _target())
  (effect,) = [e for e in verified.effects if e.knob == "program"]
  assert effect.acted
  assert verified.planned_us < verified.default_us


def test_each_form_is_in_the_report_with_its_time_or_why_not(tuning):
  table = _text(program_tables.forms(tuning))
  strands = ("rotated", "merged", "staggered")
  lines = {
    name: next(line for line in table.splitlines() if line.startswith(name))
    for name in ("the program as written", *(f"strands {s}" for s in strands))
  }
  best_ms = tuning.kept.tuned.step_time_us / 1e3
  assert f"{best_ms:,.2f}" in lines["strands rotated"]
  assert "Two loops became one." in lines["strands merged"]
  assert "it has no loop" in lines["strands staggered"]
  assert f"{best_ms:,.2f}" not in lines["the program as written"]
  assert "strands rotated, " in _text(tuning_tables.candidates(tuning))


def test_json_has_the_form_of_each_candidate_and_what_became_of_it(tuning):
  entries = as_json.tuning(tuning)["candidates"]
  rotated = [e for e in entries if e["program"]["strands"] == "rotated"]
  assert rotated[0]["rewrites"] == ["Two loops became one."]
  (refused,) = [e for e in entries if e["program"]["strands"] == "staggered"]
  assert "it has no loop" in refused["failure"]
  assert refused["rewrites"] == []


# A real step.


@pytest.fixture(scope="module")
def real() -> candidates.Search:
  if pjrt_transform.plugin_path() is None:
    pytest.skip("JAX's CUDA plugin is not installed (extra aot)")
  jitted, args = strands_step.lowerable(
    devices_lib.devices(_H100), width=4096, num_rows=16384
  )
  target = target_lib.of_step(jitted.lower(*args), _H100, name="step")
  return joint.search(target, max_compiles=1, in_process=True)


def test_strands_of_a_real_step_hide_what_was_exposed(real):
  merged = next(
    c
    for c in real.others
    if c.config == config_lib.XlaConfig(program=form_lib.Form(strands="merged"))
  )
  assert isinstance(merged, candidates.Candidate)
  assert len(merged.outcome.actions) == 2
  before = real.default.under_nccl_defaults
  after = merged.under_nccl_defaults
  assert after.total_exposed_us < before.total_exposed_us
  assert after.step_time_us < before.step_time_us


def test_a_real_step_gets_no_slower_by_the_search(real):
  assert real.best.tuned.step_time_us <= real.default.tuned.step_time_us
  assert not real.best.config.program.is_as_written


# Which forms are compiled at all.


def _configs(
  schedule: Callable[[config_lib.XlaConfig], hlo.Module],
  rewrite: Callable[[form_lib.Form], outcome_lib.Outcome],
  **others: Any,
) -> list[config_lib.XlaConfig]:
  """What is compiled in search of a form, but for rounds of feedback."""
  asked: list[config_lib.XlaConfig] = []

  def recorded(config: config_lib.XlaConfig) -> hlo.Module:
    asked.append(config)
    return schedule(config)

  target = fake_target.FakeTarget(
    name="step",
    cluster=_H100,
    scheduled=recorded,
    rewritten=rewrite,
    **others,
  )
  joint.search(target, max_compiles=1, in_process=True)
  return [
    config
    for config in asked
    if config.scheduler_profile is None and config.combine_groups is None
  ]


def _acts(*forms: form_lib.Form) -> Callable[..., outcome_lib.Outcome]:
  return lambda form: outcome_lib.Outcome(
    actions=("Done.",) if form in forms else ()
  )


_MERGED = form_lib.Form(strands="merged")
_STAGGERED = form_lib.Form(strands="staggered")
_MERGED_APART = form_lib.Form(strands="merged", keyed=True)
_APART = form_lib.Form(keyed=True)


def _forms(asked: list[config_lib.XlaConfig]) -> list[form_lib.Form]:
  return [c.program for c in asked if not c.options]


def test_strands_are_tried_with_keys_and_without():
  asked = _configs(_schedule, _acts(_MERGED, _MERGED_APART, _APART))
  assert _forms(asked) == [
    form_lib.AS_WRITTEN,
    _MERGED,
    _MERGED_APART,
    _APART,
  ]


def test_forms_that_make_the_same_program_are_compiled_once():
  asked = _configs(
    _schedule,
    _acts(_MERGED, _MERGED_APART),
    digested=lambda form: str(form.is_as_written),
  )
  assert _forms(asked) == [form_lib.AS_WRITTEN, _MERGED]


def test_a_form_whose_kernels_alone_take_longer_is_tried_once():
  def schedule(config: config_lib.XlaConfig) -> hlo.Module:
    kernels_us = 500.0 if config.program.is_as_written else 900.0
    return _module([kernels_us], [1] * 8)

  asked = _configs(schedule, _acts(_MERGED, _MERGED_APART))
  assert _forms(asked) == [form_lib.AS_WRITTEN, _MERGED]
  assert not any(config.options for config in asked)


def test_strands_are_tried_with_nothing_combined_and_two_in_flight():
  def schedule(config: config_lib.XlaConfig) -> hlo.Module:
    # Nothing is predicted to gain by either.
    is_written = config.program.is_as_written
    return _module([500.0 if is_written else 450.0], [8])

  asked = _configs(schedule, _acts(_MERGED))
  tried = [dict(c.options) for c in asked if c.program == _MERGED]
  assert {_GATHER: 0} in tried
  assert any(2 in options.values() for options in tried)


def test_keys_of_a_real_step_are_compiled_where_there_are_strands(real):
  tried = {
    (c.config.program.strands, c.config.program.keyed)
    for c in real.others
    if isinstance(c, candidates.Candidate)
  }
  assert ("merged", False) in tried
  assert ("merged", True) in tried


# Slices.

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

  A gather that no chain has is exposed, too; that of "hidden" is not.
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
  asked = _configs(
    _sliced,
    lambda form: outcome_lib.Outcome(actions=("Cut.",) if form.slices else ()),
    sliceable=chains,
  )
  cuts = [dict(config.program.slices) for config in asked]
  return [slices for slices in cuts if slices]


def test_chains_that_are_alike_are_cut_alike_while_the_step_gets_shorter():
  assert _cuts(*_CHAINS[:2]) == [
    dict.fromkeys(_LAYERS, num_pieces) for num_pieces in (2, 4, 8)
  ]


def test_chains_are_cut_at_once_and_then_kind_by_kind():
  tried = _cuts(*_CHAINS)
  assert tried[0].keys() == {*_LAYERS, "head"}
  assert all(
    {*_LAYERS} <= slices.keys() or not {*_LAYERS} & slices.keys()
    for slices in tried
  )
  assert len(tried) <= slices_lib.MAX_COMPILES


def test_chains_of_which_nothing_is_exposed_are_not_cut():
  assert _cuts(_chain("hidden", 1)) == []


# A real step with chains.


@pytest.fixture(scope="module")
def tensor_parallel() -> target_lib.Target:
  """Two layers alike: tokens gathered, two products, their sum scattered."""
  if pjrt_transform.plugin_path() is None:
    pytest.skip("JAX's CUDA plugin is not installed (extra aot)")
  mesh = Mesh(np.array(devices_lib.devices(_H100)), ("tp",))

  def step(x: jax.Array, up: jax.Array, down: jax.Array) -> jax.Array:
    for layer in range(2):
      gathered = jax.lax.all_gather(x, "tp", tiled=True)
      partial = jnp.tanh(gathered @ up[layer]) @ down[layer]
      x = jax.lax.psum_scatter(partial, "tp", tiled=True)
    return x

  def shape(spec: P, *sizes: int) -> jax.ShapeDtypeStruct:
    sharding = NamedSharding(mesh, spec)
    return jax.ShapeDtypeStruct(sizes, jnp.bfloat16, sharding=sharding)

  tokens, up, down = P("tp"), P(None, None, "tp"), P(None, "tp")
  sharded = jax.shard_map(
    step, mesh=mesh, in_specs=(tokens, up, down), out_specs=tokens
  )
  lowered = jax.jit(sharded).lower(
    shape(tokens, 16384, 8192),
    shape(up, 2, 8192, 28672),
    shape(down, 2, 28672, 8192),
  )
  return target_lib.of_step(lowered, _H100, name="layers")


def test_what_is_exposed_of_a_chain_is_what_its_collectives_expose(
  tensor_parallel,
):
  default = candidates.evaluate_or_raise(
    config_lib.DEFAULT,
    target=tensor_parallel,
    searcher=nccl.SEARCHERS[nccl.DEFAULT_SEARCHER],
  )
  chains = tensor_parallel.chains()
  (kind,) = exposure.of_chains(tensor_parallel, default, chains)
  assert set(kind.labels) == {chain.label for chain in chains}
  assert len(kind.labels) == len(kind.collectives) / 2 == 2
  # All collectives of this step are in its two chains.
  exposed_us = default.under_nccl_defaults.total_exposed_us
  assert kind.exposed_us == pytest.approx(exposed_us)
  assert 0 < kind.gain_us < exposed_us


def test_slices_of_a_real_step_hide_what_was_exposed(tensor_parallel):
  found = joint.search(tensor_parallel, max_compiles=1, in_process=True)
  cut = [c for c in found.scheduled if c.config.program.slices]
  best = min(cut, key=lambda c: c.tuned.step_time_us)
  assert len(best.config.program.slices) == 2
  before = found.default.tuned
  assert best.tuned.total_exposed_us < before.total_exposed_us
  assert best.tuned.step_time_us < before.step_time_us
