# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Values that XLA recomputes if memory is short, and plans that consider them.

The step of `sgd_steps.lower_wide` fits an L40S of 48 GB, but one of 24 GB (like
an L4 or an A10) only if XLA recomputes activations.
"""

from __future__ import annotations

import dataclasses
import functools
import io
from unittest import mock

import pytest
import rich.console

import fake_target
import hlo_text
from lagom_xla import cluster as cluster_lib
from lagom_xla import validation
from lagom_xla.compile import config as config_lib
from lagom_xla.compile import devices as devices_lib
from lagom_xla.compile import lowered as lowered_lib
from lagom_xla.compile import target as target_lib
from lagom_xla.costs import lower_bound
from lagom_xla.costs import step as step_lib
from lagom_xla.passes import hlo
from lagom_xla.passes import registry
from lagom_xla.passes.schedule import memory
from lagom_xla.report import results
from lagom_xla.report import terminal
from lagom_xla.search.xla import evaluation
from lagom_xla.tuner import tuner
from lagom_xla.tuner import tuning as tuning_lib
from lagom_xla.verify import verification
import sgd_steps

_DEFAULT = config_lib.DEFAULT
_H100S = cluster_lib.parse("1x8xh100")


@functools.cache
def _wide(device_bytes: float) -> target_lib.Target:
  if registry.plugin_path() is None:
    pytest.skip("JAX's CUDA plugin is not installed (extra aot)")
  gpu = {"base": "l40s", "hbm_bytes": int(device_bytes)}
  cluster = cluster_lib.from_dict(
    {"num_nodes": 1, "gpus_per_node": 8, "gpu": gpu}, where="a test"
  )
  lowered = sgd_steps.lower_wide(devices_lib.devices(cluster))
  return target_lib.of_step(lowered, cluster, name="wide step")


@functools.cache
def _scheduled(device_bytes: float) -> step_lib.Step:
  target = _wide(device_bytes)
  return step_lib.of_module(target.schedule(), target.cluster)


@functools.cache
def _run(device_bytes: float) -> step_lib.Step:
  step = _scheduled(device_bytes)
  return evaluation.run_of(_wide(device_bytes), _DEFAULT, step).step


def _step_us(step: step_lib.Step) -> float:
  return step.timeline(step.default).step_time_us


def test_a_step_short_of_memory_is_costed_with_rematerialization():
  assert _run(48e9) is _scheduled(48e9)
  scheduled, runs = _scheduled(24e9), _run(24e9)
  assert not memory.recomputed(scheduled.analysis.module)
  assert memory.recomputed(runs.analysis.module)
  assert len(runs.analysis.kernels) > len(scheduled.analysis.kernels)
  assert _step_us(runs) > 1.01 * _step_us(scheduled)
  assert lower_bound.us(runs) >= lower_bound.us(scheduled)


def test_a_larger_slop_factor_avoids_rematerialization():
  module = _scheduled(24e9).analysis.module
  is_short = functools.partial(memory.is_short_of_memory, module, int(24e9))
  assert is_short()
  assert not is_short(slop_percent=150)


def _modules(names: str) -> dict[bool, hlo.Module]:
  """Modules without and with options, from text such as "a b.remat | a".

  Kernels take a millisecond each, and follow an exposed all-gather.
  """
  gather = hlo_text.all_gather("gather", 64 * 2**20)
  modules = []
  for words in names.split("|"):
    kernels = [hlo_text.kernel(name, 1000.0) for name in words.split()]
    lines = ["p = f32[256,256] parameter(0)", *gather, *kernels]
    modules.append(hlo_text.load("\n".join([*lines, "ROOT end = () tuple()"])))
  return dict(zip((False, True), modules, strict=True))


def test_per_user_clones_do_not_count_as_rematerialization():
  again = "b.remat", "b.remat2", "c.remat_compressed", "c.remat_uncompressed.1"
  own = "a.rematerialized", "a.rematerialized.1"
  module = _modules(f"a | a {' '.join((*own, *again))}")[True]
  assert memory.recomputed(module) == again


def _target(
  scheduled: str, compiled: str, peak_bytes: int = 2**30
) -> fake_target.FakeTarget:
  """A target whose options all have the same effect; see `_modules`."""
  modules, ran = _modules(scheduled), _modules(compiled)
  return fake_target.FakeTarget(
    name="step",
    cluster=_H100S,
    scheduled=lambda config: modules[bool(config.options)],
    compiled=lambda config: lowered_lib.Compilation(
      module=ran[bool(config.options)], compiled=None, peak_bytes=peak_bytes
    ),
  )


def _shown(tuning: tuning_lib.Tuning) -> str:
  stream = io.StringIO()
  console = rich.console.Console(file=stream, width=400, markup=False)
  terminal.show_tuning(console, tuning, [])
  return " ".join(stream.getvalue().split())


def test_the_slop_factor_in_xla_flags_determines_the_current_run(monkeypatch):
  target = _target("a | a", "a a.remat | a")
  scheduled = evaluation.scheduled_step(target)
  assert evaluation.run_of(target, _DEFAULT, scheduled).step is scheduled
  option = "xla_gpu_memory_limit_slop_factor"
  monkeypatch.setenv("XLA_FLAGS", f"--{option}=0")
  runs = evaluation.run_of(target, _DEFAULT, scheduled).step
  assert memory.recomputed(runs.analysis.module) == ("a.remat",)
  without = config_lib.XlaConfig(options={option: 95})
  assert evaluation.run_of(target, without, scheduled).step is scheduled


@pytest.mark.parametrize(
  ("scheduled", "compiled", "are_kept"),
  [
    ("a b | a", "a b | a", True),
    # XLA rematerializes more than the options save.
    ("a b | a", "a b | a b.remat c.remat", False),
    # Slower than the default's schedule, but faster than its compiled module.
    ("a | a b", "a a.remat b.remat | a b", True),
  ],
)
def test_options_are_chosen_by_the_compiled_modules_not_the_schedules(
  scheduled, compiled, are_kept
):
  tuning = tuner.tune(_target(scheduled, compiled))
  assert bool(tuning.plan.xla.options) == are_kept


def test_a_plans_times_are_of_the_compiled_modules():
  target = _target("a b | a", "a b b.remat a.remat | a a.remat")
  tuning = tuner.tune(target)
  assert tuning.plan.xla.options
  prediction = tuning.plan.prediction
  for config, us in (
    (_DEFAULT, prediction.default_us),
    (tuning.plan.xla, prediction.xla_us),
  ):
    module = target.compile(config).module
    assert us == pytest.approx(_step_us(step_lib.of_module(module, _H100S)))
  assert tuning.before.analysis.module is target.compile(_DEFAULT).module
  assert validation.write(results.tuning(tuning))["recomputed"] == {
    "before": 2,
    "after": 1,
  }
  shown = _shown(tuning)
  assert "2 instructions run again today because memory is short" in shown
  assert "1 instruction runs again with the plan" in shown


def test_a_step_too_large_for_gpu_memory_is_costed_with_a_warning():
  assert _step_us(tuner.inspect(_wide(24e9))) == _step_us(_run(24e9))
  with pytest.warns(RuntimeWarning, match="wide step does not fit on .* GB"):
    runs = tuner.inspect(_wide(10e9))
  assert _step_us(runs) > _step_us(_scheduled(48e9))


def test_tune_reports_once_whether_a_step_fits_in_memory():
  words = "a | a", "a a.remat | a a.remat"
  fits = _shown(tuner.tune(_target(*words)))
  assert (
    "1.1 GB of the 63.7 GB that JAX takes of 84.9 GB (79.1 GiB) per GPU" in fits
  )
  assert "does not fit" not in fits
  target = _target(*words, peak_bytes=100 * 10**9)
  too_large = _shown(tuner.tune(target))
  assert "takes of 84.9 GB (79.1 GiB) per GPU: it does not fit" in too_large
  assert too_large.count("1 instruction runs again") == 1


def test_a_plan_is_verified_with_the_compiled_modules():
  target = _target("a b | a", "a b b.remat | a a.remat")
  with mock.patch.object(memory, "is_short_of_memory", return_value=True):
    plan = tuner.tune(target).plan
    verified = verification.verify(plan, target)
  assert plan.xla.options
  assert verified.default_us == pytest.approx(plan.prediction.default_us)
  planned_us = plan.prediction.nccl_settings_us
  assert verified.planned_us == pytest.approx(planned_us)


def test_a_plan_is_verified_against_the_memory_that_jax_can_use(monkeypatch):
  target = _target("a b | a", "a b | a", peak_bytes=50 * 10**9)
  plan = tuner.tune(target).plan
  assert plan.xla.options

  def compiled(config: config_lib.XlaConfig) -> lowered_lib.Compilation:
    made = target.compile(config)
    needed_bytes = (60 if config.options else 10) * 10**9
    return dataclasses.replace(made, peak_bytes=needed_bytes)

  larger = dataclasses.replace(target, compiled=compiled)
  with mock.patch.object(memory, "is_short_of_memory", return_value=True):
    assert verification.verify(plan, larger).is_good
    monkeypatch.setenv("XLA_PYTHON_CLIENT_MEM_FRACTION", "0.5")
    verified = verification.verify(plan, larger)
  assert "60.0 GB of the 42.5 GB that JAX takes" in verified.too_large
  assert not verified.is_good


def test_an_option_that_changes_only_rematerialization_has_an_effect():
  target = _target("a | a", "a a.remat | a")
  with mock.patch.object(memory, "is_short_of_memory", return_value=True):
    tuning = tuner.tune(target)
    verified = verification.verify(tuning.plan, target)
  assert tuning.plan.xla.options
  for found in (tuning, verified):
    (effect,) = (e for e in found.effects if e.knob.startswith("xla_"))
    assert "rematerializes 0 instructions instead of 1" in effect.evidence
    assert effect.acted and effect.gain_us == pytest.approx(1000.0, rel=0.01)
