# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Schedules lack code that XLA keeps only until it drops barriers."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax.sharding import Mesh
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P
import numpy as np
import pytest

import compiles
import hlo_text
from lagom_xla.compile import config as config_lib
from lagom_xla.compile import target as target_lib
from lagom_xla.passes import dead_code
from lagom_xla.passes import hlo
from lagom_xla.passes import overlap
from lagom_xla.search.xla import knobs
import sgd_steps

_NUM_LAYERS = 3
_ROWS, _WIDTH = 1024, 2048


@pytest.fixture(scope="module")
def target(h100s) -> target_lib.StepTarget:
  """Checkpointed layers under FSDP, whose micro-batches are a scan."""
  mesh = Mesh(np.array(h100s), ("data",))

  def sharded(*axes: str | None) -> NamedSharding:
    return NamedSharding(mesh, P(*axes))

  @jax.checkpoint
  def layer(x, up, down):
    return x + jax.nn.silu(x @ up) @ down

  def loss_of(weights, x):
    for up, down in weights:
      x = layer(x, up, down)
    return jnp.mean(jnp.square(x))

  step = jax.jit(sgd_steps.accumulated(loss_of))

  def shape(sharding: NamedSharding, *sizes: int) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(sizes, jnp.bfloat16, sharding=sharding)

  rows = sharded("data")
  weights = [(shape(rows, _WIDTH, _WIDTH),) * 2] * _NUM_LAYERS
  batch = shape(sharded(None, "data"), 2, _ROWS * len(h100s), _WIDTH)
  return compiles.target(step.lower(weights, batch))


def test_a_pipelined_schedule_has_the_work_of_the_full_compile(target):
  option = knobs.PIPELINED["all-gather"]
  (value,) = knobs.offered([knobs.Value(label="", options={option: True})])
  config = config_lib.XlaConfig(options=value.options)
  scheduled = overlap.analyze(target.schedule(config))
  compiled = overlap.analyze(target.compile(config).module)
  assert scheduled.gemm_flops == compiled.gemm_flops
  assert len(scheduled.kernels) == len(compiled.kernels)


_BODY = """
  p = f32[64] parameter(0)
  used = f32[64] negate(p)
  unused = f32[64] abs(p)
  PRINTED
  pair = (f32[64], f32[64]) tuple(unused, used)
  behind = (f32[64], f32[64]) opt-barrier(pair)
  ROOT out = f32[64] get-tuple-element(behind), index=1
"""


def _names(module: hlo.Module) -> list[str]:
  return [i.name for i in module.entry.instructions]


def test_a_kernel_behind_an_unused_element_of_a_barrier_is_dropped():
  module = hlo_text.load(_BODY.replace("PRINTED", ""))
  dropped = dead_code.drop(module)
  assert _names(dropped) == ["p", "used", "pair", "behind", "out"]
  _, _, pair, behind, out = dropped.entry.instructions
  assert len(pair.operand_ids) == 1 and out.tuple_index == 0
  for one in (pair, behind):
    assert len(one.shape.tuple_shapes) == 1
  assert "unused" in _names(module)  # It is not edited.


def test_a_kernel_that_a_side_effect_needs_is_kept():
  printed = (
    'printed = () custom-call(unused), custom_call_target="print",'
    " custom_call_has_side_effect=true"
  )
  module = hlo_text.load(_BODY.replace("PRINTED", printed))
  assert dead_code.drop(module) is module


def test_a_module_whose_barriers_hold_no_dead_kernel_is_left_as_it_is():
  body = _BODY.replace("tuple(unused, used)", "tuple(p, used)")
  body = body.replace("unused = f32[64] abs(p)", "").replace("PRINTED", "")
  module = hlo_text.load(body)
  assert dead_code.drop(module) is module
