# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""The arrays of collectives are followed from a step's arguments."""

from __future__ import annotations

from typing import Any

import hypothesis
from hypothesis import strategies as st
import jax
import jax.numpy as jnp
from jax.sharding import Mesh
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P
import numpy as np
import pytest

import hlo_text
from lagom_xla.passes import collectives
from lagom_xla.passes import hlo
from lagom_xla.passes import provenance

_WIDTH, _ROWS, _LAYERS, _MICRO = 256, 512, 3, 4


def _adam_step(devices, *, zero1: bool) -> jax.stages.Lowered:
  """Layers in a loop, in micro-batches, with Adam's two moments.

  Sharded as in FSDP; with zero1, only the moments are.
  """
  mesh = Mesh(np.array(devices), ("d",))

  def named(*spec):
    return NamedSharding(mesh, P(*spec))

  whole, part = named(), named(None, "d")
  weights = whole if zero1 else part

  def layer(x, w):
    x = jax.lax.with_sharding_constraint(x, named("d"))
    return jnp.tanh(x @ w["w"] + w["bias"]), None

  def loss(params, tokens):
    x = jnp.take(params["table"], tokens, axis=0)
    x, _ = jax.lax.scan(layer, x, params["layers"])
    return jnp.mean(x**2)

  def step(state, batch):
    params = state["params"]

    def micro(total, tokens):
      return jax.tree.map(jnp.add, total, jax.grad(loss)(params, tokens)), None

    grads, _ = jax.lax.scan(micro, jax.tree.map(jnp.zeros_like, params), batch)
    mean = jax.tree.map(lambda m, g: 0.9 * m + g, state["mean"], grads)
    square = jax.tree.map(lambda v, g: 0.9 * v + g * g, state["square"], grads)
    params = jax.tree.map(
      lambda p, m, v: p - m / jnp.sqrt(v + 1e-6), params, mean, square
    )
    return {"params": params, "mean": mean, "square": square}

  def arrays(sharding):
    def array(shape, sharding=sharding):
      return jax.ShapeDtypeStruct(shape, jnp.float32, sharding=sharding)

    return {
      "table": array((1024, _WIDTH)),
      "layers": {
        "w": array((_LAYERS, _WIDTH, _WIDTH)),
        "bias": array((_LAYERS, _WIDTH), whole),
      },
    }

  state = {
    "params": arrays(weights),
    "mean": arrays(part),
    "square": arrays(part),
  }
  batch = jax.ShapeDtypeStruct(
    (_MICRO, _ROWS), jnp.int32, sharding=named(None, "d")
  )
  out = jax.tree.map(lambda x: x.sharding, state)
  return jax.jit(step, out_shardings=out).lower(state, batch)


@pytest.fixture(scope="module", params=["fsdp", "zero1"])
def adam_step(h100s: Any, scheduled: Any, request: Any) -> hlo.Module:
  return scheduled(_adam_step(h100s, zero1=request.param == "zero1"))


def test_arguments_are_classified_by_their_use_in_the_step(
  adam_step: hlo.Module,
) -> None:
  for argument in provenance.of(adam_step).arguments:
    kind = "activation"
    if argument.name.startswith("state"):
      is_parameter = argument.name.startswith("state['params']")
      kind = "parameter" if is_parameter else "optimizer state"
    assert argument.kind == kind


@pytest.mark.parametrize(
  ("step", "packed"),
  [
    (lambda w, x: _sgd(w, x), lambda w, x: (w, x)),
    (lambda *args: _sgd(*args), lambda w, x: (w, x)),
    (lambda carry: _sgd(*carry), lambda w, x: ((w, x),)),
    (lambda all: _sgd(**all["of"]), lambda w, x: ({"of": {"w": w, "x": x}},)),
  ],
)
def test_data_and_parameters_are_distinguished_in_any_argument_tree(
  h100s: Any, scheduled: Any, step: Any, packed: Any
) -> None:
  rows = NamedSharding(Mesh(np.array(h100s), ("d",)), P("d"))
  w, x = (
    jax.ShapeDtypeStruct(shape, jnp.float32, sharding=rows)
    for shape in ((_WIDTH, _WIDTH), (_ROWS, _WIDTH))
  )
  module = scheduled(jax.jit(step).lower(*packed([w, w], x)))
  kinds = [one.kind for one in provenance.of(module).arguments]
  assert kinds == ["parameter", "parameter", "activation"]


def _sgd(w: list[jax.Array], x: jax.Array) -> list[jax.Array]:
  def loss(w: list[jax.Array]) -> jax.Array:
    return jnp.mean(jnp.tanh(x @ w[0] @ w[1]))

  return jax.tree.map(jnp.subtract, w, jax.grad(loss)(w))


def test_arrays_of_collectives_have_the_kinds_and_names_of_the_user(
  adam_step: hlo.Module,
) -> None:
  arrays = provenance.of(adam_step)
  moved = {
    (one.kind, array.kind, *array.names)
    for one in collectives.find(adam_step)
    for array in arrays.moved(one)
  }
  weight = "state['params']['layers']['w']"
  gathered = {m[1:] for m in moved if m[0] == "all-gather"}
  reduced = {m[1:] for m in moved if m[0] in ("all-reduce", "reduce-scatter")}
  # With zero1 the all-gather moves the new parameter.
  assert ("parameter", weight) in gathered
  assert ("gradient", weight) in reduced
  assert {kind for kind, *_ in reduced} == {"gradient"}
  exchanged = {m[1:] for m in moved if m[0] == "all-to-all"}
  # Rows of the table, whose columns are sharded, and their gradients.
  assert exchanged == {("activation",)}


def test_trips_of_a_loop_that_only_sums_reductions_are_counted(
  adam_step: hlo.Module,
) -> None:
  arrays = provenance.of(adam_step)
  trips = {
    arrays.trips_added_up(one)
    for one in collectives.find(adam_step)
    # XLA may move a small all-reduce out of the loop itself.
    if one.kind in ("all-reduce", "reduce-scatter") and one.executions > 1
  }
  assert trips == {_MICRO}


def test_shapes_of_moved_arrays_are_the_unsharded_ones(
  adam_step: hlo.Module,
) -> None:
  arrays = provenance.of(adam_step)
  shapes = {
    array.shape
    for one in collectives.find(adam_step)
    for array in arrays.moved(one)
    if array.names == ("state['params']['layers']['w']",)
  }
  square = f"{_WIDTH},{_WIDTH}]"
  assert shapes <= {f"f32[{square}", f"f32[{_LAYERS},{square}"}
  assert shapes


def _perceptron_loss(params, x):
  hidden = jnp.tanh(x @ params["up"] + params["bias"])
  return jnp.mean((hidden @ params["down"]) ** 2)


def _stacked(params, x):
  grads = [jax.grad(_perceptron_loss)(params, part) for part in x]
  return jax.tree.map(lambda *g: jnp.stack(g).sum(0), *grads)


def _mapped(params, x):
  grads = jax.lax.map(lambda p: jax.grad(_perceptron_loss)(params, p), x)
  return jax.tree.map(lambda g: g.mean(0), grads)


def _vectorized(params, x):
  grads = jax.vmap(lambda p: jax.grad(_perceptron_loss)(params, p))(x)
  return jax.tree.map(lambda g: g.mean(0), grads)


@pytest.mark.parametrize("gradients", [_stacked, _mapped, _vectorized])
def test_gradients_that_are_stacked_and_then_summed_are_gradients(
  h100s: Any, scheduled: Any, gradients: Any
) -> None:
  mesh = Mesh(np.array(h100s), ("d",))

  def array(*shape, spec=()):
    sharding = NamedSharding(mesh, P(*spec))
    return jax.ShapeDtypeStruct(shape, jnp.float32, sharding=sharding)

  @jax.jit
  def step(params, x):
    grads = gradients(params, x)
    return jax.tree.map(lambda p, g: p - 0.1 * g, params, grads)

  params = {
    "up": array(_WIDTH, 2 * _WIDTH),
    "bias": array(2 * _WIDTH),
    "down": array(2 * _WIDTH, _WIDTH),
  }
  x = array(_MICRO, _ROWS, _WIDTH, spec=(None, "d"))
  module = scheduled(step.lower(params, x))
  arrays, found = provenance.of(module), collectives.find(module)
  assert {a.kind for one in found for a in arrays.moved(one)} == {"gradient"}
  if gradients is _mapped:
    assert {arrays.parts_added_up(one) for one in found} == {_MICRO}


# Operations between an argument and a collective: lines of HLO that make {out}
# from {x}, all f32[64,8], and computations that they call.
_WAYS = {
  "convert": "{out}.h = bf16[64,8] convert({x})\n"
  "{out} = f32[64,8] convert({out}.h)",
  "reshape": "{out}.r = f32[512] reshape({x})\n"
  "{out} = f32[64,8] bitcast({out}.r)",
  "transpose": "{out}.t = f32[8,64] transpose({x}), dimensions={{1,0}}\n"
  "{out} = f32[64,8] transpose({out}.t), dimensions={{1,0}}",
  "barrier": "{out}.t = (f32[64,8], f32[8,8]) tuple({x}, other)\n"
  "{out}.b = (f32[64,8], f32[8,8]) opt-barrier({out}.t)\n"
  "{out} = f32[64,8] get-tuple-element({out}.b), index=0",
  "fusion": "{out} = f32[64,8] fusion({x}), kind=kLoop, calls=negated",
  "call": "{out} = f32[64,8] call({x}), to_apply=called",
  "loop": "{out}.t = (s32[], f32[8,8], f32[64,8]) tuple(zero, other, {x})\n"
  "{out}.l = (s32[], f32[8,8], f32[64,8]) while({out}.t), condition=go_on,"
  ' body=trip, backend_config={{"known_trip_count":{{"n":"2"}}}}\n'
  "{out} = f32[64,8] get-tuple-element({out}.l), index=2",
  "slices": "{out}.s = f32[128,8] pad({x}, fzero), padding=0_64x0_0\n"
  "{out} = f32[64,8] dynamic-slice({out}.s, zero, zero),"
  " dynamic_slice_sizes={{64,8}}",
  "update": "{out}.z = f32[64,8] broadcast(fzero), dimensions={{}}\n"
  "{out} = f32[64,8] dynamic-update-slice({out}.z, {x}, zero, zero)",
  "copy": "{out}.s = (f32[64,8], f32[64,8], u32[]) copy-start({x})\n"
  "{out} = f32[64,8] copy-done({out}.s)",
  "conditional": "{out} = f32[64,8] conditional(zero, {x}, {x}),"
  " branch_computations={{called, negated_too}}",
}
_MIXES = {
  "product": "{out} = f32[64,8] dot({x}, other), lhs_contracting_dims={{1}},"
  " rhs_contracting_dims={{0}}",
  "sum": "{out}.r = f32[8] reduce({x}, fzero), dimensions={{0}}, to_apply=add\n"
  "{out} = f32[64,8] broadcast({out}.r), dimensions={{1}}",
}
_CALLED = """
negated { ROOT n = f32[64,8] negate(f32[64,8] parameter(0)) }
negated_too { ROOT n = f32[64,8] negate(f32[64,8] parameter(0)) }
called { ROOT n = f32[64,8] copy(f32[64,8] parameter(0)) }
go_on {
  s = (s32[], f32[8,8], f32[64,8]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  two = s32[] constant(2)
  ROOT less = pred[] compare(i, two), direction=LT
}
trip {
  s = (s32[], f32[8,8], f32[64,8]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  o = f32[8,8] get-tuple-element(s), index=1
  x = f32[64,8] get-tuple-element(s), index=2
  one = s32[] constant(1)
  next = s32[] add(i, one)
  y = f32[64,8] negate(x)
  ROOT t = (s32[], f32[8,8], f32[64,8]) tuple(next, o, y)
}
"""


def _moved(of: str, ways: list[str]) -> provenance.Array:
  """The gathered array, made from an argument in these ways."""
  lines, x = [], of
  for number, way in enumerate(ways):
    made = {**_WAYS, **_MIXES}[way].format(x=x, out=f"v{number}")
    lines += made.split("\n")
    x = f"v{number}"
  module = hlo_text.load(
    f"""
      p = f32[64,8] parameter(0), metadata={{op_name="p['w']"}}
      x = f32[64,8] parameter(1), metadata={{op_name="x"}}
      other = f32[8,8] parameter(2), metadata={{op_name="p['o']"}}
      tokens = s32[64] parameter(3), metadata={{op_name="tokens"}}
      zero = s32[] constant(0)
      fzero = f32[] constant(0)
      {chr(10).join(lines)}
      g = f32[512,8] all-gather({x}), {hlo_text.GATHER}
      met = f32[64,8] multiply(p, x)
      halves = f32[8,8] dot(met, x), lhs_contracting_dims={{0}},
        rhs_contracting_dims={{0}}
      first = f32[64,8] dot(x, other), {hlo_text.DOT}
      new = f32[64,8] add(p, p)
      new_other = f32[8,8] add(other, halves)
      ROOT r = (f32[64,8], f32[8,8], f32[512,8], f32[64,8]) tuple(new,
        new_other, g, first)
    """,
    computations=_CALLED,
  )
  (gather,) = collectives.find(module)
  (array,) = provenance.of(module).moved(gather)
  return array


_ways = st.lists(st.sampled_from(sorted(_WAYS)), max_size=5, unique=True)


@hypothesis.given(_ways)
def test_a_parameter_is_recognized_through_any_data_movement(
  ways: list[str],
) -> None:
  array = _moved("p", ways)
  assert (array.kind, array.names) == ("parameter", ("p['w']",))
  assert array.shape == "f32[512,8]"


@hypothesis.given(_ways, st.sampled_from(sorted(_MIXES)), _ways)
def test_an_array_computed_from_data_is_an_activation(
  ways: list[str], mix: str, more: list[str]
) -> None:
  ways = [*ways, mix, *(way for way in more if way not in ways)]
  assert _moved("x", ways).kind == "activation"


@pytest.mark.parametrize(("used_alone", "number"), [(False, 2), (True, 1)])
def test_reductions_with_no_use_but_their_sum_are_counted_together(
  used_alone: bool, number: int
) -> None:
  other = "first" if used_alone else "sum"
  module = hlo_text.load(
    f"""
      g = f32[64,8] parameter(0)
      h = f32[64,8] parameter(1)
      first = f32[64,8] all-reduce(g), {hlo_text.ALL}, to_apply=add
      second = f32[64,8] all-reduce(h), {hlo_text.ALL}, to_apply=add
      half = f32[64,8] negate(first)
      sum = f32[64,8] add(half, second)
      square = f32[64,8] multiply({other}, {other})
      ROOT r = (f32[64,8], f32[64,8]) tuple(sum, square)
    """
  )
  arrays = provenance.of(module)
  for one in collectives.find(module):
    assert arrays.num_added_up(one) == number


@pytest.mark.parametrize(
  ("place", "stack", "number"),
  [
    ("0_64x0_0", "add(one, other)", 2),
    ("64_0x0_0", "add(one, other)", 1),
    ("0_64x0_0", "concatenate(first, second), dimensions={0}", 1),
  ],
)
def test_reductions_at_different_places_of_a_stack_are_not_summed(
  place: str, stack: str, number: int
) -> None:
  module = hlo_text.load(
    f"""
      g = f32[64,8] parameter(0)
      h = f32[64,8] parameter(1)
      momentum = f32[128,8] parameter(2)
      zero = f32[] constant(0)
      first = f32[64,8] all-reduce(g), {hlo_text.ALL}, to_apply=add
      second = f32[64,8] all-reduce(h), {hlo_text.ALL}, to_apply=add
      one = f32[128,8] pad(first, zero), padding=0_64x0_0
      other = f32[128,8] pad(second, zero), padding={place}
      stack = f32[128,8] {stack}
      ROOT new = f32[128,8] add(momentum, stack)
    """
  )
  arrays = provenance.of(module)
  for one in collectives.find(module):
    assert arrays.num_added_up(one) == number


@pytest.mark.parametrize(
  ("given", "row", "number"),
  [
    ("constant(0)", "copy(zero)", 2),
    ("constant(0)", "copy(half)", 1),
    ("reshape(begin)", "reshape(last)", 1),
  ],
)
def test_reductions_in_one_place_of_two_stacks_are_added_up(
  given: str, row: str, number: int
) -> None:
  module = hlo_text.load(
    f"""
      g = f32[64,8] parameter(0)
      h = f32[64,8] parameter(1)
      fzero = f32[] constant(0)
      zeros = f32[128,8] broadcast(fzero), dimensions={{}}
      zero = s32[] constant(0)
      half = s32[] constant(64)
      rows = s32[2] parameter(2)
      begin = s32[1] slice(rows), slice={{[0:1]}}
      last = s32[1] slice(rows), slice={{[1:2]}}
      row = s32[] {given}
      other_row = s32[] {row}
      first = f32[64,8] all-reduce(g), {hlo_text.ALL}, to_apply=add
      second = f32[64,8] all-reduce(h), {hlo_text.ALL}, to_apply=add
      one = f32[128,8] dynamic-update-slice(zeros, first, row, zero)
      other = f32[128,8] dynamic-update-slice(zeros, second, other_row, zero)
      ROOT stack = f32[128,8] add(one, other)
    """
  )
  arrays = provenance.of(module)
  for one in collectives.find(module):
    assert arrays.num_added_up(one) == number


def test_reductions_over_other_devices_are_not_added_up() -> None:
  pairs = hlo_text.ALL.replace("[1,8]", "[4,2]")
  module = hlo_text.load(
    f"""
      g = f32[64,8] parameter(0)
      h = f32[64,8] parameter(1)
      first = f32[64,8] all-reduce(g), {hlo_text.ALL}, to_apply=add
      second = f32[64,8] all-reduce(h), {pairs}, to_apply=add
      ROOT sum = f32[64,8] add(first, second)
    """
  )
  arrays = provenance.of(module)
  assert {arrays.num_added_up(one) for one in collectives.find(module)} == {1}


@pytest.mark.parametrize(
  ("opcode", "rows", "num_bytes"),
  [("reduce-scatter", 8, (64 - 8) * 8 * 4), ("all-reduce", 64, 0)],
)
def test_summing_before_a_reduce_scatter_takes_more_memory(
  opcode: str, rows: int, num_bytes: int
) -> None:
  dims = ", dimensions={0}" if opcode == "reduce-scatter" else ""
  reduced = f"{opcode}(%s), {hlo_text.ALL}, to_apply=add{dims}"
  module = hlo_text.load(
    f"""
      g = bf16[64,8] parameter(0)
      h = bf16[64,8] parameter(1)
      first = bf16[{rows},8] {reduced % "g"}
      second = bf16[{rows},8] {reduced % "h"}
      one = f32[{rows},8] convert(first)
      other = f32[{rows},8] convert(second)
      ROOT sum = f32[{rows},8] add(one, other)
    """
  )
  arrays, found = provenance.of(module), collectives.find(module)
  assert len(found) == 2
  assert sum(map(arrays.bytes_if_summed_first, found)) == num_bytes
