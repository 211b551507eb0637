# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""A step under `lagom_xla.tune` is the jitted step, but for what runs it.

The eight CPU devices stand for a node of eight H100s: schedules are those of
XLA's CPU compiler, on which GPU options do not act; all else is as on GPUs.
"""

from __future__ import annotations

from collections.abc import Callable
import dataclasses
import functools
import pathlib
import subprocess
import sys
import threading
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import lagom_xla
from lagom_xla import cluster as cluster_lib
from lagom_xla import errors
from lagom_xla import plan as plan_lib
from lagom_xla import tuner
from lagom_xla.apply import files
from lagom_xla.compile import compiler
from lagom_xla.compile import config as config_lib
from lagom_xla.compile import lowered as lowered_lib
from lagom_xla.compile import target as target_lib
from lagom_xla.passes.program import form as form_lib
import strands_step

_TRAIN = pathlib.Path(__file__).parents[1] / "examples/llama/train.py"
_CLUSTER = "1x8xh100"
_NUM_LAYERS = 3
_WIDTH = 64

State = dict[str, Any]


@functools.cache
def mesh() -> jax.sharding.Mesh:
  return jax.make_mesh(
    (8,), ("fsdp",), axis_types=(jax.sharding.AxisType.Auto,)
  )


def rows() -> jax.sharding.NamedSharding:
  return jax.sharding.NamedSharding(mesh(), jax.sharding.PartitionSpec("fsdp"))


def whole() -> jax.sharding.NamedSharding:
  return jax.sharding.NamedSharding(mesh(), jax.sharding.PartitionSpec())


def sharded(*shape: int, seed: int = 0) -> jax.Array:
  values = np.random.default_rng(seed).normal(size=shape)
  return jax.device_put(values.astype(np.float32), rows())


def fsdp_step() -> Any:
  """Momentum on a few layers, each gathered to be used; donates its state."""

  def loss_of(weights: list[jax.Array], x: jax.Array) -> jax.Array:
    for w in weights:
      x = jnp.tanh(x @ jax.lax.with_sharding_constraint(w, whole()))
    return jnp.mean(x**2)

  def step(state: State, x: jax.Array) -> tuple[State, jax.Array]:
    loss, grads = jax.value_and_grad(loss_of)(state["weights"], x)
    momenta = [
      0.9 * m + g for m, g in zip(state["momenta"], grads, strict=True)
    ]
    weights = [
      w - 0.1 * m for w, m in zip(state["weights"], momenta, strict=True)
    ]
    return {"weights": weights, "momenta": momenta}, loss

  return jax.jit(step, donate_argnums=0, out_shardings=(rows(), whole()))


def fresh_state() -> State:
  layers = range(_NUM_LAYERS)
  return {
    "weights": [sharded(_WIDTH, _WIDTH, seed=1 + n) for n in layers],
    "momenta": [sharded(_WIDTH, _WIDTH, seed=9 + n) for n in layers],
  }


def assert_identical(ours: Any, theirs: Any) -> None:
  """The same bits, types, weak types and places."""

  def facts(leaf: jax.Array) -> tuple[Any, ...]:
    values = np.asarray(leaf).tobytes()
    return values, leaf.aval, leaf.sharding, leaf.committed

  assert jax.tree.map(facts, ours) == jax.tree.map(facts, theirs)


@pytest.fixture
def tuned_names(monkeypatch: pytest.MonkeyPatch) -> list[str]:
  """The names of what the tuner tunes from now on."""
  names: list[str] = []
  real = tuner.tune

  def tune(target: target_lib.Target, **options: Any) -> tuner.Tuning:
    names.append(target.name)
    return real(target, **options)

  monkeypatch.setattr(tuner, "tune", tune)
  return names


@pytest.fixture
def failing_tuner(monkeypatch: pytest.MonkeyPatch) -> list[str]:
  """Fails each tuning; the list holds what was tried."""
  names: list[str] = []

  def tune(target: target_lib.Target, **unused_options: Any) -> tuner.Tuning:
    names.append(target.name)
    raise ZeroDivisionError("the search is broken")

  monkeypatch.setattr(tuner, "tune", tune)
  return names


def test_ten_steps_give_the_same_bits_as_jit(tuned_names: list[str]):
  jitted = fsdp_step()
  tuned = lagom_xla.tune(fsdp_step(), cluster=_CLUSTER)
  ours, theirs = fresh_state(), fresh_state()
  for n in range(10):
    x = sharded(16, _WIDTH, seed=100 + n)
    ours, our_loss = tuned(ours, x)
    theirs, their_loss = jitted(theirs, x)
    assert_identical((ours, our_loss), (theirs, their_loss))
  assert tuned_names == ["step"]


def test_the_plan_can_be_read_from_the_step():
  step = lagom_xla.tune(fsdp_step(), cluster=_CLUSTER)
  assert list(step.tunings) == []
  step(fresh_state(), sharded(16, _WIDTH))
  (tuning,) = step.tunings
  assert tuning.plan.cluster == cluster_lib.parse(_CLUSTER)
  assert tuning.plan.module_name == "jit_step"
  kinds = {c.kind for c in tuning.before.analysis.collectives}
  assert "all-gather" in kinds
  assert len(tuning.candidates) > 1


def test_what_runs_is_what_the_tuner_compiled(monkeypatch: pytest.MonkeyPatch):
  x = sharded(16)
  other = jax.jit(lambda x: x + 2).lower(x).compile()
  real = tuner.tune

  def tune(target: target_lib.Target, **options: Any) -> tuner.Tuning:
    tuning = real(target, **options)
    assert tuning.compiled is not None
    return dataclasses.replace(
      tuning, compiled=dataclasses.replace(tuning.compiled, compiled=other)
    )

  monkeypatch.setattr(tuner, "tune", tune)
  step = lagom_xla.tune(jax.jit(lambda x: x + 1), cluster=_CLUSTER)
  for _ in range(3):
    np.testing.assert_array_equal(step(x), x + 2)


def test_options_of_the_plan_are_compiled_in(monkeypatch: pytest.MonkeyPatch):
  asked: list[config_lib.XlaConfig] = []
  real = compiler.compile

  def compile_(step: Any, config: config_lib.XlaConfig) -> Any:
    asked.append(config)
    return real(step, config)

  monkeypatch.setattr(compiler, "compile", compile_)
  step = lagom_xla.tune(fsdp_step(), cluster=_CLUSTER)
  step(fresh_state(), sharded(16, _WIDTH))
  assert asked[-1] == step.tunings[0].plan.xla


def test_donated_buffers_are_deleted_as_by_jit():
  def deleted(step: Any) -> list[bool]:
    args = (fresh_state(), sharded(16, _WIDTH))
    step(*args)
    return [leaf.is_deleted() for leaf in jax.tree.leaves(args)]

  tuned = lagom_xla.tune(fsdp_step(), cluster=_CLUSTER)
  first, second = deleted(tuned), deleted(tuned)
  assert first == second == deleted(fsdp_step())
  assert first == [True] * (2 * _NUM_LAYERS) + [False]


def test_tuning_consumes_nothing(monkeypatch: pytest.MonkeyPatch):
  state = fresh_state()
  alive: list[bool] = []
  real = tuner.tune

  def tune(target: target_lib.Target, **options: Any) -> tuner.Tuning:
    tuning = real(target, **options)
    alive.extend(not leaf.is_deleted() for leaf in jax.tree.leaves(state))
    return tuning

  monkeypatch.setattr(tuner, "tune", tune)
  lagom_xla.tune(fsdp_step(), cluster=_CLUSTER)(state, sharded(16, _WIDTH))
  assert alive == [True] * (2 * _NUM_LAYERS)


def test_a_known_signature_runs_without_any_python():
  step = lagom_xla.tune(fsdp_step(), cluster=_CLUSTER)
  state, x = fresh_state(), sharded(16, _WIDTH)
  state, _ = step(state, x)
  state, _ = step(state, x)
  called: list[str] = []

  def profile(frame: Any, event: str, unused_arg: Any) -> None:
    if event == "call":
      called.append(frame.f_code.co_qualname)

  sys.setprofile(profile)
  try:
    step(state, x)
  finally:
    sys.setprofile(None)
  assert called == []


_CHANGES: dict[str, Callable[[], Any]] = {
  "shape": lambda: sharded(24),
  "dtype": lambda: sharded(16).astype(jnp.bfloat16),
  "weak type": lambda: jax.device_put(jnp.asarray(2.0), whole()),
  "sharding": lambda: jax.device_put(sharded(16), whole()),
  "structure": lambda: [sharded(16)],
}


@pytest.mark.parametrize("change", _CHANGES)
def test_a_new_signature_is_tuned_and_a_known_one_is_not(
  change: str, tuned_names: list[str]
):
  def double(x: Any) -> Any:
    return jax.tree.map(lambda leaf: leaf * 2, x)

  jitted = jax.jit(double)
  step = lagom_xla.tune(jax.jit(double), cluster=_CLUSTER)
  before = sharded(16)
  if change == "weak type":
    before = jax.device_put(np.float32(2.0), whole())
  after = _CHANGES[change]()
  for x in (before, after, before, after):
    assert_identical(step(x), jitted(x))
  assert tuned_names == ["double", "double"]
  assert len(step.tunings) == 2


def _raised(x: jax.Array, power: int) -> jax.Array:
  return x**power


@pytest.mark.parametrize(
  "statics",
  [
    {"static_argnums": 1},
    {"static_argnums": -1},
    {"static_argnames": "power"},
  ],
)
def test_each_static_value_is_tuned(
  statics: dict[str, Any], tuned_names: list[str]
):
  jitted = jax.jit(_raised, **statics)
  step = lagom_xla.tune(jax.jit(_raised, **statics), cluster=_CLUSTER)
  x = sharded(16)
  for power in (2, 3, 2):
    assert_identical(step(x, power), jitted(x, power))
  assert len(tuned_names) == 2


def test_keyword_arguments_static_or_not_are_as_in_jit():
  def make() -> Any:
    return jax.jit(_raised, static_argnames="power", donate_argnames="x")

  jitted, step = make(), lagom_xla.tune(make(), cluster=_CLUSTER)
  for _ in range(2):
    ours, theirs = sharded(16), sharded(16)
    assert_identical(step(x=ours, power=3), jitted(x=theirs, power=3))
    assert ours.is_deleted() and theirs.is_deleted()
  assert_identical(step(power=3, x=sharded(16)), jitted(sharded(16), power=3))


@pytest.mark.parametrize(
  "scale",
  [2, 2.5, True, np.float32(3), np.float64(3), np.arange(4), 1j],
  ids=lambda scale: type(scale).__name__,
)
def test_numbers_and_numpy_arrays_are_taken_as_by_jit(scale: Any):
  def scaled(x: jax.Array, scale: Any) -> tuple[jax.Array, Any]:
    return x[:4] * scale, scale * 2

  jitted = jax.jit(scaled)
  step = lagom_xla.tune(jax.jit(scaled), cluster=_CLUSTER)
  x = sharded(16)
  for _ in range(2):
    assert_identical(step(x, scale), jitted(x, scale))


def test_a_change_of_configuration_is_a_new_signature(tuned_names: list[str]):
  step = lagom_xla.tune(jax.jit(lambda x: x @ x.T), cluster=_CLUSTER)
  x = sharded(16, 16)
  step(x)
  with jax.default_matmul_precision("highest"):
    step(x)
  step(x)
  assert len(tuned_names) == 2


def test_transformations_see_the_jitted_step(tuned_names: list[str]):
  def squares(x: jax.Array) -> jax.Array:
    return jnp.sum(x**2, axis=-1)

  step: Any = lagom_xla.tune(jax.jit(squares), cluster=_CLUSTER)
  x = sharded(16, 4)
  for transform in (
    jax.jit,
    jax.vmap,
    lambda f: jax.grad(lambda x: jnp.sum(f(x))),
    lambda f: jax.jit(
      lambda y: y + jnp.sum(f(x))
    ),  # No tracer among f's arguments.
    lambda f: lambda x: jax.lax.map(f, x),
  ):
    assert_identical(transform(step)(x), transform(jax.jit(squares))(x))
  assert tuned_names == []
  step(x)
  assert_identical(jax.vmap(step)(x), jax.vmap(jax.jit(squares))(x))
  assert tuned_names == ["squares"]


def test_it_still_looks_jitted():
  @jax.jit
  def step(x: jax.Array) -> jax.Array:
    """Adds one."""
    return x + 1

  tuned: Any = lagom_xla.tune(step, cluster=_CLUSTER)
  x = sharded(16)
  assert tuned.__name__ == "step"
  assert tuned.__doc__ == "Adds one."
  assert tuned.__wrapped__ is step
  assert tuned.lower(x).as_text() == step.lower(x).as_text()
  assert str(tuned.trace(x).jaxpr) == str(step.trace(x).jaxpr)
  assert tuned.eval_shape(x) == step.eval_shape(x)
  assert type(tuned) is type(step)


def test_a_method_is_tuned_like_a_function():
  class Trainer:
    @lagom_xla.tune(cluster=_CLUSTER)
    @functools.partial(jax.jit, static_argnums=0)
    def step(self, x: jax.Array) -> jax.Array:
      return x + 1

  x = sharded(16)
  assert_identical(Trainer().step(x), x + 1)


@pytest.mark.parametrize("cluster", [_CLUSTER, cluster_lib.parse(_CLUSTER)])
def test_it_decorates_with_and_without_arguments(
  cluster: str | cluster_lib.Cluster, tuned_names: list[str]
):
  @lagom_xla.tune(cluster=cluster)
  @jax.jit
  def with_arguments(x: jax.Array) -> jax.Array:
    return x + 1

  @lagom_xla.tune
  @jax.jit
  def without(x: jax.Array) -> jax.Array:
    return x + 1

  x = sharded(16)
  assert_identical(with_arguments(x), x + 1)
  with pytest.warns(RuntimeWarning, match="nothing to tune"):
    assert_identical(without(x), x + 1)
  assert tuned_names == ["with_arguments"]


def test_a_failing_tuner_costs_one_warning(failing_tuner: list[str]):
  jitted = fsdp_step()
  tuned = lagom_xla.tune(fsdp_step(), cluster=_CLUSTER)
  ours, theirs = fresh_state(), fresh_state()
  with pytest.warns(RuntimeWarning) as warned:
    for batch in (16, 16, 24, 16, 24):
      x = sharded(batch, _WIDTH)
      before = jax.tree.leaves(ours)
      ours, _ = tuned(ours, x)
      theirs, _ = jitted(theirs, x)
      assert_identical(ours, theirs)
      assert all(leaf.is_deleted() for leaf in before)
  (warning,) = warned
  assert str(warning.message) == (
    "lagom_xla.tune leaves step as it was:"
    " ZeroDivisionError: the search is broken"
  )
  assert warning.filename == __file__
  assert failing_tuner == ["step", "step"]
  assert list(tuned.tunings) == []


def test_a_compile_that_runs_out_of_memory_leaves_the_step_as_it_was(
  monkeypatch: pytest.MonkeyPatch,
):
  def compile_(*unused_args: Any) -> Any:
    raise errors.CompileError("XLA could not compile: RESOURCE_EXHAUSTED")

  monkeypatch.setattr(compiler, "compile", compile_)
  step = lagom_xla.tune(jax.jit(lambda x: x + 1), cluster=_CLUSTER)
  x = sharded(16)
  with pytest.warns(RuntimeWarning, match="as it was: .*RESOURCE_EXHAUSTED"):
    assert_identical(step(x), x + 1)


def test_another_number_of_devices_leaves_the_step_as_it_was():
  step = lagom_xla.tune(jax.jit(lambda x: x + 1), cluster="2x8xh100")
  x = sharded(16)
  with pytest.warns(RuntimeWarning, match="over 8 .*16.* 2x8xh100"):
    assert_identical(step(x), x + 1)


def test_a_gpu_without_code_generation_leaves_the_step_as_it_was():
  step = lagom_xla.tune(jax.jit(lambda x: x + 1), cluster="1x8xv100")
  x = sharded(16)
  with pytest.warns(RuntimeWarning, match="v100 has compute capability 7.0"):
    assert_identical(step(x), x + 1)


def test_an_unknown_device_leaves_the_step_as_it_was(
  monkeypatch: pytest.MonkeyPatch,
):
  monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
  step = lagom_xla.tune(jax.jit(lambda x: x + 1))
  x = sharded(16)
  with pytest.warns(RuntimeWarning, match="the devices are 'cpu'"):
    assert_identical(step(x), x + 1)


class _JittedElsewhere:
  """Has what the step of another library has that jits."""

  def __call__(self, x: jax.Array) -> jax.Array:
    return x + 1

  def lower(self, x: jax.Array) -> jax.stages.Lowered:
    return jax.jit(self).lower(x)


def test_a_step_that_something_else_jitted_is_left_as_it_was():
  with pytest.warns(
    RuntimeWarning, match="_JittedElsewhere as it was"
  ) as warned:
    step = lagom_xla.tune(_JittedElsewhere(), cluster=_CLUSTER)
  assert warned[0].filename == __file__
  x = sharded(16)
  assert_identical(step(x), x + 1)
  assert step.lower(x).as_text()
  assert list(step.tunings) == []


def test_a_step_that_is_not_jitted_is_refused():
  with pytest.raises(TypeError, match=r"wrap the step in jax\.jit"):
    lagom_xla.tune(lambda x: x + 1)


def test_a_cluster_that_does_not_exist_is_refused_at_once():
  with pytest.raises(errors.ClusterError, match="1x8xh1000"):
    lagom_xla.tune(fsdp_step(), cluster="1x8xh1000")


def test_an_error_of_the_step_is_the_callers(tuned_names: list[str]):
  calls: list[int] = []

  @jax.jit
  def step(x: jax.Array) -> jax.Array:
    calls.append(1)
    if len(calls) == 1:
      raise LookupError("no such layer")
    return x + 1

  tuned = lagom_xla.tune(step, cluster=_CLUSTER)
  x = sharded(16)
  with pytest.raises(LookupError, match="no such layer"):
    tuned(x)
  assert len(calls) == 1
  assert_identical(tuned(x), x + 1)
  assert tuned_names == ["step"]


def test_an_argument_that_jit_refuses_gives_the_same_error():
  jitted = fsdp_step()
  tuned = lagom_xla.tune(jitted, cluster=_CLUSTER)
  for args in (
    (fresh_state(), "text"),
    (fresh_state(), jax.device_put(np.ones((16, _WIDTH)), jax.devices()[0])),
    (fresh_state(),),
  ):
    with pytest.raises((TypeError, ValueError)) as theirs:
      jitted(*args)
    with pytest.raises(type(theirs.value)) as ours:
      tuned(*args)
    assert str(ours.value) == str(theirs.value)


@pytest.mark.parametrize("fails", [False, True])
@pytest.mark.parametrize("ordered", [False, True])
def test_effects_happen_once_a_call(
  fails: bool, ordered: bool, request: pytest.FixtureRequest
):
  if fails:
    request.getfixturevalue("failing_tuner")
  seen: list[float] = []

  @jax.jit
  def step(x: jax.Array) -> jax.Array:
    jax.debug.callback(lambda v: seen.append(float(v)), x, ordered=ordered)
    return x + 1

  tuned = lagom_xla.tune(step, cluster="1x1xh100")
  x = jax.device_put(jnp.float32(0), jax.devices()[0])
  if fails:
    with pytest.warns(RuntimeWarning, match="as it was"):
      x = tuned(x)
  else:
    x = tuned(x)
  x = tuned(tuned(x))
  jax.effects_barrier()
  assert sorted(seen) == [0.0, 1.0, 2.0]
  assert len(tuned.tunings) == (0 if fails else 1)


def test_threads_that_call_first_together_tune_once(tuned_names: list[str]):
  step = lagom_xla.tune(jax.jit(lambda x: x * 3), cluster=_CLUSTER)
  x = sharded(16)
  barrier = threading.Barrier(4)
  results: list[Any] = []

  def call() -> None:
    barrier.wait()
    results.append(step(x))

  threads = [threading.Thread(target=call) for _ in range(4)]
  for thread in threads:
    thread.start()
  for thread in threads:
    thread.join()
  for result in results:
    assert_identical(result, x * 3)
  assert len(results) == 4
  assert len(tuned_names) == 1


def test_nans_are_found_as_under_jit():
  step = lagom_xla.tune(jax.jit(jnp.log), cluster=_CLUSTER)
  x = jax.device_put(np.ones(16, np.float32), rows())
  step(x)
  with jax.debug_nans(True), pytest.raises(FloatingPointError):
    step(-x)


# With a plan that was made before.


@pytest.fixture(scope="module")
def fsdp_plan(tmp_path_factory: pytest.TempPathFactory) -> str:
  """A plan for `fsdp_step`, for one that is called with a batch of 16."""
  tuned = lagom_xla.tune(fsdp_step(), cluster=_CLUSTER)
  tuned(fresh_state(), sharded(16, _WIDTH))
  plan = dataclasses.replace(
    tuned.tunings[0].plan,
    # XLA's CPU compiler takes it as any other.
    xla=config_lib.XlaConfig(
      options={"xla_gpu_all_gather_combine_threshold_bytes": 4096}
    ),
  )
  path = tmp_path_factory.mktemp("plans") / "plan"
  files.write(plan, path)
  return str(path)


def test_a_plan_is_compiled_with_and_nothing_is_searched(
  fsdp_plan: str, tuned_names: list[str], monkeypatch: pytest.MonkeyPatch
):
  asked: list[config_lib.XlaConfig] = []
  real = compiler.compile

  def compile_(step: Any, config: config_lib.XlaConfig) -> Any:
    asked.append(config)
    return real(step, config)

  monkeypatch.setattr(compiler, "compile", compile_)
  planned = lagom_xla.tune(fsdp_step(), cluster=_CLUSTER, plan=fsdp_plan)
  jitted = fsdp_step()
  ours, theirs = fresh_state(), fresh_state()
  for n in range(3):
    x = sharded(16, _WIDTH, seed=100 + n)
    before = jax.tree.leaves(ours)
    ours, our_loss = planned(ours, x)
    theirs, their_loss = jitted(theirs, x)
    assert_identical((ours, our_loss), (theirs, their_loss))
    assert all(leaf.is_deleted() for leaf in before)
  assert tuned_names == []
  assert list(planned.tunings) == []
  # Once to see that the plan is for it, and once with the plan.
  assert len(asked) == 2
  assert asked[-1] == plan_lib.load(fsdp_plan).xla


def test_the_form_of_a_plan_acts_and_leaves_the_numbers_as_they_are(
  tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
):
  jitted, shapes = strands_step.lowerable(jax.devices())
  tuned = lagom_xla.tune(jitted, cluster=_CLUSTER)
  tuned(*strands_step.values(shapes))
  form = form_lib.Form(strands="merged")
  plan = dataclasses.replace(
    tuned.tunings[0].plan, xla=config_lib.XlaConfig(program=form)
  )
  files.write(plan, tmp_path / "plan")
  ran: list[lowered_lib.Compilation] = []
  real = compiler.compile

  def compile_(step: Any, config: config_lib.XlaConfig) -> Any:
    ran.append(real(step, config))
    return ran[-1]

  monkeypatch.setattr(compiler, "compile", compile_)
  planned = lagom_xla.tune(jitted, cluster=_CLUSTER, plan=tmp_path / "plan")
  ours, *batches = strands_step.values(shapes)
  theirs = jnp.copy(ours)
  for _ in range(10):
    donated = ours
    ours, our_loss = planned(ours, *batches)
    theirs, their_loss = jitted(theirs, *batches)
    assert_identical((ours, our_loss), (theirs, their_loss))
    assert donated.is_deleted()
  as_written, merged = ran
  assert plan_lib.fingerprint(merged.module) != plan_lib.fingerprint(
    as_written.module
  )


def test_a_plan_whose_form_does_not_fit_the_step_is_not_applied(
  tmp_path: pathlib.Path, fsdp_plan: str
):
  xla = config_lib.XlaConfig(program=form_lib.Form(strands="merged"))
  plan = dataclasses.replace(plan_lib.load(fsdp_plan), xla=xla)
  files.write(plan, tmp_path / "plan")
  step = lagom_xla.tune(fsdp_step(), cluster=_CLUSTER, plan=tmp_path / "plan")
  with pytest.warns(RuntimeWarning, match="The plan's form is not for this"):
    step(fresh_state(), sharded(16, _WIDTH))


def test_a_plan_that_nccl_cannot_have_is_not_applied(
  tmp_path: pathlib.Path, fsdp_plan: str
):
  plan = dataclasses.replace(
    plan_lib.load(fsdp_plan), nccl_env={"NCCL_MAX_CTAS": "many"}
  )
  files.write(plan, tmp_path / "plan")
  step = lagom_xla.tune(fsdp_step(), cluster=_CLUSTER, plan=tmp_path / "plan")
  with pytest.warns(RuntimeWarning, match='NCCL_MAX_CTAS is "many"'):
    step(fresh_state(), sharded(16, _WIDTH))


def test_it_decorates_with_a_plan_of_either_kind_of_path(
  fsdp_plan: str, tuned_names: list[str]
):
  for path in (fsdp_plan, pathlib.Path(fsdp_plan) / "plan.json"):

    @lagom_xla.tune(cluster=_CLUSTER, plan=path)
    @jax.jit
    def other(x: jax.Array) -> jax.Array:
      return x + 1

    x = sharded(16)
    with pytest.warns(RuntimeWarning, match="leaves other as it was"):
      assert_identical(other(x), x + 1)
  assert tuned_names == []


def test_a_plan_for_another_step_costs_one_warning(
  fsdp_plan: str, tuned_names: list[str]
):
  jitted = fsdp_step()
  planned = lagom_xla.tune(fsdp_step(), cluster=_CLUSTER, plan=fsdp_plan)
  ours, theirs = fresh_state(), fresh_state()
  with pytest.warns(RuntimeWarning) as warned:
    for batch in (24, 24, 32, 16):  # The plan is for 16.
      x = sharded(batch, _WIDTH)
      ours, _ = planned(ours, x)
      theirs, _ = jitted(theirs, x)
      assert_identical(ours, theirs)
  (warning,) = warned
  message = str(warning.message)
  assert message.startswith("lagom_xla.tune leaves step as it was: The plan")
  assert "its shapes or its shardings changed" in message
  assert warning.filename == __file__
  assert tuned_names == []


@pytest.mark.parametrize(
  ("changes", "words"),
  [
    ({"jaxlib_version": "0.9.9"}, "made with jaxlib 0.9.9"),
    ({"cluster": cluster_lib.parse("2x4xh100")}, "num_nodes is 2 there"),
  ],
)
def test_a_plan_for_another_place_is_not_applied(
  tmp_path: pathlib.Path,
  fsdp_plan: str,
  changes: dict[str, Any],
  words: str,
):
  plan = dataclasses.replace(plan_lib.load(fsdp_plan), **changes)
  files.write(plan, tmp_path / "plan")
  step = lagom_xla.tune(
    fsdp_step(), cluster=_CLUSTER, plan=str(tmp_path / "plan")
  )
  with pytest.warns(RuntimeWarning, match=words):
    step(fresh_state(), sharded(16, _WIDTH))


def test_a_plan_that_is_not_there_is_refused_at_once(tmp_path: pathlib.Path):
  with pytest.raises(errors.PlanError, match=r"plan\.json"):
    lagom_xla.tune(fsdp_step(), cluster=_CLUSTER, plan=tmp_path)


def test_the_llama_example_trains_with_it():
  flags = ["--model=tiny", "--cpu_devices=8", "--steps=2", "--tune"]
  run = subprocess.run(
    [sys.executable, str(_TRAIN), *flags],
    capture_output=True,
    text=True,
    check=False,
  )
  assert run.returncode == 0, run.stderr
  assert "step    2  loss" in run.stdout
  assert run.stderr.count("RuntimeWarning: lagom_xla.tune leaves") == 1
