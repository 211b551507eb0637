# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Collectives within and between nodes overlap, in steps for 4x8 GPUs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import AxisType
from jax.sharding import Mesh
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P
import numpy as np
import pytest

import hlo_text
from lagom_xla import cluster as cluster_lib
from lagom_xla.compile import config as config_lib
from lagom_xla.compile import devices as devices_lib
from lagom_xla.compile import target as target_lib
from lagom_xla.costs import step as step_lib
from lagom_xla.costs.replay import recorder
from lagom_xla.explain import explaining
from lagom_xla.flags import check
from lagom_xla.flags import debug_options
from lagom_xla.passes import collectives as collectives_lib
from lagom_xla.passes import overlap
from lagom_xla.report import notes
from lagom_xla.search.xla import evaluation
from lagom_xla.search.xla import knobs
from lagom_xla.tuner import tuner

CLUSTER = cluster_lib.parse("4x8xh100")
IN_FLIGHT = "xla_gpu_experimental_parallel_collective_overlap_limit"
WITHIN = "xla_gpu_experimental_parallel_scale_up_collective_overlap_limit"
STREAMS = {"xla_gpu_experimental_enable_collective_multi_streaming": True}
APART = {knobs.FABRICS: "scale_up_fabric"}

is_known = debug_options.find(knobs.FABRICS) is not None
if_known = pytest.mark.skipif(
  not is_known, reason="this jaxlib has one stream for both fabrics"
)
Compiled = Callable[..., step_lib.Step]


@pytest.fixture(scope="module")
def target(h100s: Sequence[jax.Device]) -> target_lib.StepTarget:
  """A step of four layers: data over nodes, tensors within them."""
  del h100s  # Only says whether there is anything to compile with.
  mesh = Mesh(
    np.array(devices_lib.devices(CLUSTER)).reshape(4, 8),
    ("data", "tensor"),
    axis_types=(AxisType.Auto,) * 2,
  )

  def sharding(*axes: str | None) -> NamedSharding:
    return NamedSharding(mesh, P(*axes))

  def loss(weights: Sequence[Any], x: jax.Array) -> jax.Array:
    for up, down in weights:
      product = jax.nn.relu(x @ up) @ down
      x += jax.lax.with_sharding_constraint(product, sharding("data", None))
    return jnp.mean(jnp.square(x.astype(jnp.float32)))

  def step(weights: Sequence[Any], x: jax.Array) -> Any:
    value, gradients = jax.value_and_grad(loss)(weights, x)
    return jax.tree.map(lambda w, g: w - g, weights, gradients), value

  def array(*shape: int, axes: tuple[str | None, ...]) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(shape, jnp.bfloat16, sharding=sharding(*axes))

  weights = [
    (
      array(4096, 16384, axes=(None, "tensor")),
      array(16384, 4096, axes=("tensor", None)),
    )
    for _ in range(4)
  ]
  x = array(8192, 4096, axes=("data", None))
  lowered = jax.jit(step, donate_argnums=0).lower(weights, x)
  return target_lib.of_step(lowered, CLUSTER, name="step")


@pytest.fixture(scope="module")
def compiled(target: target_lib.StepTarget) -> Compiled:
  """Schedules the target with options."""

  def schedule(**options: Any) -> step_lib.Step:
    return evaluation.scheduled_step(
      target, config_lib.XlaConfig(options=options)
    )

  return schedule


def _num_nodes(
  step: step_lib.Step, collective: collectives_lib.Collective
) -> int:
  return step.key_of[collective.name].num_nodes


def _beside_us(step: step_lib.Step) -> float:
  """The time that collectives within and between nodes run side by side."""
  recorded = recorder.record(step.program, step.costs(step.default))
  nodes = {c.name: _num_nodes(step, c) > 1 for c in step.analysis.collectives}
  ran = [s for s in recorded.slices if s.kind == "collective"]
  return sum(
    max(min(one.end_us, other.end_us) - max(one.begin_us, other.begin_us), 0)
    for one in ran
    for other in ran
    if nodes[one.name] and not nodes[other.name]
  )


@if_known
def test_each_fabric_has_its_own_stream_and_both_run_concurrently(
  compiled: Compiled,
):
  step = compiled(**APART)
  streams = {
    (_num_nodes(step, c), c.stream)
    for c in step.analysis.collectives
    if c.form == "async"
  }
  assert (4, collectives_lib.COMMUNICATION) in streams
  assert (4, collectives_lib.SCALE_UP) not in streams
  assert (1, collectives_lib.COMMUNICATION) not in streams
  default = compiled()
  assert _beside_us(default) < 1 < _beside_us(step)
  # At least a twentieth of the step: collectives between nodes hide the ones
  # within nodes, which take more than that.
  default_us, step_us = (
    s.timeline(s.default).step_time_us for s in (default, step)
  )
  assert step_us < 0.95 * default_us


def test_two_streams_alternate_and_run_concurrently(
  compiled: Compiled,
):
  step, default = compiled(**STREAMS, **{IN_FLIGHT: 2}), compiled()
  module = step.analysis.module
  starts = {
    c.start_id: c for c in step.analysis.collectives if c.form == "async"
  }
  in_turn = [
    starts[i.id].stream
    for i in module.entry.proto.instructions
    if i.id in starts
  ]
  assert len(in_turn) > 2
  assert set(in_turn[::2]) == {collectives_lib.COMMUNICATION}
  assert set(in_turn[1::2]) == {f"{collectives_lib.COMMUNICATION} 2"}
  assert _beside_us(default) < 1 < _beside_us(step)
  by_default, by_two = (
    s.timeline(s.default).step_time_us for s in (default, step)
  )
  assert by_two < by_default
  values = knobs.worth_trying(default)
  assert {**STREAMS, IN_FLIGHT: 2} in [value.options for value in values]


def test_pipelined_sends_do_not_advance_the_stream_rotation():
  def sent(name: str, pipeline: str) -> str:
    attributes = ", ".join(
      f'{key}="{value}"'
      for key, value in {
        "_xla_send_recv_source_target_pairs": "{{0,1}}",
        **({"_xla_send_recv_pipeline": pipeline} if pipeline else {}),
      }.items()
    )
    return (
      f"{name} = (f32[8], u32[], token[]) send(p, t), channel_id=1,"
      f" frontend_attributes={{{attributes}}}"
    )

  lines = ["p = f32[8] parameter(0)", "t = token[] after-all()"]
  kinds = {"a": "", "b": "0", "c": "1", "d": "", "e": ""}
  lines += [sent(name, pipeline) for name, pipeline in kinds.items()]
  lines.append("k = f32[8] negate(p)")
  lines += [f"{n}-done = token[] send-done({n}), channel_id=1" for n in kinds]
  module = hlo_text.load("\n".join([*lines, "ROOT r = f32[8] copy(k)"]))
  one, two = (overlap.analyze(module, num_streams=num) for num in (1, 2))
  first, second, third = (
    f"{collectives_lib.COMMUNICATION}{more}" for more in ("", " 2", " 3")
  )
  assert {c.stream for c in one.collectives} == {first}
  assert [c.stream for c in two.collectives] == [
    *(first, second, third, second, first)
  ]


def test_multiple_streams_have_no_effect_at_an_overlap_limit_of_one(
  compiled: Compiled,
):
  one, default = compiled(**STREAMS), compiled()
  assert one.timeline(one.default).step_time_us == pytest.approx(
    default.timeline(default.default).step_time_us
  )


@if_known
def test_the_scale_up_limit_has_no_effect_without_a_scale_up_stream(
  compiled: Compiled,
):
  alone, default = compiled(**{WITHIN: 4}), compiled()
  assert alone.timeline(alone.default) == default.timeline(default.default)
  said = [found.text for found in check.check(f"--{WITHIN}=4").findings]
  assert len(said) == 1 and f"--{knobs.FABRICS}=scale_up_fabric" in said[0]


def test_fabric_streams_are_offered_if_step_and_jaxlib_have_both(
  compiled: Compiled, fsdp_scan
):
  def offered(step: step_lib.Step) -> bool:
    values = knobs.worth_trying(step)
    return any(knobs.FABRICS in value.options for value in values)

  assert offered(compiled()) == is_known
  assert {knobs.FABRICS, WITHIN} <= {*knobs.KNOBS["two fabrics"].options}
  one_node = step_lib.of_module(fsdp_scan, cluster_lib.parse("1x8xh100"))
  assert not offered(one_node)


def test_notes_report_concurrent_fabrics_or_the_option_jaxlib_lacks(
  compiled: Compiled,
):
  default = compiled()
  said = [n for n in notes.step_notes(default) if knobs.FABRICS in n]
  assert bool(said) != is_known
  for note in said:
    assert f"upgrade to JAX 0.12 and set --{knobs.FABRICS}=scale_up" in note
  both = [{**STREAMS, IN_FLIGHT: 2}, *([APART] if is_known else [])]
  for options in both:
    apart = compiled(**options)
    (note,) = (n for n in notes.step_notes(apart) if "run beside those" in n)
    assert "Try a short run first" in note


def test_collectives_queued_behind_another_fabric_get_stream_advice(
  compiled: Compiled,
):
  def told(step: step_lib.Step) -> list[str]:
    explained = explaining.of_run(step, step.default).collectives
    return [a for c in explained for a in c.advice if "Fabrics: " in a]

  assert told(compiled(**{IN_FLIGHT: 4}))
  if is_known:
    assert not told(compiled(**APART, **{IN_FLIGHT: 4}))


def test_the_search_plans_streams_although_recipes_leave_no_overlap(
  target: target_lib.StepTarget,
):
  tuning = tuner.tune(target, applied="flags", seconds=60)
  options = tuning.plan.xla.options
  assert {*STREAMS, knobs.FABRICS} & options.keys()
  assert tuning.plan.planned_us < 0.95 * tuning.plan.prediction.default_us
