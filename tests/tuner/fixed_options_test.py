# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Settings besides XLA_FLAGS that change a compile are part of the baseline.

The compiler_options of `jax.jit` override XLA_FLAGS, and so do some of JAX's
settings.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import Mesh
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec
import numpy as np
import pytest

from lagom_xla import cluster as cluster_lib
from lagom_xla.apply import env
from lagom_xla.compile import config as config_lib
from lagom_xla.compile import target as target_lib
from lagom_xla.flags import debug_options
from lagom_xla.flags import environment
from lagom_xla.flags import nccl_channels
from lagom_xla.jax_internals import request
from lagom_xla.report import notes
from lagom_xla.search.xla import arms
from lagom_xla.search.xla import knobs
from lagom_xla.tuner import tuner
from lagom_xla.tuner import tuning as tuning_lib
from lagom_xla.verify import verification

_H100 = cluster_lib.parse("1x8xh100")
_COMBINED = "xla_gpu_all_gather_combine_threshold_bytes"
_SCHEDULER = knobs.SCHEDULER
_FIXED = {_COMBINED: 0, _SCHEDULER: True}


def _target(devices: Sequence[jax.Device], **jit: Any) -> target_lib.StepTarget:
  """Two products, each with a weight to gather."""
  rows = NamedSharding(Mesh(np.array(devices), ("x",)), PartitionSpec("x"))
  weight = jax.ShapeDtypeStruct((64, 64), jnp.float32, sharding=rows)
  step = jax.jit(lambda v, w, x: jnp.tanh(x @ v) @ w, **jit)
  lowered = step.lower(weight, weight, weight)
  return target_lib.of_step(lowered, _H100, name="the step")


def _beside(target: target_lib.StepTarget) -> environment.Beside:
  return environment.of_compile(target.handed)


@pytest.fixture(scope="module")
def fixed(h100s) -> target_lib.StepTarget:
  return _target(h100s, compiler_options=_FIXED)


@pytest.fixture(scope="module")
def tuned(fixed) -> tuning_lib.Tuning:
  return tuner.tune(fixed, seconds=0)


@pytest.fixture
def at_level_one() -> Iterator[None]:
  jax.config.update("jax_optimization_level", "O1")
  yield
  jax.config.update("jax_optimization_level", "UNKNOWN")


def test_default_settings_of_jax_change_no_xla_options():
  assert environment.of_compile(request.handed_for_any()) == environment.NOTHING


def test_compiler_options_of_jit_are_part_of_the_baseline(fixed, tuned):
  assert _beside(fixed).jit == _FIXED
  assert tuned.plan.compiler_options == _FIXED
  script = env.script(tuned.plan, table_checksum=None)
  assert f"#   {_COMBINED}=0 {_SCHEDULER}=True\n" in script
  with environment.beside(_beside(fixed)):
    assert environment.value(_COMBINED) == "0"
    said = " ".join(notes.tuning_notes(tuned))
  assert f"{_COMBINED}=0 {_SCHEDULER}=True by compiler_options of jax" in said
  assert f"Not searched, because {environment.BEATS}: {_COMBINED}" in said


def test_settings_of_jax_that_reach_xla_are_part_of_the_baseline(
  h100s, at_level_one
):
  target = _target(h100s)
  assert _beside(target).jax == {"optimization_level": "EFFORT_O1"}
  assert not _beside(target).fixed
  with environment.beside(_beside(target)):
    assert environment.what_runs() == (
      "XLA's defaults with optimization_level=O1 by JAX's settings"
    )


def test_compiler_options_of_jit_are_read_in_any_spelling(h100s):
  level = "O1" if jax.__version_info__ >= (0, 12) else 19
  spelled = {"optimization_level": level, _COMBINED: "1", _SCHEDULER: "True"}
  found = _beside(_target(h100s, compiler_options=spelled))
  assert found.jit == {
    **{"optimization_level": "EFFORT_O1", _COMBINED: 1, _SCHEDULER: True}
  }
  assert found.fixed == {_COMBINED: 1, _SCHEDULER: True} and not found.jax


def test_xla_options_from_settings_of_jax_are_fixed():
  jax.config.update("jax_compiler_enable_remat_pass", False)
  try:
    found = environment.of_compile(request.handed_for_any())
  finally:
    jax.config.update("jax_compiler_enable_remat_pass", True)
  assert found.fixed == {"xla_disable_hlo_passes": "rematerialization"}


@pytest.mark.parametrize("late", [f"--{_SCHEDULER}=true", "--xla_no_such=1"])
def test_the_baseline_has_the_xla_flags_that_xla_has_read(monkeypatch, late):
  read = request.read()
  monkeypatch.setenv("XLA_FLAGS", late)
  with pytest.warns(RuntimeWarning, match="after XLA had read it"):
    text = environment.text_read(read)
  known = debug_options.of_debug(read)
  assert environment.changed_by(text).items() <= known.items()
  with environment.as_read(text):
    assert environment.xla_flags() == text
  assert environment.step_flags() == late
  monkeypatch.setenv("XLA_FLAGS", text)
  assert environment.text_read(read) == text


def test_a_search_for_a_launcher_omits_options_that_jit_fixes(
  fixed, monkeypatch
):
  other = knobs.Value(label="", options={_COMBINED: 2**30})
  also = knobs.Value(
    label="", options={_COMBINED: 0, "xla_gpu_dot_merger_threshold_mb": 1}
  )
  with environment.beside(_beside(fixed)):
    (found,) = knobs.offered([other, also])
    recipes = arms.known(_H100).arms
  assert found.options.keys() == {"xla_gpu_dot_merger_threshold_mb"}
  assert not any(_FIXED.keys() & it.config.options.keys() for it in recipes)
  assert any(_SCHEDULER in it.notes[-1] for it in recipes if it.notes)
  # An option that is set already is not offered, either.
  with monkeypatch.context() as patched:
    patched.setenv("XLA_FLAGS", f"--{_COMBINED}={2**30}")
    assert not knobs.offered([other])
  # In the process a plan overrides the options of jit.
  in_process = dataclasses.replace(_beside(fixed), is_beaten=True)
  with environment.beside(in_process):
    assert len(knobs.offered([other, also])) == 2


def test_a_channel_cap_fixed_by_jit_is_not_searched_for_only_flags(h100s):
  target = _target(h100s, compiler_options={nccl_channels.OPTION: 2})
  tuned = tuner.tune(target, seconds=0, applied="flags")
  assert nccl_channels.OPTION not in tuned.plan.xla.options
  kept = tuned.search.best
  assert kept.settings == kept.runs.default
  assert max(it.num_channels for it in kept.settings.values()) <= 2


def test_verify_reports_changed_options_and_parts_that_jit_overrides(
  fixed, tuned, h100s
):
  options = {_COMBINED: 2**30}
  plan = dataclasses.replace(
    tuned.plan, xla=config_lib.XlaConfig(options=options)
  )
  made_beside = plan.xla_flags, plan.compiler_options
  verified = verification.verify(plan, fixed)
  (effect,) = verified.effects
  assert not effect.acted and effect.replaces == "0"
  assert environment.BEATS in effect.evidence
  assert verified.planned_us == verified.default_us
  with environment.beside(_beside(fixed)):
    assert not list(environment.differences(*made_beside))
  # A step without them is another one than the plan was made for.
  plain = _target(h100s)
  (effect,) = verification.verify(plan, plain).effects
  assert environment.BEATS not in effect.evidence
  with environment.beside(_beside(plain)):
    first, _ = environment.differences(*made_beside)
  assert f"{_COMBINED} is at its default" in first
  assert "but was 0 when the plan was made" in first
