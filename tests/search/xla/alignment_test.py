# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Two strands of a loop's body are aligned by the times of their pairs."""

from __future__ import annotations

from collections.abc import Sequence
import dataclasses
import functools
import hashlib
import json
import re
from typing import Any

import hypothesis
from hypothesis import strategies
import jax
import pytest

import fake_target
import hlo_text
from lagom_xla import cluster
from lagom_xla import errors
from lagom_xla import plan as plan_lib
from lagom_xla.apply import checked
from lagom_xla.compile import config as config_lib
from lagom_xla.compile import target as target_lib
from lagom_xla.costs import step as step_lib
from lagom_xla.passes import hlo
from lagom_xla.passes import registry
from lagom_xla.passes.program import form as form_lib
from lagom_xla.passes.schedule import alignment
from lagom_xla.passes.schedule import orders
from lagom_xla.search.xla import alignment as alignment_lib
from lagom_xla.search.xla import candidates
from lagom_xla.search.xla import evaluation
from lagom_xla.search.xla import joint
from lagom_xla.tuner import tuner
from lagom_xla.verify import verification
import strands_step

_CLUSTER = cluster.parse("1x8xh100")
# Combining would couple the strands again.
_MERGED = config_lib.XlaConfig(
  program=form_lib.Form(strands="merged"),
  options={
    f"xla_gpu_{kind}_combine_threshold_bytes": 0
    for kind in ("all_gather", "reduce_scatter")
  },
)


def _target(
  devices: Sequence[jax.Device], *, donates: bool = False
) -> target_lib.StepTarget:
  jitted, args = strands_step.lowerable(
    devices, width=2048, num_rows=8192, donates=donates
  )
  return target_lib.of_step(jitted.lower(*args), _CLUSTER, name="step")


@pytest.fixture(scope="module")
def target(h100s: Sequence[jax.Device]) -> target_lib.StepTarget:
  return _target(h100s)


def _search(
  target: target_lib.Target,
  *configs: config_lib.XlaConfig,
  progress: candidates.Progress = lambda _: None,
) -> candidates.Search:
  """A search for orders, starting from the default and these configs."""
  evaluate = functools.partial(
    evaluation.evaluate_or_raise,
    target=target,
  )
  so_far = candidates.Search(default=evaluate(config_lib.DEFAULT))
  for config in configs:
    so_far = so_far.with_candidate(evaluate(config))
  return alignment_lib.search(target, so_far, evaluate, progress=progress)


@pytest.fixture(scope="module")
def found(target: target_lib.StepTarget) -> candidates.Search:
  return _search(target, _MERGED)


@pytest.fixture(scope="module")
def merged_step(found: candidates.Search) -> step_lib.Step:
  _, merged, *_ = found.scheduled
  return merged.step


def _bodies(step: step_lib.Step) -> list[Any]:
  return [
    computation
    for computation in step.analysis.sequences
    if any(c.computation == computation.name for c in step.analysis.collectives)
    and computation.name != step.analysis.module.entry.name
  ]


def test_aligned_strands_do_the_same_work_in_less_time(
  merged_step: step_lib.Step,
):
  configuration = merged_step.default
  aligned = alignment_lib.align(merged_step, configuration)
  orders.check_order(merged_step.analysis.module, aligned.analysis.module)
  before = merged_step.timeline(configuration)
  after = aligned.timeline(configuration)
  assert after.step_time_us < 0.98 * before.step_time_us
  assert after.kernel_us == pytest.approx(before.kernel_us)
  assert after.collective_us == pytest.approx(before.collective_us)


@hypothesis.settings(max_examples=15)
@hypothesis.given(seed=strategies.integers(0, 2**32 - 1))
def test_an_aligned_order_is_legal_for_any_block_times(
  merged_step: step_lib.Step, seed: int
):
  def block_us(start: int | None, kernels: tuple[int, ...]) -> float:
    digest = hashlib.sha256(repr((seed, start, kernels)).encode()).digest()
    return 1.0 + int.from_bytes(digest[:2], "big")

  module = merged_step.analysis.module
  for body in _bodies(merged_step):
    aligned = alignment.align(merged_step.analysis, body, block_us)
    assert aligned is not None
    orders.check_order(module, aligned)
    assert aligned.computations[body.id].instructions != body.instructions


def test_a_step_with_one_strand_has_nothing_to_align(
  target: target_lib.StepTarget,
):
  found = _search(target)
  assert not found.others
  step = found.default.step
  assert len(_bodies(step)) == 4
  for body in _bodies(step):
    assert alignment.align(step.analysis, body, lambda *_: 1.0) is None


def _loop(carried: Sequence[str], body: str) -> hlo.Module:
  """A step with a loop with this body; "t" are its carries."""
  types = f"({', '.join(carried)})"
  return hlo_text.load(
    f"""
    p = {types} parameter(0)
    ROOT loop = {types} while(p), body=body, condition=condition,
      {hlo_text.trips(10)}
    """,
    computations=f"""
    body {{
      t = {types} parameter(0)
      {body} }}
    condition {{
      t = {types} parameter(0)
      ROOT c = pred[] constant(true) }}
    """,
  )


def test_a_prefetch_for_the_next_trip_belongs_to_the_strand_using_it():
  module = _loop(
    ["f32[8]", "f32[8]", "f32[8]", "f32[64]"],
    """
    a = f32[8] get-tuple-element(t), index=0
    b = f32[8] get-tuple-element(t), index=1
    ahead = f32[8] get-tuple-element(t), index=2
    weights = f32[64] get-tuple-element(t), index=3
    first = f32[8] add(a, ahead)
    second = f32[8] negate(b)
    part = f32[8] slice(weights), slice={[8:16]}
    next = f32[8] negate(part)
    ROOT r = (f32[8], f32[8], f32[8], f32[64])
      tuple(first, second, next, weights)
    """,
  )
  (body,) = [c for c in module.computations.values() if c.name == "body"]
  number_of = alignment.strands_in_body(body)
  strand_of = {
    i.name: number_of[i.id] for i in body.instructions if i.id in number_of
  }
  assert strand_of["a"] == strand_of["first"] == strand_of["next"]
  assert strand_of["part"] == strand_of["next"] != strand_of["second"]


def _two_strands() -> hlo.Module:
  """A loop whose two strands each wait for their gather and kernel."""
  strands = "\n".join(
    f"""
    {name} = f32[262144] get-tuple-element(t), index={index}
    gather.{name} = (f32[262144], f32[2097152]) all-gather-start({name}),
      {hlo_text.GATHER}
    done.{name} = f32[2097152] all-gather-done(gather.{name})
    kernel.{name} = f32[262144] custom-call(done.{name}),
      custom_call_target="Kernel",
      backend_config={{"reification_cost":[{{"name":"sol","exec_time_us":300}}]}}
    """
    for index, name in enumerate("ab")
  )
  carried = ["f32[262144]"] * 2
  result = f"ROOT r = ({', '.join(carried)}) tuple(kernel.a, kernel.b)"
  return _loop(carried, strands + result)


def test_an_order_that_exceeds_the_memory_limit_is_not_applied():
  step = step_lib.of_module(_two_strands(), _CLUSTER)
  for peak_bytes, is_left in ((1 << 60, False), (0, True)):
    aligned = alignment_lib.align(step, step.default, peak_bytes=peak_bytes)
    assert (aligned is step) == is_left


# Aligned orders as candidates of a search.


def test_an_aligned_order_is_an_additional_candidate(found: candidates.Search):
  default, merged, aligned = found.scheduled
  assert aligned.config == dataclasses.replace(
    _MERGED, orders=aligned.config.orders
  )
  names = {body.name for body in _bodies(merged.step)}
  assert aligned.config.orders and aligned.config.orders.keys() <= names
  assert aligned.tuned.step_time_us < merged.tuned.step_time_us
  assert found.best is aligned
  assert found.obstacle(default) and found.obstacle(merged)


def test_the_compiled_step_has_the_order_that_was_found(
  target: target_lib.StepTarget, found: candidates.Search
):
  compiled = target.compile(found.best.config)
  step = step_lib.of_module(compiled.module, _CLUSTER)
  found_us = found.best.tuned.step_time_us
  assert step.timeline(found.best.settings).step_time_us == found_us


def test_a_plan_stores_the_order_and_verify_reports_its_effect(
  target: target_lib.StepTarget, found: candidates.Search
):
  made = tuner.plan_of(target, found)
  plan = plan_lib.from_dict(
    json.loads(json.dumps(made.to_dict())), where="the plan"
  )
  assert plan == made and plan.needs_process
  verified = verification.verify(plan, target)
  assert verified.planned_us == pytest.approx(found.best.tuned.step_time_us)
  by_knob = {effect.knob: effect for effect in verified.effects}
  effect = by_knob["order"]
  assert effect.acted
  num = len(found.best.config.orders)
  assert effect.value == f"{num} computation{'s'[: num > 1]} in our order"
  numbers = re.match(
    r"kernels wait (\S+) ms for collectives instead of (\S+) ms, and are"
    r" slowed by (\S+) ms beside them instead of (\S+) ms \(predicted",
    effect.evidence,
  )
  assert numbers is not None
  exposed_after, exposed, lost_after, lost = map(float, numbers.groups())
  assert exposed_after + lost_after < exposed + lost
  found_us = found.best.tuned.total_exposed_us
  assert exposed_after == pytest.approx(found_us / 1e3, abs=0.005)
  # The other parts are judged in XLA's own order.
  assert by_knob["program"].acted


def test_a_plan_whose_order_is_for_another_schedule_is_refused(
  target: target_lib.StepTarget, found: candidates.Search
):
  made = tuner.plan_of(target, found)
  alone = dataclasses.replace(made.xla, program=form_lib.AS_WRITTEN)
  with pytest.raises(errors.PlanError, match="orders are for another step"):
    verification.verify(dataclasses.replace(made, xla=alone), target)
  with pytest.raises(errors.PlanError, match="orders are for another step"):
    checked.compile_with(dataclasses.replace(made, xla=alone), target)


def test_a_step_keeps_xlas_order_if_a_new_one_would_lose_donations(
  h100s: Sequence[jax.Device],
):
  said: list[str] = []
  target = _target(h100s, donates=True)
  found = _search(target, _MERGED, progress=said.append)
  last = found.others[-1]
  assert last.config.orders
  if registry.keeps_donation():
    assert isinstance(last, candidates.Candidate)
    assert said == ["aligned strands"]
    assert target.compile(last.config).module.proto.input_output_alias.entries
  else:
    assert isinstance(last, candidates.Refused)
    assert "forgets when a pass orders instructions" in last.reason
    assert not found.best.config.orders


def test_strands_are_aligned_at_the_end_of_a_search():
  module = _two_strands()
  target = fake_target.of(lambda config: orders.apply(module, config.orders))
  told: list[str] = []
  found = joint.search(target, seconds=0, in_process=True, progress=told.append)
  assert told[-1] == "aligned strands"
  order = found.best.config.orders["body"]
  # Now one gather overlaps the other strand's kernel.
  first, second = sorted("ab", key=lambda name: order.index(f"gather.{name}"))
  assert order.index(f"gather.{second}") < order.index(f"kernel.{first}")
  assert order.index(f"kernel.{first}") < order.index(f"done.{second}")
  exposed = found.default.under_nccl_defaults.total_exposed_us
  after = found.best.under_nccl_defaults.total_exposed_us
  assert after == pytest.approx(exposed / 2)
