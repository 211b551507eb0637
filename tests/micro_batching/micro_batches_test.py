# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Micro-batches give the loss and the gradients of their batch.

They differ only in the order of one sum: it adds `num` numbers instead of their
terms. With float32, the bound below is 1e-5 of the largest entry: about a
hundred terms, each rounded to 6e-8 of itself.
"""

from __future__ import annotations

from collections.abc import Callable
import functools
from typing import Any

from flax import nnx
import hypothesis
from hypothesis import strategies as st
import jax
import jax.numpy as jnp
from jax.sharding import AxisType
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec
import numpy as np
import pytest

import lagom_xla

_BATCH = 24
_WIDTH = 8
_RELATIVE = {"float32": 1e-5, "bfloat16": 2e-2, "float16": 3e-3}


def _params_of(dtype: Any = jnp.float32) -> Any:
  keys = jax.random.split(jax.random.key(0), 2)
  return {
    "hidden": [jax.random.normal(keys[0], (_WIDTH, _WIDTH), dtype), None],
    "out": jax.random.normal(keys[1], (_WIDTH,), dtype),
  }


def _batch_of(dtype: Any = jnp.float32, size: int = _BATCH) -> Any:
  rng = np.random.default_rng(1)
  return {
    "x": jnp.asarray(rng.normal(size=(size, _WIDTH)), dtype),
    "label": jnp.asarray(rng.integers(_WIDTH, size=size), jnp.int32),
    "scale": 0.5,
    "nothing": None,
  }


def _per_element(params: Any, batch: Any) -> jax.Array:
  """The loss of each element, which uses every leaf."""
  h = jnp.tanh(batch["x"] @ params["hidden"][0])
  picked = jnp.take_along_axis(h, batch["label"][:, None], axis=1)[:, 0]
  return batch["scale"] * jnp.square(h @ params["out"] - picked)


def _loss_of(params: Any, batch: Any, reduction: str = "mean") -> jax.Array:
  reduce: Callable[..., jax.Array] = getattr(jnp, reduction)
  return reduce(_per_element(params, batch))


def _assert_close(actual: Any, expected: Any) -> None:
  """Compares trees of arrays within the bound for their dtype."""
  assert jax.tree.structure(actual) == jax.tree.structure(expected)
  for here, there in zip(
    jax.tree.leaves(actual), jax.tree.leaves(expected), strict=True
  ):
    assert (here.dtype, here.shape) == (there.dtype, there.shape)
    if there.dtype == jax.dtypes.float0:
      continue
    here, there = np.asarray(here, np.float64), np.asarray(there, np.float64)
    bound = _RELATIVE[str(jax.tree.leaves(expected)[0].dtype)]
    np.testing.assert_allclose(
      here, there, rtol=0, atol=bound * np.abs(there).max(initial=1e-3)
    )


@pytest.mark.parametrize("reduction", ["mean", "sum"])
def test_loss_and_gradients_match_the_whole_batch(reduction):
  loss = functools.partial(_loss_of, reduction=reduction)
  thirds = lagom_xla.micro_batches(loss, 3, reduction=reduction)
  expected = jax.jit(jax.value_and_grad(loss))(_params_of(), _batch_of())
  _assert_close(jax.jit(thirds)(_params_of(), _batch_of()), expected)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_results_have_the_dtypes_of_value_and_grad(dtype):
  args = _params_of(dtype), _batch_of(dtype)
  expected = jax.jit(jax.value_and_grad(_loss_of))(*args)
  assert expected[0].dtype == dtype
  _assert_close(jax.jit(lagom_xla.micro_batches(_loss_of))(*args), expected)


def test_a_float16_loss_near_the_maximum_does_not_overflow():
  # The sum of two halves' means would be infinite.
  def loss(scale: jax.Array, batch: jax.Array) -> jax.Array:
    return jnp.mean(scale * batch)

  args = jnp.float16(60000), jnp.ones(8, jnp.float16)
  assert lagom_xla.micro_batches(loss)(*args)[0] == 60000


@hypothesis.settings(max_examples=8)
@hypothesis.given(data=st.data())
def test_results_match_value_and_grad_for_any_trees_of_arguments(data):
  num = data.draw(st.integers(1, 4), "num")
  size = num * data.draw(st.integers(1, 2), "elements of a micro-batch")
  # Few shapes, so that hardly any example compiles anything.
  shapes = st.lists(st.sampled_from([(), (2,), (2, 3)]), min_size=1, max_size=2)
  rng = np.random.default_rng(data.draw(st.integers(0, 99), "seed"))
  normal = lambda shape: rng.normal(size=shape).astype(np.float32)  # noqa: E731
  params = [normal(shape) for shape in data.draw(shapes, "params")]
  batch = tuple(normal((size, *s)) for s in data.draw(shapes, "batch"))
  reduction: Any = data.draw(st.sampled_from(["mean", "sum"]), "reduction")
  argnums = data.draw(st.sampled_from([0, 1, -1, (0,), (1, 0), (-2, 1)]))
  by_name = data.draw(st.booleans(), "whether the offset is given by name")

  def loss(params: Any, batch: Any, offset: Any) -> jax.Array:
    features = sum(
      jnp.sin(leaf + offset["of"][0]).reshape(size_of(batch), -1).sum(1)
      for leaf in batch
    )
    weights = sum(jnp.sum(jnp.square(leaf)) for leaf in params)
    reduce = getattr(jnp, reduction)
    return reduce(jnp.cos(features * weights + offset["of"][0]))

  offset = {"of": [np.float32(0.3)]}
  args: list[Any] = [params, batch]
  kwargs: dict[str, Any] = {}
  if by_name or argnums in (-1, (-2, 1)):
    kwargs["offset"] = offset
  else:
    args.append(offset)
  expected = jax.jit(jax.value_and_grad(loss, argnums))(*args, **kwargs)
  halves = lagom_xla.micro_batches(
    loss, num, argnums=argnums, reduction=reduction
  )
  _assert_close(jax.jit(halves)(*args, **kwargs), expected)


def size_of(batch: Any) -> int:
  return jax.tree.leaves(batch)[0].shape[0]


def test_gradients_of_the_batch_keep_its_order():
  # Labels and one parameter are integers, whose gradients are float0.
  def loss(params: Any, batch: Any) -> jax.Array:
    return params["times"] * _loss_of(params, batch)

  args = _params_of() | {"times": jnp.int32(3)}, _batch_of()
  thirds = lagom_xla.micro_batches(loss, 3, argnums=(0, 1), allow_int=True)
  expected = jax.value_and_grad(loss, (0, 1), allow_int=True)(*args)
  _assert_close(thirds(*args), expected)


def test_the_batch_may_be_given_by_name():
  halves = lagom_xla.micro_batches(
    _loss_of, batch_argnums=(), batch_argnames="batch"
  )
  expected = jax.value_and_grad(_loss_of)(_params_of(), batch=_batch_of())
  _assert_close(halves(_params_of(), batch=_batch_of()), expected)


def test_aux_leaves_are_concatenated_or_averaged_by_their_shapes():
  def loss(params: Any, batch: Any) -> Any:
    losses = _per_element(params, batch)
    aux = {
      "losses": losses,
      "labels": batch["label"],
      "metrics": (losses.mean(), jnp.mean(batch["x"], axis=0)),
      "nothing": None,
    }
    return losses.mean(), aux

  args = _params_of(), _batch_of()
  halves = lagom_xla.micro_batches(loss, 3, has_aux=True)
  expected = jax.value_and_grad(loss, has_aux=True)(*args)
  _assert_close(jax.jit(halves)(*args), expected)


def test_aux_with_the_size_of_a_micro_batch_is_still_averaged():
  # 24 elements in 3 micro-batches of 8, and 8 features.
  def loss(params: Any, batch: Any) -> Any:
    return _loss_of(params, batch), batch["x"].mean(axis=0)

  halves = lagom_xla.micro_batches(loss, _BATCH // _WIDTH, has_aux=True)
  (_, mean), _ = halves(_params_of(), _batch_of())
  assert mean.shape == (_WIDTH,)
  _assert_close(mean, _batch_of()["x"].mean(axis=0))


def test_aux_is_combined_by_explicit_rules():
  def loss(params: Any, batch: Any) -> Any:
    count = jnp.int32(size_of(batch))
    return _loss_of(params, batch), ({"count": count, "x": batch["x"]}, count)

  rules = ({"count": "sum", "x": "batch"}, "last")
  halves = lagom_xla.micro_batches(loss, 4, has_aux=True, aux=rules)
  (_, (of_batch, of_last)), _ = halves(_params_of(), _batch_of())
  assert of_batch["count"] == _BATCH
  np.testing.assert_array_equal(of_batch["x"], _batch_of()["x"])
  assert of_last == _BATCH // 4


def test_micro_batches_composes_with_scan_remat_vmap_and_grad():
  @jax.checkpoint
  def layer(h: jax.Array, weight: jax.Array) -> tuple[jax.Array, None]:
    return jnp.tanh(h @ weight), None

  def loss(weights: jax.Array, rows: jax.Array) -> jax.Array:
    return jnp.mean(jnp.square(jax.lax.scan(layer, rows, weights)[0]))

  rng = np.random.default_rng(0)
  weights = jnp.asarray(rng.normal(size=(3, 4, 4)), jnp.float32)
  rows = jnp.asarray(rng.normal(size=(2, 6, 4)), jnp.float32)

  def grad_norm(value_and_grad: Any, weights: Any, rows: Any) -> jax.Array:
    return jnp.sum(jnp.square(value_and_grad(weights, rows)[1]))

  results = [
    jax.jit(
      jax.vmap(
        jax.grad(functools.partial(grad_norm, value_and_grad)), (None, 0)
      )
    )(weights, rows)
    for value_and_grad in (
      lagom_xla.micro_batches(loss),
      jax.value_and_grad(loss),
    )
  ]
  _assert_close(*results)


def test_an_nnx_model_is_differentiated_by_its_parameters():
  model = nnx.Linear(_WIDTH, 1, rngs=nnx.Rngs(0))
  graphdef, params, rest = nnx.split(model, nnx.Param, ...)

  def loss(params: Any, rest: Any, batch: jax.Array) -> jax.Array:
    merged = nnx.merge(graphdef, params, rest, copy=True)
    return jnp.mean(jnp.square(merged(batch)))

  args = params, rest, _batch_of()["x"]
  expected = jax.value_and_grad(loss)(*args)
  halves = lagom_xla.micro_batches(loss, batch_argnums=2)
  _assert_close(jax.jit(halves)(*args), expected)


def batch_sharded(axis_type: AxisType) -> tuple[Any, Any, jax.sharding.Mesh]:
  mesh = jax.make_mesh((4, 2), ("data", "fsdp"), axis_types=(axis_type,) * 2)
  rows = NamedSharding(mesh, PartitionSpec(("data", "fsdp")))
  whole = NamedSharding(mesh, PartitionSpec())
  batch = {
    name: jax.device_put(leaf, rows)
    for name, leaf in _batch_of(size=32).items()
    if isinstance(leaf, jax.Array)
  }
  return jax.device_put(_params_of(), whole), batch | {"scale": 0.5}, mesh


@pytest.mark.parametrize(
  ("num", "axis_type"), [(2, AxisType.Auto), (4, AxisType.Explicit)]
)
def test_no_element_of_a_sharded_batch_leaves_its_device(num, axis_type):
  def loss(params: Any, batch: Any) -> Any:
    losses = _per_element(params, batch)
    return losses.mean(), losses

  params, batch, mesh = batch_sharded(axis_type)
  halves = lagom_xla.micro_batches(loss, num, has_aux=True)
  with jax.set_mesh(mesh):
    compiled = jax.jit(halves).lower(params, batch).compile()
    (_, losses), _ = compiled(params, batch)
    expected = jax.jit(_per_element)(params, batch)
  text = compiled.as_text() or ""
  assert "all-reduce" in text
  for kind in ("all-gather", "all-to-all", "permute", "reduce-scatter"):
    assert kind not in text
  assert losses.sharding.is_equivalent_to(batch["label"].sharding, 1)
  _assert_close(losses, expected)


@pytest.mark.parametrize(
  ("kwargs", "message"),
  [
    ({"num": 0}, "is 0: give 1 or more"),
    ({"reduction": "max"}, "'max': give 'mean' or 'sum'"),
    ({"aux": ("mean", "median")}, "aux has 'median': give 'batch', 'mean'"),
  ],
)
def test_an_invalid_option_is_refused_at_once(kwargs, message):
  with pytest.raises(lagom_xla.LagomError, match=message):
    lagom_xla.micro_batches(_loss_of, **kwargs)


def with_aux(aux_of: Callable[[Any], Any]) -> Callable[..., Any]:
  return lambda params, batch: (_loss_of(params, batch), aux_of(batch["x"]))


@pytest.mark.parametrize(
  ("loss", "kwargs", "message"),
  [
    (_loss_of, {"num": 5}, r"of 24 in argument 1\['label'\] .* into 5"),
    (_loss_of, {"batch_argnums": 3}, "This call has no argument 3"),
    (_loss_of, {"rng_argnames": "key"}, "This call has no argument 'key'"),
    (
      _loss_of,
      {"batch_argnums": (0, 1)},
      r"8 elements in argument 0\['hidden'\].* and 24 in argument 1",
    ),
    (_per_element, {}, r"The loss is a float32\[12\]: return one real number"),
    (lambda p, b: jnp.int32(1), {}, r"The loss is a int32\[\]"),
    (_loss_of, {"has_aux": True}, r"must return \(loss, aux\)"),
    (
      with_aux(lambda x: {"n": jnp.int32(len(x))}),
      {"has_aux": True},
      r"combine aux\['n'\]: int32\[\] in each of 2 micro-batches",
    ),
    (
      with_aux(lambda x: x.T),
      {"has_aux": True},
      r"float32\[8, 24\] in the whole batch. Pass micro_batches\(aux",
    ),
    (
      with_aux(lambda x: jnp.int32(len(x))),
      {"has_aux": True, "aux": "mean"},
      "a leaf of int32, which has no mean",
    ),
    (
      with_aux(lambda x: (x, x)),
      {"has_aux": True, "aux": ("batch",)},
      "aux is not a prefix of the aux of the loss function",
    ),
  ],
)
def test_the_error_of_an_invalid_batch_loss_or_aux_names_the_problem(
  loss, kwargs, message
):
  halves = lagom_xla.micro_batches(loss, **kwargs)
  with pytest.raises(lagom_xla.LagomError, match=message):
    halves(_params_of(), _batch_of())


def test_a_batch_without_arrays_is_refused():
  halves = lagom_xla.micro_batches(lambda params, batch: params * batch)
  with pytest.raises(lagom_xla.LagomError, match="no array to split"):
    halves(1.0, 2.0)


def noise_loss(params: Any, batch: Any, rngs: Any) -> Any:
  drawn = jax.tree.map(lambda key: jax.random.normal(key, (3,)), rngs)
  return _loss_of(params, batch), [*jax.tree.leaves(drawn)]


@pytest.mark.parametrize("kind", ["typed", "legacy", "by name"])
def test_each_micro_batch_draws_different_random_numbers(kind):
  make = jax.random.PRNGKey if kind == "legacy" else jax.random.key
  halves = lagom_xla.micro_batches(
    noise_loss,
    has_aux=True,
    aux="batch",
    rng_argnums=2 if kind == "legacy" else (),
  )
  rngs = {"dropout": make(3)}
  args = _params_of(), _batch_of()
  if kind == "by name":
    (_, (drawn,)), _ = halves(*args, rngs=rngs)
  else:
    (_, (drawn,)), _ = halves(*args, rngs)
  first, second = drawn[::2], drawn[1::2]
  assert not np.isin(first, second).any()


def test_legacy_keys_given_by_name_draw_the_same_as_typed_keys():
  args = _params_of(), _batch_of()
  halves = lagom_xla.micro_batches(
    noise_loss, has_aux=True, aux="batch", rng_argnames="rngs"
  )
  legacy = halves(*args, rngs=jax.random.PRNGKey(7))[0][1][0]
  typed = halves(*args, rngs=jax.random.key(7))[0][1][0]
  np.testing.assert_array_equal(legacy, typed)


def test_keys_in_the_batch_are_split_like_its_other_elements():
  def loss(params: Any, batch: Any) -> Any:
    rows, keys = batch
    drawn = jax.vmap(jax.random.normal)(keys)
    return jnp.mean(params * rows * drawn), drawn

  args = (
    jnp.float32(2),
    (jnp.arange(8.0), jax.random.split(jax.random.key(0), 8)),
  )
  halves = lagom_xla.micro_batches(loss, 4, has_aux=True)
  _assert_close(halves(*args), jax.value_and_grad(loss, has_aux=True)(*args))
