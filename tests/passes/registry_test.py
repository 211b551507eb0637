# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""When and how often XLA calls a registered pass, and what stays unchanged."""

from __future__ import annotations

from collections.abc import Sequence
import contextlib

import jax
import jax.numpy as jnp
from jax.sharding import Mesh
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec
import pytest

from lagom_xla import errors
from lagom_xla.passes import hlo
from lagom_xla.passes import registry


@pytest.fixture(params=["cpu", "cuda"])
def platform(request) -> str:
  """Where passes are registered: the running CPU, and GPUs ahead of time."""
  if request.param == "cuda":
    request.getfixturevalue("h100s")
  return request.param


@pytest.fixture
def devices(platform, request) -> Sequence[jax.Device]:
  if platform == "cpu":
    return jax.devices()
  return request.getfixturevalue("h100s")


@pytest.fixture
def lowered(devices) -> jax.stages.Lowered:
  return _lower(devices)


def _lower(devices: Sequence[jax.Device]) -> jax.stages.Lowered:
  """A sharded step that donates its first argument, never compiled before."""
  mesh = Mesh(devices, ("x",))
  rows = NamedSharding(mesh, PartitionSpec("x"))
  x = jax.ShapeDtypeStruct((1024, 128), jnp.bfloat16, sharding=rows)
  w = jax.ShapeDtypeStruct((128, 128), jnp.bfloat16, sharding=rows)

  def step(x: jax.Array, w: jax.Array) -> jax.Array:
    return x - jnp.tanh(x @ w)

  jitted = jax.jit(step, donate_argnums=0, out_shardings=rows)
  return jitted.lower(x, w)


class _Reader:
  """A pass that keeps the protos of one module and changes nothing."""

  def __init__(self):
    self.seen: list[hlo.Module] = []

  def __call__(self, serialized: bytes) -> None:
    module = hlo.load(serialized)
    if module.name == "jit_step":
      self.seen.append(module)


def _opcodes(module: hlo.Module) -> set[str]:
  return {
    i.opcode for c in module.computations.values() for i in c.instructions
  }


def test_a_pass_of_each_stage_is_called_once_per_compile(platform, lowered):
  first, second = _Reader(), _Reader()
  before, after = registry.Stage
  with (
    registry.transformation(first, stage=before, platform=platform),
    registry.transformation(second, stage=after, platform=platform),
  ):
    lowered.compile()
  (early,), (late,) = first.seen, second.seen
  assert [early.is_scheduled, late.is_scheduled] == [False, True]
  if platform == "cuda":
    assert "all-gather" in _opcodes(early)
    assert not {"all-gather-start", "fusion"} & _opcodes(early)
    assert "fusion" in _opcodes(late)


def test_a_pass_is_unregistered_after_its_block_even_if_that_raises(
  platform, lowered
):
  reader = _Reader()
  stage = registry.Stage.POST_SCHEDULER
  with contextlib.suppress(KeyError):
    with registry.transformation(reader, stage=stage, platform=platform):
      raise KeyError
  lowered.compile()
  assert reader.seen == []


def test_an_exception_in_a_pass_fails_the_compile_with_its_message(
  platform, lowered
):
  def refuse(serialized: bytes) -> None:
    raise ValueError(f"refused {len(serialized) > 0}")

  stage = registry.Stage.PRE_SCHEDULER
  with registry.transformation(refuse, stage=stage, platform=platform):
    with pytest.raises(Exception, match="refused True"):
      lowered.compile()
  lowered.compile()  # The failure leaves nothing behind.


def test_a_read_only_pass_does_not_change_the_compiled_module(
  platform, devices
):
  stage = registry.Stage.POST_SCHEDULER
  with registry.transformation(_Reader(), stage=stage, platform=platform):
    read = hlo.load(_lower(devices).compile())
  alone = hlo.load(_lower(devices).compile())
  assert _opcodes(read) == _opcodes(alone)
  # Donated inputs stay donated.
  assert read.proto.input_output_alias == alone.proto.input_output_alias
  assert len(read.proto.input_output_alias.entries) == 1


@pytest.mark.parametrize("stage", registry.Stage)
def test_xla_continues_with_the_module_that_a_pass_returns(
  platform, lowered, stage
):
  def leave_a_note(serialized: bytes) -> bytes | None:
    proto = hlo.load(serialized).proto
    if proto.name != "jit_step":
      return None
    for computation in proto.computations:
      for instruction in computation.instructions:
        instruction.frontend_attributes.map["note"] = "was here"
    return proto.SerializeToString()

  with registry.transformation(leave_a_note, stage=stage, platform=platform):
    module = hlo.load(lowered.compile())
  notes = {i.frontend_attributes.map["note"] for i in module.entry.instructions}
  assert "was here" in notes


@pytest.mark.skipif(
  jax.__version_info__ >= (0, 11), reason="JAX itself keeps the passes"
)
def test_a_missing_cuda_plugin_is_named_in_the_error(monkeypatch):
  registry._extension.cache_clear()
  monkeypatch.setattr(registry, "plugin_path", lambda: None)
  stage = registry.Stage.POST_SCHEDULER
  with pytest.raises(errors.UnsupportedError, match="plugin is not installed"):
    with registry.transformation(_Reader(), stage=stage, platform="cuda"):
      pass
