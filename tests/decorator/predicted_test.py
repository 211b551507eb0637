# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""A step tuned on predictions gives jit's results, or stays unchanged.

Eight CPU devices stand for a node of eight H100s. XLA's CPU compiler makes the
schedules, without effect of GPU options; everything else is as on GPUs.
"""

from __future__ import annotations

import dataclasses
import html
import os
import pathlib
import re
import subprocess
import sys
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jitted_steps import CLUSTER
from jitted_steps import NUM_LAYERS
from jitted_steps import WIDTH
from jitted_steps import assert_identical
from jitted_steps import configs_compiled
from jitted_steps import fresh_state
from jitted_steps import fsdp_step
from jitted_steps import sharded
from jitted_steps import tune_predicted
import lagom_xla
from lagom_xla import cluster as cluster_lib
from lagom_xla import errors
from lagom_xla.compile import compiler
from lagom_xla.compile import target as target_lib
from lagom_xla.live import hanging
from lagom_xla.tuner import tuner
from lagom_xla.tuner import tuning as tuning_lib
import python_calls
import quick

_TRAIN = pathlib.Path(__file__).parents[2] / "examples/llama/train.py"


@pytest.fixture(scope="module")
def tuned() -> Any:
  """A step tuned at its first call, and the last compiled config."""
  with pytest.MonkeyPatch.context() as patched:
    asked = configs_compiled(patched)
    step = tune_predicted(fsdp_step())
    assert list(step.tunings) == []
    step(fresh_state(), sharded(16, WIDTH))
  assert asked[-1] == step.tunings[0].plan.xla
  return step


def test_the_plan_can_be_read_from_the_step(tuned):
  (tuning,) = tuned.tunings
  assert tuning.plan.cluster == cluster_lib.parse(CLUSTER)
  assert tuning.plan.module_name == "jit_step"
  kinds = {c.kind for c in tuning.before.analysis.collectives}
  assert "all-gather" in kinds
  assert len(tuning.candidates) > 1
  assert "tuning of jit_step for 1x8xh100: " in repr(tuning)
  assert len(repr(tuning)) < 200
  assert repr(tuning) in tuned.report()
  _, *candidates = tuned.report().splitlines()
  assert all(re.match(r"  predicted [01]\.\d{3} with ", c) for c in candidates)
  assert tuned._repr_html_() == f"<pre>{html.escape(tuned.report())}</pre>"


def test_a_slow_first_call_logs_that_it_waits_for_the_search(
  monkeypatch, caplog
):
  monkeypatch.setattr(hanging, "FIRST_CALL_S", 0.0)
  step = tune_predicted(jax.jit(lambda x: x + 3))
  with caplog.at_level("WARNING", "absl"):
    step(sharded(16))
  assert "the first call is waiting for the search for a plan" in caplog.text


def test_a_tuned_step_runs_the_executable_that_the_tuner_compiled(monkeypatch):
  x = sharded(16)
  other = jax.jit(lambda x: x + 2).lower(x).compile()
  real = tuner.tune

  def tune(target: target_lib.Target, **options: Any) -> tuning_lib.Tuning:
    tuning = real(target, **options)
    assert tuning.compiled is not None
    return dataclasses.replace(
      tuning, compiled=dataclasses.replace(tuning.compiled, compiled=other)
    )

  monkeypatch.setattr(tuner, "tune", tune)
  step = tune_predicted(jax.jit(lambda x: x + 1))
  for _ in range(3):
    np.testing.assert_array_equal(step(x), x + 2)


def test_a_known_signature_runs_without_any_python(tuned):
  state, x = fresh_state(), sharded(16, WIDTH)
  state, _ = tuned(state, x)
  assert python_calls.of(tuned, state, x) == []


def test_the_llama_example_trains_with_tune():
  flags = ["--model=tiny", "--cpu_devices=8", "--steps=2", "--tune"]
  run = subprocess.run(
    [sys.executable, str(_TRAIN), *flags],
    env={**os.environ, "XLA_FLAGS": quick.flags()},
    capture_output=True,
    text=True,
    check=False,
  )
  assert run.returncode == 0, run.stderr
  assert "step    2  loss" in run.stdout
  assert run.stderr.count("RuntimeWarning: lagom_xla.tune") <= 1
  assert "Traceback" not in run.stderr


def test_ten_steps_give_the_same_bits_as_jit_and_donate_alike(tuned):
  jitted = fsdp_step()
  ours, theirs = fresh_state(), fresh_state()
  for n in range(10):
    x = sharded(16, WIDTH, seed=100 + n)
    donated = jax.tree.leaves(ours)
    ours, our_loss = tuned(ours, x)
    theirs, their_loss = jitted(theirs, x)
    assert_identical((ours, our_loss), (theirs, their_loss))
    assert [leaf.is_deleted() for leaf in (*donated, x)] == [
      *[True] * (2 * NUM_LAYERS),
      False,
    ]
  assert len(tuned.tunings) == 1


def test_a_failing_tuner_causes_one_warning(failing_tuner):
  jitted = fsdp_step()
  tuned = tune_predicted(fsdp_step())
  ours, theirs = fresh_state(), fresh_state()
  with pytest.warns(RuntimeWarning) as warned:
    for batch in (16, 16, 24, 16, 24):
      x = sharded(batch, WIDTH)
      before = jax.tree.leaves(ours)
      ours, _ = tuned(ours, x)
      theirs, _ = jitted(theirs, x)
      assert_identical(ours, theirs)
      assert all(leaf.is_deleted() for leaf in before)
  (warning,) = warned
  assert str(warning.message) == (
    "lagom_xla.tune leaves step unchanged:"
    " ZeroDivisionError: the search is broken"
  )
  assert warning.filename == __file__
  assert failing_tuner == ["step", "step"]
  assert list(tuned.tunings) == []


@pytest.mark.parametrize(
  ("tune", "is_argument"), [(tune_predicted, True), (lagom_xla.tune, False)]
)
def test_a_step_with_a_ref_runs_unchanged_with_a_remedy_in_a_warning(
  tune, is_argument
):
  counter = jax.new_ref(jnp.zeros((), jnp.int32))

  def count(x: jax.Array, counter: Any) -> jax.Array:
    counter[...] += 1
    return x + counter[...]

  def count_outside(x: jax.Array) -> jax.Array:
    return count(x, counter)

  step = tune(jax.jit(count if is_argument else count_outside))
  arguments = (counter,) if is_argument else ()
  with pytest.warns(RuntimeWarning) as warned:
    for number in range(1, 4):
      assert step(jnp.float32(0), *arguments) == number
  (warning,) = warned
  assert str(warning.message) == (
    f"lagom_xla.tune leaves {step.__name__} unchanged: it uses a"
    " jax.ref.Ref (jax.new_ref), and the results of executables with refs"
    " cannot be compared. To tune it, pass the array itself, donated, and"
    " return the new array."
  )
  assert "unchanged" in step.report()
  assert "it uses a jax.ref.Ref" in step.report()


def test_a_pmapped_step_runs_with_a_warning_to_use_jit():
  with pytest.warns(RuntimeWarning, match=r"made by jax\.pmap .* jit it with"):
    step = lagom_xla.tune(jax.pmap(lambda x: x + 1))
  x = jnp.zeros((jax.device_count(), 2))
  np.testing.assert_array_equal(step(x), x + 1)


def test_jax_has_no_output_shardings_for_executables_with_refs():
  counter = jax.new_ref(jnp.zeros((), jnp.int32))

  def count() -> None:
    counter[...] += 1

  with pytest.raises(ValueError, match="leaves"):
    _ = jax.jit(count).lower().compile().output_shardings


class _JittedElsewhere:
  """Looks like a step of another library that uses jit."""

  def __call__(self, x: jax.Array) -> jax.Array:
    return x + 1

  def lower(self, x: jax.Array) -> jax.stages.Lowered:
    return jax.jit(self).lower(x)


def test_a_step_jitted_by_another_library_runs_unchanged_with_a_warning():
  with pytest.warns(
    RuntimeWarning, match="_JittedElsewhere unchanged"
  ) as warned:
    step = tune_predicted(_JittedElsewhere())
  assert warned[0].filename == __file__
  x = sharded(16)
  assert_identical(step(x), x + 1)
  assert step.lower(x).as_text()
  assert list(step.tunings) == []


def test_a_step_that_is_not_jitted_is_refused():
  with pytest.raises(TypeError, match=r"wrap the step in jax\.jit"):
    lagom_xla.tune(lambda x: x + 1)


def test_an_unknown_cluster_is_refused_at_once():
  with pytest.raises(errors.ClusterError, match="1x8xh1000"):
    lagom_xla.tune(fsdp_step(), cluster="1x8xh1000")


def test_an_error_raised_by_the_step_reaches_the_caller(tuned_names):
  calls: list[int] = []

  @jax.jit
  def step(x: jax.Array) -> jax.Array:
    calls.append(1)
    if len(calls) == 1:
      raise LookupError("no such layer")
    return x + 1

  tuned = tune_predicted(step)
  x = sharded(16)
  with pytest.raises(LookupError, match="no such layer"):
    tuned(x)
  assert len(calls) == 1
  assert_identical(tuned(x), x + 1)
  assert tuned_names == ["step"]


def test_an_argument_that_jit_refuses_gives_the_same_error():
  jitted = fsdp_step()
  tuned = tune_predicted(jitted)
  for args in (
    (fresh_state(), "text"),
    (fresh_state(), jax.device_put(np.ones((16, WIDTH)), jax.devices()[0])),
    (fresh_state(),),
  ):
    with pytest.raises((TypeError, ValueError)) as theirs:
      jitted(*args)
    with pytest.raises(type(theirs.value)) as ours:
      tuned(*args)
    assert str(ours.value) == str(theirs.value)


def test_effects_happen_once_per_call_if_tuning_fails(failing_tuner):
  seen: list[float] = []

  @jax.jit
  def step(x: jax.Array) -> jax.Array:
    jax.debug.callback(lambda v: seen.append(float(v)), x, ordered=True)
    return x + 1

  tuned = lagom_xla.tune(step, cluster="1x1xh100")
  x = jax.device_put(jnp.float32(0), jax.devices()[0])
  with pytest.warns(RuntimeWarning, match="unchanged"):
    x = tuned(x)
  tuned(tuned(x))
  jax.effects_barrier()
  assert sorted(seen) == [0.0, 1.0, 2.0]
  assert failing_tuner == ["step"]
  assert re.match("step: unchanged: .+", tuned.report())


def test_the_report_has_predictions_if_cpus_stand_for_gpus():
  step = lagom_xla.tune(fsdp_step(), cluster=CLUSTER)
  assert "nothing measured: it was not called yet" in step.report()
  step(fresh_state(), sharded(16, WIDTH))
  first, *candidates = step.report().splitlines()
  assert repr(step.tunings[0]) in first
  assert any(line.startswith("  predicted ") for line in candidates)


@pytest.mark.parametrize(
  ("cluster", "words"),
  [
    ("2x8xh100", "over 8 .*16.* 2x8xh100"),
    ("1x8xv100", "v100 has compute capability 7.0"),
    (None, "the devices are 'cpu'"),  # The backend claims to be GPUs.
    ("1x8xh100", "unchanged: .*RESOURCE_EXHAUSTED"),
  ],
)
def test_a_step_that_cannot_be_tuned_runs_unchanged_with_a_warning(
  cluster, words, monkeypatch
):
  def compile_(*unused_args: Any, **unused_kwargs: Any) -> Any:
    raise errors.CompileError("XLA could not compile: RESOURCE_EXHAUSTED")

  if "EXHAUSTED" in words:
    monkeypatch.setattr(compiler, "compile", compile_)
  if cluster is None:
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
  step = lagom_xla.tune(
    jax.jit(lambda x: x + 1), cluster=cluster, measure=False
  )
  x = sharded(16)
  with pytest.warns(RuntimeWarning, match=words):
    assert_identical(step(x), x + 1)
