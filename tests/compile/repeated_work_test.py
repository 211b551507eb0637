# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Matmuls that every GPU repeats are reported, and no others."""

from __future__ import annotations

from collections.abc import Sequence
import pathlib

import jax
import jax.numpy as jnp
from jax.sharding import Mesh
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec
import numpy as np
import pytest

from commands import CLUSTER
from commands import run
from lagom_xla import cluster as cluster_lib
from lagom_xla.compile import load
from lagom_xla.compile import repeated_work
from lagom_xla.compile import target as target_lib
from lagom_xla.tuner import tuner

_CLUSTER = cluster_lib.parse("1x8xh100")

# A model with a sharded state, whose activations are sharded only within its
# mesh and axis rules.
_MODEL = """\
import contextlib

from flax import linen as nn
import jax
import jax.numpy as jnp
from jax.sharding import Mesh, NamedSharding, PartitionSpec
import numpy as np

def build(devices):
  mesh = Mesh(np.array(devices), ("data",))
  whole = NamedSharding(mesh, PartitionSpec())
  sharded = NamedSharding(mesh, PartitionSpec(None, "data"))

  def step(w, h):
    def layer(h, w):
      h = nn.with_logical_constraint(h, ("batch", None))
      return jnp.tanh(h @ jax.lax.with_sharding_constraint(w, whole)), None
    return jax.lax.scan(layer, h, w)[0]

  w = jax.ShapeDtypeStruct((4, 512, 512), jnp.bfloat16, sharding=sharded)
  h = jax.ShapeDtypeStruct((2048, 512), jnp.bfloat16, sharding=whole)
  return mesh, jax.jit(step), (w, h)

def outside(devices):
  _, step, args = build(devices)
  return step, args

@contextlib.contextmanager
def inside(devices):
  mesh, step, args = build(devices)
  with jax.set_mesh(mesh), nn.logical_axis_rules([("batch", "data")]):
    yield step, args
"""


@pytest.fixture
def model(h100s: Sequence[jax.Device], tmp_path: pathlib.Path) -> str:
  del h100s  # Only says whether there is anything to compile with.
  file = tmp_path / "model.py"
  file.write_text(_MODEL)
  return str(file)


def said_of(target: target_lib.Target) -> str:
  analysis = tuner.inspect(target).analysis
  return repeated_work.warning(target, analysis.gemm_flops)


def of_step(lowered: jax.stages.Lowered) -> str:
  return said_of(target_lib.of_step(lowered, _CLUSTER, name="step"))


@pytest.mark.parametrize("function", ["outside", "inside"])
def test_inspect_reports_repeated_work_of_a_model_outside_its_context(
  model, function
):
  outcome = run("inspect", f"{model}:{function}", CLUSTER, "--format=json")
  assert outcome.status == 0
  if function == "inside":
    assert not outcome.err
  else:
    assert "8.0 times its share" in outcome.err
    assert "88% of it repeats what other GPUs compute" in outcome.err


def test_repeated_work_is_also_reported_for_an_unpartitioned_module(
  model, tmp_path
):
  target = load.load(f"{model}:outside", _CLUSTER)
  assert isinstance(target, target_lib.StepTarget)
  file = tmp_path / "step.txt"
  file.write_text(target.lowered.step.as_text(dialect="hlo"))
  assert "8.0 times its share" in said_of(load.load(str(file), _CLUSTER))


def test_fsdp_and_tp_steps_have_no_repeated_work(fsdp_step, tp_step):
  for lowered in (fsdp_step(), fsdp_step(unroll=True), tp_step):
    assert not of_step(lowered)


def placed(
  devices: Sequence[jax.Device],
  shape: tuple[int, ...],
  *spec: str | None,
  dtype: jax.typing.DTypeLike = jnp.bfloat16,
) -> jax.ShapeDtypeStruct:
  mesh = Mesh(np.array(devices), ("data",))
  sharding = NamedSharding(mesh, PartitionSpec(*spec))
  return jax.ShapeDtypeStruct(shape, dtype, sharding=sharding)


@pytest.mark.parametrize(
  ("batch", "times"), [(None, "8.0 times its share"), ("data", "")]
)
def test_repeated_convolutions_and_their_gradients_are_reported(
  h100s, batch, times
):
  whole = placed(h100s, ()).sharding

  def loss(kernel: jax.Array, image: jax.Array) -> jax.Array:
    for _ in range(2):
      image = jax.lax.conv_general_dilated(
        image,
        jax.lax.with_sharding_constraint(kernel, whole),
        (1, 1),
        "SAME",
        dimension_numbers=("NHWC", "HWIO", "NHWC"),
      )
    return jnp.square(image.astype(jnp.float32)).mean()

  said = of_step(
    jax.jit(jax.grad(loss)).lower(
      placed(h100s, (3, 3, 64, 64), None, None, None, "data"),
      placed(h100s, (32, 16, 16, 64), batch),
    )
  )
  assert times in said
  assert bool(said) == bool(times)


@pytest.mark.parametrize("dtype", [jnp.bfloat16, jnp.complex64])
def test_matmuls_inside_shard_map_are_not_reported_as_repeated(h100s, dtype):
  h = placed(h100s, (4096, 512), "data", dtype=dtype)
  w = placed(h100s, (512, 512), dtype=dtype)
  by_hand = jax.shard_map(
    lambda h, w: h @ w,
    mesh=h.sharding.mesh,
    in_specs=(PartitionSpec("data"), PartitionSpec()),
    out_specs=PartitionSpec("data"),
  )
  assert not of_step(jax.jit(by_hand).lower(h, w))


def test_loops_of_unknown_length_are_not_reported(h100s):
  def step(w: jax.Array, num_trips: jax.Array) -> jax.Array:
    return jax.lax.fori_loop(0, num_trips, lambda _, h: jnp.tanh(h @ w), w)

  w = placed(h100s, (512, 512))
  num_trips = placed(h100s, (), dtype=jnp.int32)
  assert not of_step(jax.jit(step).lower(w, num_trips))
