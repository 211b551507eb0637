# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Source lines of instructions, in steps that XLA compiles here."""

from __future__ import annotations

from collections.abc import Callable, Sequence
import inspect
import pathlib

import jax
import jax.numpy as jnp
from jax.sharding import Mesh
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec
import numpy as np
import pytest

from lagom_xla.passes import collectives
from lagom_xla.passes import hlo
from lagom_xla.passes import source_lines

_HERE = pathlib.Path(__file__).name


def _loss(w: dict[str, jax.Array], x: jax.Array) -> jax.Array:
  with jax.named_scope("decoder"), jax.named_scope("mlp"):
    h = jnp.tanh(x @ w["up"])
    h = h @ w["down"]
  return jnp.sum(jnp.square(h))


def _step(w: dict[str, jax.Array], x: jax.Array) -> dict[str, jax.Array]:
  return jax.tree.map(lambda w, g: w - g, w, jax.grad(_loss)(w, x))


def _lines_of(function: Callable[..., object]) -> range:
  lines, first = inspect.getsourcelines(function)
  return range(first, first + len(lines))


@pytest.fixture(scope="module")
def module(
  h100s: Sequence[jax.Device], scheduled: Callable[..., hlo.Module]
) -> hlo.Module:
  """Parameters are sharded, so that they are gathered where they are used."""
  rows = NamedSharding(Mesh(np.array(h100s), ("x",)), PartitionSpec("x"))
  w = jax.ShapeDtypeStruct((4096, 4096), jnp.float32, sharding=rows)
  jitted = jax.jit(_step, out_shardings=rows)
  return scheduled(jitted.lower({"up": w, "down": w}, w))


def _lines(module: hlo.Module) -> dict[str, source_lines.SourceLine]:
  lines = source_lines.SourceLines(module)
  starts = {c.start_id: c.name for c in collectives.find(module)}
  return {
    starts[instruction.id]: lines.of(computation, instruction)
    for computation in module.computations.values()
    for instruction in computation.instructions
    if instruction.id in starts
  }


def test_every_collective_is_traced_to_the_function_that_needs_it(
  module: hlo.Module,
) -> None:
  found = _lines(module)
  assert found
  allowed = {*_lines_of(_loss), *_lines_of(_step)}
  for line in found.values():
    frame = line.frames[0]
    assert pathlib.Path(frame.file).name == _HERE
    assert frame.line in allowed


def test_a_gather_of_parameters_names_its_line_and_its_layer(
  module: hlo.Module,
) -> None:
  gathers = [v for k, v in _lines(module).items() if "all-gather" in k]
  assert gathers
  lines = inspect.getsourcelines(_loss)[0]
  products = {
    _lines_of(_loss)[i] for i, line in enumerate(lines) if "@" in line
  }
  for line in gathers:
    assert line.frames[0].line in products
    assert line.frames[0].function == "_loss"
    assert line.layer == "decoder/mlp"
    assert str(line).startswith(f"{_HERE}:{line.frames[0].line}, decoder/mlp")


def test_what_gradients_need_is_of_the_backward_pass(
  module: hlo.Module,
) -> None:
  reduced = [v for k, v in _lines(module).items() if "reduce-scatter" in k]
  assert reduced
  assert all(line.is_backward for line in reduced)
  assert all(str(line).endswith("(backward)") for line in reduced)


def test_frames_of_installed_packages_are_left_out(module: hlo.Module) -> None:
  lines = source_lines.SourceLines(module)
  of_here = [
    frames
    for computation in module.computations.values()
    for instruction in computation.instructions
    if (frames := lines.of_own(instruction).frames)
    and any(pathlib.Path(f.file).name == _HERE for f in frames)
  ]
  assert of_here
  for frames in of_here:
    assert not any("site-packages" in f.file for f in frames)


def test_a_module_without_metadata_says_nothing(module: hlo.Module) -> None:
  bare = hlo.Module(type(module.proto).FromString(b""))
  bare.proto.CopyFrom(module.proto)
  bare.proto.ClearField("stack_frame_index")
  for computation in bare.proto.computations:
    for instruction in computation.instructions:
      instruction.ClearField("metadata")
  found = _lines(bare)
  assert found and not any(found.values())
  assert {str(line) for line in found.values()} == {""}


def test_a_file_and_line_of_older_versions_are_read(
  module: hlo.Module,
) -> None:
  old = hlo.Module(type(module.proto).FromString(b""))
  old.proto.CopyFrom(module.proto)
  for computation in old.proto.computations:
    for instruction in computation.instructions:
      instruction.metadata.Clear()
      instruction.metadata.source_file = "train.py"
      instruction.metadata.source_line = 88
      instruction.metadata.op_name = "jit(step)/layer/attention/dot_general"
  assert {str(line) for line in _lines(old).values()} == {
    "train.py:88, layer/attention"
  }


@pytest.mark.parametrize(
  ("op_name", "layer"),
  [
    ("jit(step)/dot_general", ""),
    (
      "jit(step)/jvp(Net)/layer_0/attention/dot_general",
      "Net/layer_0/attention",
    ),
    ("jit(step)/transpose(jvp(Net))/while/body/closed_call/mlp/dot", "Net/mlp"),
    ("jit(step)/jvp(Net)/layer_0/(a/dot_general:b/dot_general)", "Net/layer_0"),
    (
      "jit(step)/jvp(Net)/while/body/eval_jaxpr/layers/mlp/dot",
      "Net/layers/mlp",
    ),
    ("(jit(step)/a/slice:jit(step)/b/slice)", ""),
    ("jit(step)/jit(inner)/remat(block)/add", "block"),
    ("", ""),
  ],
)
def test_a_layer_is_an_op_name_less_what_jax_adds(
  op_name: str, layer: str
) -> None:
  assert source_lines.layer_of(op_name) == layer
