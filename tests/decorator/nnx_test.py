# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""A step under Flax's `nnx.jit` is tuned like one under `jax.jit`."""

from __future__ import annotations

import functools
import pathlib
from typing import Any

from flax import nnx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from gpt import train
import lagom_xla
from lagom_xla import cluster as cluster_lib
from lagom_xla import plan as plan_lib
from lagom_xla.compile import load
from lagom_xla.compile import target as target_lib
from lagom_xla.passes import collectives
from lagom_xla.passes import provenance
from lagom_xla.passes.program import form as form_lib
from lagom_xla.tuner import tuner
import live_step
from sample_plan import PLAN

_CLUSTER = cluster_lib.parse("1x8xh100")
_TRAIN = pathlib.Path(train.__file__)

# With modules that may share variables, without, and as plain trees.
_MODES = (
  {},
  {"graph_updates": False},
  {"graph": False, "graph_updates": False},
)


class Model(nnx.Module):
  """Has parameters, statistics and a stream of random numbers."""

  def __init__(self, *, rngs: nnx.Rngs):
    self.up = nnx.Linear(64, 128, rngs=rngs)
    self.dropout = nnx.Dropout(0.1, rngs=rngs)
    self.norm = nnx.BatchNorm(128, rngs=rngs)

  def __call__(self, x: jax.Array) -> jax.Array:
    return self.norm(self.dropout(jnp.tanh(self.up(x))))


def step(model: Model, optimizer: nnx.Optimizer, x: jax.Array) -> jax.Array:
  loss, grads = nnx.value_and_grad(lambda m: jnp.mean(m(x) ** 2))(model)
  optimizer.update(model, grads)
  return loss


@functools.cache
def mesh() -> jax.sharding.Mesh:
  return jax.make_mesh(
    (8,), ("data",), axis_types=(jax.sharding.AxisType.Auto,)
  )


def placed(*spec: str) -> jax.sharding.NamedSharding:
  return jax.sharding.NamedSharding(mesh(), jax.sharding.PartitionSpec(*spec))


def modules() -> tuple[Model, nnx.Optimizer]:
  model = Model(rngs=nnx.Rngs(0))
  both = model, nnx.Optimizer(model, optax.adamw(1e-3), wrt=nnx.Param)
  nnx.update(both, jax.device_put(nnx.state(both), placed()))
  return both


def batch(seed: int) -> jax.Array:
  values = np.random.default_rng(seed).normal(size=(64, 64))
  return jax.device_put(values.astype(np.float32), placed("data"))


def values(both: tuple[Model, nnx.Optimizer]) -> list[bytes]:
  def raw(leaf: jax.Array) -> bytes:
    if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
      leaf = jax.random.key_data(leaf)
    return np.asarray(leaf).tobytes()

  return [raw(leaf) for leaf in jax.tree.leaves(nnx.state(both))]


@pytest.fixture
def tuned_names(monkeypatch) -> list[str]:
  """Compiles instead of tuning; the list has the targets."""
  names: list[str] = []

  class Compiled:
    def __init__(self, target: target_lib.Target):
      names.append(target.name)
      self.compiled = target.compile()
      self.plan = PLAN

  monkeypatch.setattr(tuner, "tune", lambda target, **_: Compiled(target))
  return names


@pytest.mark.parametrize("mode", _MODES)
def test_tuned_nnx_steps_give_the_same_bits_as_nnx_jit(tuned_names, mode):
  jitted = nnx.jit(step, donate_argnums=(0, 1), **mode)
  tuned = lagom_xla.tune(jitted, cluster=_CLUSTER)
  ours, theirs = modules(), modules()
  for n in range(3):
    x = batch(seed=n)
    before = jax.tree.leaves(nnx.state(ours))
    np.testing.assert_array_equal(tuned(*ours, x), jitted(*theirs, x))
    assert all(leaf.is_deleted() for leaf in before)
    assert not x.is_deleted()
  assert values(ours) == values(theirs)
  assert tuned_names == ["step"]


def test_an_nnx_step_is_tuned_while_training_like_a_jax_step():
  # Only one proposal: if noise rejected it, another would be tried.
  proposer = live_step.Proposer({"again 0": live_step.again})
  jitted = nnx.jit(step, donate_argnums=(0, 1))
  ours, theirs = modules(), modules()
  with live_step.proposed_by(proposer):
    tuned: Any = lagom_xla.tune(jitted, cache=False)
    for n in range(live_step.NUM_CALLS):
      x = batch(seed=n % 9)
      np.testing.assert_array_equal(tuned(*ours, x), jitted(*theirs, x))
  assert values(ours) == values(theirs)
  assert proposer.compiled == ["again 0"]
  assert tuned._repr_html_().startswith("<pre>step: ")


def test_a_full_search_runs_on_an_nnx_step():
  def step(model: Model, x: jax.Array) -> jax.Array:
    return jnp.mean(model.up(x) ** 2)

  tuned = lagom_xla.tune(nnx.jit(step), cluster=_CLUSTER)
  tuned(modules()[0], batch(seed=0))
  (tuning,) = tuned.tunings
  assert tuning.compiled is not None
  assert tuning.compiled.module.name == "jit_step"


def test_strands_warn_why_an_nnx_step_is_unchanged():
  stranded = lagom_xla.strands(
    nnx.jit(step), form=form_lib.Form(strands="merged")
  )
  with pytest.warns(RuntimeWarning, match="leaves step unchanged: it cannot"):
    stranded(*modules(), batch(seed=0))
  (outcome,) = stranded.outcomes
  assert not outcome.actions


# As plain trees, modules have JAX's paths.
@pytest.mark.parametrize("mode", _MODES[:2])
def test_arguments_are_named_by_their_paths_in_nnx_modules(mode):
  lowered = nnx.jit(step, **mode).lower(*modules(), batch(seed=0))
  module = target_lib.of_step(lowered, _CLUSTER, name="step").schedule()
  names = {one.name for one in provenance.of(module).arguments}
  assert {"model.up.kernel", "optimizer.opt_state[0].mu.up.bias"} <= names


def test_the_example_averages_its_gradients_over_all_gpus(h100s):
  del h100s
  target = load.load(
    f"{_TRAIN}:train_step", _CLUSTER, arguments={"model": "tiny"}
  )
  module = target.schedule()
  _, (model, *_) = train.train_step(jax.devices()[:8], model="tiny")
  num_params = sum(p.size for p in jax.tree.leaves(nnx.state(model, nnx.Param)))
  reduced = [c for c in collectives.find(module) if c.kind == "all-reduce"]
  # Linear layers' gradients are of bfloat16 until they are added up.
  assert sum(c.result_bytes for c in reduced) >= 2 * num_params
  # Every parameter and both of its moments, and the optimizer's two counts.
  aliases = module.proto.input_output_alias.entries
  leaves = jax.tree.leaves(nnx.state(model, nnx.Param))
  assert len(aliases) == 3 * len(leaves) + 2


@pytest.mark.parametrize(
  "returned", ["step.lower(*arguments)", "functools.partial(step, a), (b, c)"]
)
def test_a_lowered_or_bound_nnx_step_can_be_loaded(h100s, tmp_path, returned):
  del h100s
  file = tmp_path / "trains.py"
  file.write_text(
    "import functools\nfrom gpt import train\n\n"
    "def target(devices):\n"
    "  step, arguments = train.train_step(devices, model='tiny')\n"
    "  a, b, c = arguments\n"
    f"  return {returned}\n"
  )
  target = load.load(f"{file}:target", _CLUSTER)
  whole = load.load(
    f"{_TRAIN}:train_step", _CLUSTER, arguments={"model": "tiny"}
  )
  found, expected = (
    plan_lib.fingerprint(each.identity()) for each in (target, whole)
  )
  assert found == expected


@pytest.mark.parametrize("is_bound", [False, True])
def test_a_method_is_tuned_like_a_function(is_bound, tuned_names):
  class Trainer(nnx.Module):
    def __init__(self):
      self.model, self.optimizer = modules()

    @nnx.jit
    def step(self, x: jax.Array) -> jax.Array:
      return step(self.model, self.optimizer, x)

  if is_bound:
    tuned: Any = lagom_xla.tune(Trainer().step, cluster=_CLUSTER, measure=False)
  else:
    tune: Any = lagom_xla.tune(cluster=_CLUSTER)
    setattr(Trainer, "step", tune(Trainer.step))  # noqa: B010
    trainer: Any = Trainer()
    tuned = trainer.step
  x = batch(seed=0)
  losses = [float(tuned(x)) for _ in range(2)]
  assert losses[1] < losses[0]
  assert tuned_names == ["step"]
