# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""A plan is chosen for the parts that a job applies, and names these."""

from __future__ import annotations

from collections.abc import Callable
import dataclasses
import io
import re
from unittest import mock

import hypothesis
from hypothesis import strategies as st
import pytest
import rich.console

from commands import CLUSTER
from commands import run
import fake_target
import hlo_text
from lagom_xla import cluster as cluster_lib
from lagom_xla import errors
from lagom_xla import plan as plan_lib
from lagom_xla import validation
from lagom_xla.apply import files
from lagom_xla.compile import config as config_lib
from lagom_xla.passes import hlo
from lagom_xla.report import results
from lagom_xla.report import terminal
from lagom_xla.search.xla import arms
from lagom_xla.tuner import tuner
from lagom_xla.tuner import tuning as tuning_lib
from lagom_xla.verify import verification
import sample_plan

_H100 = cluster_lib.parse("1x8xh100")
_MIB = 2**20
_GATHERED_BYTES = 16 * _MIB
_LAST_BYTES = 256 * 2**10
# Blocks for 128 of an H100's 132 SMs, all at once.
_ONE_WAVE = 1024
_MORE = "xla_gpu_experimental_parallel_collective_overlap_limit"
_CAP = "xla_gpu_nccl_collective_max_nchannels"
_COMBINING = "xla_gpu_experimental_enable_heuristic_collective_combining"

Tune = Callable[[plan_lib.Applied], tuning_lib.Tuning]


def _module(
  kernel_us: float,
  tail_us: float,
  *,
  hides: bool,
  gathered_bytes: int = _GATHERED_BYTES,
) -> hlo.Module:
  """A kernel, and an all-gather beside it or before it; then a tail.

  At the end is an all-gather that nothing hides, so that a cap on the channels
  of both is behind settings for each.
  """
  start, done = hlo_text.all_gather("all-gather", gathered_bytes)
  kernel = hlo_text.kernel("kernel", kernel_us, size=_ONE_WAVE)
  middle = [start, kernel, done] if hides else [start, done, kernel]
  return hlo_text.load(
    "\n".join(
      [
        f"p = f32[{_ONE_WAVE},{_ONE_WAVE}] parameter(0)",
        *middle,
        hlo_text.kernel("tail", tail_us),
        *hlo_text.all_gather("last", _LAST_BYTES),
        "ROOT result = f32[256,256] copy(tail)",
      ]
    )
  )


# Hidden, the gather slows a kernel that fills the GPU, unless it has so few
# channels that they fit beside it.
_DEFAULT = _module(400.0, 800.0, hides=False)
_HIDDEN = _module(400.0, 1.0, hides=True)
_EXPOSED = _module(345.0, 1.0, hides=False)


def _schedule(config: config_lib.XlaConfig) -> hlo.Module:
  if _COMBINING in config.options:
    return _EXPOSED
  return _HIDDEN if _MORE in config.options else _DEFAULT


_TARGET = fake_target.FakeTarget(
  name="step", cluster=_H100, scheduled=_schedule
)


@pytest.fixture(scope="module")
def tuned() -> Tune:
  """Tunings of a step with other best options with the plugin."""
  with mock.patch.object(arms, "known", return_value=arms.Known(arms=())):
    tunings = {a: tuner.tune(_TARGET, applied=a) for a in ("flags", "env")}
    tunings["all"] = tuner.tune(_TARGET)
  return tunings.__getitem__


def test_flags_are_chosen_by_the_step_time_under_the_channel_cap(tuned):
  plan, search = tuned("env").plan, tuned("env").search
  assert _MORE in plan.xla.options and set(plan.nccl_env) == {"NCCL_MAX_CTAS"}
  assert plan.planned_us == plan.prediction.nccl_env_us
  # Under NCCL's own choices another set of options would be ahead.
  own_us = [c.under_nccl_defaults.step_time_us for c in search.scheduled]
  assert plan.planned_us < min(own_us) < plan.prediction.xla_us


@pytest.mark.parametrize("applied", ["flags", "env", "all"])
def test_options_that_gain_only_with_a_channel_cap_are_found(applied):
  exposed_first = dataclasses.replace(
    _TARGET,
    scheduled=lambda config: _HIDDEN if _MORE in config.options else _EXPOSED,
  )
  with mock.patch.object(arms, "known", return_value=arms.Known(arms=())):
    tuning = tuner.tune(exposed_first, applied=applied)
  best, default = tuning.search.best, tuning.search.default
  assert _MORE in tuning.plan.xla.options
  own_us = default.under_nccl_defaults.step_time_us
  assert best.under_nccl_defaults.step_time_us > own_us
  assert tuning.plan.planned_us == best.tuned.step_time_us < own_us
  assert verification.verify(tuning.plan, exposed_first).all_acted


@hypothesis.settings(max_examples=12)
@hypothesis.given(
  kernels_us=st.lists(
    st.floats(200.0, 600.0).map(lambda us: round(us, 1)),
    min_size=3,
    max_size=3,
  ),
  gathered=st.sampled_from([4 * _MIB, 16 * _MIB, 64 * _MIB]),
  hides=st.tuples(st.booleans(), st.booleans(), st.booleans()),
)
def test_a_plan_with_the_plugin_is_never_slower_than_one_without(
  kernels_us, gathered, hides
):
  """Tunings of the same schedules, either of which hides the gather."""
  default, early, combined = (
    _module(us, 1.0, hides=hide, gathered_bytes=gathered)
    for us, hide in zip(kernels_us, hides, strict=True)
  )

  def schedule(config: config_lib.XlaConfig) -> hlo.Module:
    if _MORE in config.options:
      return early
    return combined if _COMBINING in config.options else default

  target = dataclasses.replace(_TARGET, scheduled=schedule)
  with mock.patch.object(arms, "known", return_value=arms.Known(arms=())):
    tuning = tuner.tune(target)
    without = tuner.tune(target, applied="flags")
  assert tuning.plan.planned_us <= without.plan.planned_us
  assert tuning.plan.planned_us == tuning.timeline_after.step_time_us
  found = verification.verify(tuning.plan, target)
  assert found.planned_us == pytest.approx(tuning.plan.planned_us)


def test_a_plan_of_only_flags_has_the_channel_cap_as_an_xla_option(tuned):
  flags, env = tuned("flags").plan, tuned("env").plan
  options = dict(flags.xla.options)
  cap = options.pop(_CAP)
  assert options == env.xla.options
  assert env.nccl_env == {"NCCL_MAX_CTAS": str(cap)}
  assert flags.prediction.xla_us == env.prediction.nccl_env_us
  assert flags.planned_us == env.planned_us
  assert flags.gain_us == env.gain_us


def test_the_effect_of_the_cap_option_equals_its_nccl_variables(tuned):
  tuning = tuned("flags")
  env = {effect.knob: effect for effect in tuned("env").effects}
  flags = {effect.knob: effect for effect in tuning.effects}
  assert flags.keys() == {_MORE, _CAP}
  cap, variable = flags[_CAP], env["NCCL_MAX_CTAS"]
  assert dataclasses.replace(cap, knob=variable.knob) == variable
  assert cap.acted and cap.with_us == tuning.plan.planned_us
  # Other options are judged with the cap in place.
  for seen in (flags, env):
    assert seen[_MORE].with_us == tuning.plan.planned_us


@pytest.mark.parametrize("applied", ["flags", "env", "all"])
def test_a_plan_holds_only_the_parts_that_are_applied(tuned, applied):
  plan = tuned(applied).plan
  assert plan.applied == applied
  assert bool(plan.nccl_settings) == (applied == "all")
  assert bool(plan.nccl_env) == (applied != "flags")
  assert (_CAP in plan.xla.options) == (applied == "flags")
  assert plan_lib.from_dict(plan.to_dict(), where="it") == plan
  found = verification.verify(plan, _TARGET)
  assert found.planned_us == pytest.approx(plan.planned_us)
  printed = validation.write(results.verification(found))
  assert printed["gain_us"] == dataclasses.asdict(plan.gain_us)


@pytest.mark.parametrize(
  ("applied", "said"),
  [
    ("flags", "# Chosen for jobs that set these XLA_FLAGS and nothing else."),
    ("env", "# Chosen for jobs that set XLA_FLAGS and NCCL_MAX_CTAS, and load"),
    ("all", None),
  ],
)
def test_env_sh_says_which_jobs_a_plan_was_chosen_for(tuned, applied, said):
  written = files.contents(tuned(applied).plan)["env.sh"].decode()
  assert written.count("# Chosen for") == (said is not None)
  assert said is None or said in written
  assert ("export NCCL_MAX_CTAS=" in written) == (applied != "flags")
  assert ("LAGOM_XLA_NCCL_CHECKSUM=" in written) == (applied == "all")


@pytest.mark.parametrize(
  ("applied", "last", "column"),
  [
    ("flags", "XLA_FLAGS (env.sh)", "capped"),
    ("env", "NCCL's environment (env.sh)", "capped"),
    ("all", "NCCL's settings (env.sh, with the tuner plugin)", "tuned"),
  ],
)
def test_a_report_ends_with_the_last_applied_part(tuned, applied, last, column):
  tuning = tuned(applied)
  stream = io.StringIO()
  console = rich.console.Console(file=stream, width=120)
  terminal.show_tuning(console, tuning, [], is_verbose=True)
  text = stream.getvalue()
  planned = f"-> {tuning.plan.planned_us / 1e3:,.2f} ms"
  changes = re.findall(r"(?m)^(\S.*): [\d.,]+ (-> [\d.,]+ ms)$", text)
  assert planned in [change for name, change in changes if name == last]
  assert re.findall(r" (capped|tuned) ", text).count(column) > 0


@pytest.mark.parametrize("applied", ["flags", "env"])
def test_a_plan_with_parts_that_are_never_applied_is_refused(applied):
  with pytest.raises(errors.PlanError, match="would never be applied"):
    dataclasses.replace(sample_plan.PLAN, applied=applied)


def test_in_process_tuning_is_refused_for_a_plan_of_only_flags():
  with pytest.raises(errors.PlanError, match="leave out applied or"):
    tuner.tune(_TARGET, applied="flags", in_process=True)
  outcome = run("tune", "a.py:f", CLUSTER, "--flags-only", "--in-process")
  assert outcome.status == 2 and "not allowed with" in outcome.err
