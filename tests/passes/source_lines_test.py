# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Source lines of instructions, in steps that XLA compiles here."""

from __future__ import annotations

from collections.abc import Callable
import functools
import importlib
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
def module(h100s, scheduled) -> hlo.Module:
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


def test_every_collective_has_the_source_line_that_needs_it(module):
  written = dict(
    zip(_lines_of(_loss), inspect.getsourcelines(_loss)[0], strict=True)
  )
  products = [number for number, line in written.items() if "@" in line]
  found = _lines(module)
  assert any("all-gather" in name for name in found)
  assert any("reduce-scatter" in name for name in found)
  for name, line in found.items():
    frame = line.frames[0]
    assert pathlib.Path(frame.file).name == _HERE
    assert frame.line in {*written, *_lines_of(_step)}
    if "all-gather" in name:  # A parameter, gathered for its product.
      assert frame.line in products
      assert (frame.function, line.layer) == ("_loss", "decoder/mlp")
      assert str(line).startswith(f"{_HERE}:{frame.line}, decoder/mlp")
    if "reduce-scatter" in name:  # A gradient.
      assert line.is_backward
      assert str(line).endswith("(backward)")


def test_frames_of_installed_packages_are_left_out(module):
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


def test_a_step_of_an_installed_trainer_has_lines_of_the_trainer(
  h100s, scheduled, tmp_path, monkeypatch
):
  package = tmp_path / "site-packages" / "trainer"
  package.mkdir(parents=True)
  # Keras calls JAX this way.
  (package / "backend.py").write_text("def matmul(x, w):\n  return x @ w\n")
  (package / "training.py").write_text(
    "import jax, jax.numpy as jnp\n"
    "from trainer import backend\n"
    "def step(loss, w, x):\n"
    "  return jax.tree.map(jnp.subtract, w, jax.grad(loss)(w, x))\n"
    "def loss(w, x):\n"
    "  x = backend.matmul(x, w['up'])\n"
    "  return jnp.sum(jnp.square(backend.matmul(x, w['down'])))\n"
  )
  monkeypatch.syspath_prepend(str(package.parent))
  training = importlib.import_module("trainer.training")
  rows = NamedSharding(Mesh(np.array(h100s), ("x",)), PartitionSpec("x"))
  w = jax.ShapeDtypeStruct((4096, 4096), jnp.float32, sharding=rows)
  args = {"up": w, "down": w}, w

  def compiled(loss: Callable[..., object]) -> hlo.Module:
    jitted = jax.jit(functools.partial(training.step, loss), out_shardings=rows)
    return scheduled(jitted.lower(*args))

  def files(module: hlo.Module) -> set[str]:
    lines = _lines(module).values()
    return {pathlib.Path(line.frames[0].file).name for line in lines}

  module = compiled(training.loss)
  assert files(module) == {"training.py"}
  # An instruction traced elsewhere, such as in a thread, has another stack.
  with_another = module.copy()
  stacks = with_another.proto.stack_frame_index.stack_frames
  stacks.add(file_location_id=stacks[0].file_location_id)
  root = with_another.entry.root
  root.metadata.stack_frame_id = len(stacks)
  assert files(with_another) == {"training.py"}
  # The user's own model distinguishes the collectives.
  assert files(compiled(_loss)) == {_HERE}


def _dense(x, w):
  return x @ w


def _block(x, w):
  x = jax.nn.silu(_dense(x, w["value"]))
  x = jax.nn.silu(_dense(x, w["out"]))
  x = jax.nn.silu(_dense(x, w["up"]))
  return _dense(x, w["down"])


def test_products_in_a_helper_have_the_lines_of_its_callers(h100s, scheduled):
  rows = NamedSharding(Mesh(np.array(h100s), ("x",)), PartitionSpec("x"))
  w = jax.ShapeDtypeStruct((2048, 2048), jnp.float32, sharding=rows)
  weights = {name: w for name in ("value", "out", "up", "down")}

  def step(weights, x):
    return jax.grad(lambda weights: jnp.square(_block(x, weights)).sum())(
      weights
    )

  found = _lines(scheduled(jax.jit(step, out_shardings=rows).lower(weights, w)))
  lines = {line.frames[0].line for line in found.values()}
  callers, first = inspect.getsourcelines(_block)
  calling = {first + n for n, line in enumerate(callers) if "_dense(" in line}
  assert lines and lines <= calling


def test_loop_bodies_are_not_mistaken_for_helper_functions(
  h100s, scheduled, tmp_path, monkeypatch
):
  package = tmp_path / "site-packages" / "looping"
  package.mkdir(parents=True)
  (package / "training.py").write_text(
    "import jax, jax.numpy as jnp\n"
    "def first(x, w):\n"
    "  return jnp.tanh(x @ w), None\n"
    "def second(x, w):\n"
    "  return jnp.sin(x @ w), None\n"
    "def third(x, w):\n"
    "  return jnp.cos(x @ w), None\n"
    "def loss(w, x):\n"
    "  x, _ = jax.lax.scan(jax.checkpoint(first), x, w['a'])\n"
    "  x, _ = jax.lax.scan(jax.checkpoint(second), x, w['b'])\n"
    "  x, _ = jax.lax.scan(jax.checkpoint(third), x, w['c'])\n"
    "  return jnp.sum(jnp.square(x))\n"
    "def step(w, x):\n"
    "  return jax.grad(loss)(w, x)\n"
  )
  monkeypatch.syspath_prepend(str(package.parent))
  training = importlib.import_module("looping.training")
  mesh = Mesh(np.array(h100s), ("x",))
  spec = NamedSharding(mesh, PartitionSpec(None, "x"))
  w = jax.ShapeDtypeStruct((4, 2048, 2048), jnp.float32, sharding=spec)
  x = jax.ShapeDtypeStruct(
    (2048, 2048), jnp.float32, sharding=NamedSharding(mesh, PartitionSpec("x"))
  )
  module = scheduled(jax.jit(training.step).lower(dict.fromkeys("abc", w), x))
  # Stacks begin with the step, as if the command called it.
  index = module.proto.stack_frame_index
  files = [
    index.file_names[index.file_locations[n - 1].file_name_id - 1]
    for n in (frame.file_location_id for frame in index.stack_frames)
  ]
  for frame in index.stack_frames:
    if not files[frame.parent_frame_id - 1].endswith("training.py"):
      frame.parent_frame_id = 0
  lines = {line.frames[0].line for line in _lines(module).values()}
  assert {3, 5, 7} <= lines


def test_source_lines_fall_back_to_metadata_without_stack_frames(module):
  other = module.copy()
  other.proto.ClearField("stack_frame_index")
  metadata = [
    i.metadata for c in other.proto.computations for i in c.instructions
  ]
  for each in metadata:
    each.Clear()
  found = _lines(other)
  assert found and not any(found.values())
  assert {str(line) for line in found.values()} == {""}
  # Older versions wrote a file and a line.
  for each in metadata:
    each.source_file, each.source_line = "train.py", 88
    each.op_name = "jit(step)/layer/attention/dot_general"
  assert {str(line) for line in _lines(other).values()} == {
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
    ("jit(step)/mlp/...k,kn->...n/dot_general", "mlp"),
    ("", ""),
  ],
)
def test_a_layers_name_is_its_op_name_without_jaxs_additions(op_name, layer):
  assert source_lines.layer_of(op_name) == layer
