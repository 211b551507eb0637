# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Measured costs: what a profile says in place of the model, and for what."""

from __future__ import annotations

import dataclasses
import json
import pathlib

import hypothesis
from hypothesis import strategies
import pytest

from benchmarks.steps import corrected
from benchmarks.steps import times as step_times
from benchmarks.steps import trace as step_trace
import commands
from lagom_xla import cluster as cluster_lib
from lagom_xla import plan as plan_lib
from lagom_xla import profiling
from lagom_xla.costs import contention
from lagom_xla.costs import measured as measured_lib
from lagom_xla.costs import step as step_lib
from lagom_xla.costs import uncertainty
from lagom_xla.passes import hlo
from lagom_xla.profiling import costing as costing_lib
from lagom_xla.profiling import profile as profile_lib
from lagom_xla.profiling import slowdowns
from lagom_xla.profiling import variation
from lagom_xla.profiling import xspace
import sample_plan
import simulated_run
import xspace_text

_ROOT = pathlib.Path(__file__).resolve().parents[1]
_H100S = cluster_lib.parse("1x8xh100")
_OWN_US = 50.0
# Of a step of the simulated run, whose kernels lose what no model says.
_STEP_TOLERANCE = 0.2


def _lone_us(name: str) -> float:
  return 20.0 + len(name)


def _process(
  module: hlo.Module, *, without: str | None = None
) -> xspace_text.Process:
  run = simulated_run.Run(
    module=module,
    lone_us=_lone_us,
    own_us=lambda _: _OWN_US,
    late_us=[0.0] * 7 + [400.0],
  )
  ranks = [[k for k in rank if k.op != without] for rank in run.steps(3)]
  return xspace_text.Process(devices=ranks, module=module)


def _profile(
  module: hlo.Module, *, without: str | None = None
) -> profile_lib.Profile:
  process = _process(module, without=without)
  trace = xspace.of_bytes({"host": xspace_text.serialized(process)})
  return profile_lib.of_trace(trace)


@pytest.fixture(scope="module")
def profile(fsdp_scan: hlo.Module) -> profile_lib.Profile:
  return _profile(fsdp_scan)


@pytest.fixture(scope="module")
def costed(profile: profile_lib.Profile) -> costing_lib.Costing:
  return costing_lib.of_profile(profile, _H100S)


@pytest.fixture
def step(fsdp_scan: hlo.Module, costed: costing_lib.Costing) -> step_lib.Step:
  with measured_lib.pricing(costed.measured):
    return step_lib.of_module(fsdp_scan, _H100S)


def test_lone_kernels_cost_what_they_took(
  step: step_lib.Step, profile: profile_lib.Profile
):
  assert profile.lone_us
  for name in profile.lone_us:
    cost = step.kernel_cost(profile.kernels[name])
    assert cost.run_us == pytest.approx(_lone_us(name), abs=1e-3)
    assert cost.gap_us == pytest.approx(simulated_run.GAP_US, abs=1e-3)
    assert cost.source == "measured"
    assert cost.memory_us <= cost.run_us


def test_collectives_cost_what_they_took_less_waits_and_contention(
  step: step_lib.Step,
):
  for key in step.keys:
    time_us = step.predict(key, step.default[key]).time_us
    assert 0.5 * _OWN_US < time_us <= _OWN_US + 1e-3


def test_measured_bytes_stay_what_they_are(
  step: step_lib.Step, fsdp_scan: hlo.Module
):
  predicted = step_lib.of_module(fsdp_scan, _H100S)
  for key in step.keys:
    now = step.predict(key, step.default[key])
    model = predicted.predict(key, predicted.default[key])
    assert now.time_us * now.memory_gbps == pytest.approx(
      model.time_us * model.memory_gbps
    )


def test_a_replay_at_measured_costs_is_near_the_run(
  step: step_lib.Step, profile: profile_lib.Profile, fsdp_scan: hlo.Module
):
  predicted = step_lib.of_module(fsdp_scan, _H100S)
  # A replay knows of no rank that comes late.
  ran_us = profile.step_time_us - 400.0
  replayed_us = step.timeline(step.default).step_time_us
  assert replayed_us == pytest.approx(ran_us, rel=_STEP_TOLERANCE)
  model_us = predicted.timeline(predicted.default).step_time_us
  assert model_us != pytest.approx(ran_us, rel=_STEP_TOLERANCE)


def test_nothing_is_measured_outside(fsdp_scan: hlo.Module):
  assert step_lib.of_module(fsdp_scan, _H100S).measured is None


def test_another_schedule_of_a_step_keeps_its_costs(
  step: step_lib.Step, profile: profile_lib.Profile
):
  rescheduled = step.rescheduled(step.analysis.module)
  assert rescheduled.measured is step.measured
  for name in profile.lone_us:
    kernel = profile.kernels[name]
    assert rescheduled.kernel_cost(kernel) == step.kernel_cost(kernel)


def test_another_compile_is_priced_by_work(
  fsdp_unrolled: hlo.Module, costed: costing_lib.Costing
):
  with measured_lib.pricing(costed.measured):
    unrolled = step_lib.of_module(fsdp_unrolled, _H100S)
  kernels = list(unrolled.analysis.kernels.values())
  _, by_work, _ = costing_lib.num_priced(costed, kernels)
  assert by_work
  sources = [unrolled.kernel_cost(kernel).source for kernel in kernels]
  assert sources.count("measured") >= by_work


def test_what_was_not_traced_is_scaled_as_its_kind(fsdp_scan: hlo.Module):
  whole = _profile(fsdp_scan)
  by_work: dict[measured_lib.Work, list[str]] = {}
  for name, kernel in whole.kernels.items():
    by_work.setdefault(measured_lib.work_of(kernel), []).append(name)
  # One whose work no other kernel does.
  name = next(
    n[0] for n in by_work.values() if len(n) == 1 and n[0] in whole.lone_us
  )
  kernel = whole.kernels[name]
  costed = costing_lib.of_profile(_profile(fsdp_scan, without=name), _H100S)
  assert name in costed.not_run
  model = step_lib.of_module(fsdp_scan, _H100S).kernel_cost(kernel)
  with measured_lib.pricing(costed.measured):
    priced = step_lib.of_module(fsdp_scan, _H100S).kernel_cost(kernel)
  factor = costed.measured.categories[kernel.category]
  assert priced.run_us == pytest.approx(factor * model.run_us)
  assert priced.source == model.source


def test_ratios_are_of_sums_that_can_be_counted(
  costed: costing_lib.Costing, profile: profile_lib.Profile
):
  products = {
    name for name in profile.lone_us if profile.kernels[name].category == "gemm"
  }
  (ratio,) = (r for r in costed.ratios if r.kind == "gemm")
  assert ratio.n == len(products)
  assert ratio.measured_us == pytest.approx(
    sum(_lone_us(n) * profile.kernels[n].executions for n in products), rel=1e-3
  )
  assert ratio.low <= ratio.median <= ratio.high


@pytest.fixture(scope="module")
def folder(
  tmp_path_factory: pytest.TempPathFactory, fsdp_scan: hlo.Module
) -> pathlib.Path:
  """A folder with the module and, in `trace`, its profile."""
  found = tmp_path_factory.mktemp("profiled")
  (found / "step.hlo.pb").write_bytes(fsdp_scan.proto.SerializeToString())
  (found / "trace").mkdir()
  serialized = xspace_text.serialized(_process(fsdp_scan))
  (found / "trace/host.xplane.pb").write_bytes(serialized)
  return found


def test_inspect_says_how_far_off_predictions_were(folder: pathlib.Path):
  arguments = (
    "inspect",
    str(folder / "step.hlo.pb"),
    commands.CLUSTER,
    f"--profile={folder / 'trace'}",
  )
  text = commands.run(*arguments, "--verbose").out
  assert "Measured over predicted" in text
  assert "what the profile measured alone" in text
  assert "9 times in 10" in text
  found = json.loads(commands.run(*arguments, "--format=json").out)
  assert {"gemm", "all-gather"} <= {
    r["kind"] for r in found["profile"]["ratios"]
  }
  described = (_ROOT / "docs/formats.md").read_text()
  assert not [n for n in found["profile"] if f"`{n}`" not in described]


@pytest.mark.parametrize("command", ["inspect", "tune"])
def test_a_profile_of_another_step_prices_nothing(
  command: str, folder: pathlib.Path, tmp_path: pathlib.Path
):
  module = tmp_path / "another.hlo"
  module.write_text(commands.HLO)
  options = [f"--out={tmp_path / 'plan'}"] if command == "tune" else []
  said = commands.run(
    *(command, str(module), commands.CLUSTER, *options),
    f"--profile={folder / 'trace'}",
  )
  assert said.status == 2
  assert "is of another step than step: it has none of its kernels" in said.err


def test_profile_shows_who_waits_for_whom(folder: pathlib.Path):
  text = commands.run("profile", str(folder / "trace"), "--verbose").out
  assert "Who waited for whom (measured" in text
  found = json.loads(
    commands.run("profile", str(folder / "trace"), "--format=json").out
  )
  latest = max(found["devices"], key=lambda row: row["late_us"])
  assert latest["name"] == "host GPU:7"


def test_fields_of_a_profile_are_described(folder: pathlib.Path):
  found = json.loads(
    commands.run("profile", str(folder / "trace"), "--format=json").out
  )
  described = (_ROOT / "docs/formats.md").read_text()
  for name in {
    *found,
    *found["collectives"][0],
    *found["slowdowns"][0],
    *found["devices"][0],
    *found["processes"][0],
  }:
    assert f"`{name}`" in described, name


@pytest.mark.parametrize("name", ["maxtext_h100", "pax_a100"])
def test_one_ranks_kernels_foretell_the_others_step(name: str):
  data = _ROOT.parent / "shared/data" / name
  if not data.exists():
    pytest.skip(f"shared/data/{name} is not there: too large to ship")
  assert step_trace.is_of_step(data)
  (found,) = (g for g in step_times.groups(data) if "another rank" in g.name)
  assert found.n == 6
  assert found.worst < 0.03


def _noisy(module: hlo.Module) -> profile_lib.Profile:
  """A run whose kernels take up to 1 % longer from step to step."""
  process = _process(module)
  first = min(k.begin_us for k in process.devices[0])
  last = max(k.begin_us for k in process.devices[0])
  ranks = [
    [
      dataclasses.replace(
        k, time_us=k.time_us * (1 + 0.01 * (k.begin_us - first) / last)
      )
      for k in rank
    ]
    for rank in process.devices
  ]
  noisy = dataclasses.replace(process, devices=ranks)
  return profiling.read({"host": xspace_text.serialized(noisy)})


def test_what_was_measured_is_surer_than_what_is_predicted(
  fsdp_scan: hlo.Module,
):
  costed = costing_lib.of_profile(_noisy(fsdp_scan), _H100S)
  with measured_lib.pricing(costed.measured):
    step = step_lib.of_module(fsdp_scan, _H100S)
  predicted = step_lib.of_module(fsdp_scan, _H100S)

  def width(priced: step_lib.Step, part: str) -> float:
    """How far apart the scenarios of a part are, over the step."""
    found = uncertainty.times(priced, priced.default)
    times_us = [us for s, us in found.by_scenario.items() if s.part == part] + [
      found.mean_us
    ]
    return (max(times_us) - min(times_us)) / found.mean_us

  for part in ("products", "other_kernels", "within_nodes"):
    assert width(step, part) < width(predicted, part)
  # The run itself differed by 1 % from its start to its end.
  assert 0 < width(step, "measured_kernels") < 0.02


def test_a_run_of_one_step_does_not_say_how_sure_it_is(fsdp_scan: hlo.Module):
  process = _process(fsdp_scan)
  first = [rank[: len(rank) // 3] for rank in process.devices[:1]]
  one = dataclasses.replace(process, devices=first)
  found = profiling.read({"host": xspace_text.serialized(one)})
  costed = costing_lib.of_profile(found, _H100S)
  assert costed.measured.kernel_factors is None
  assert uncertainty.scenarios(_H100S, costed.measured) == (
    uncertainty.scenarios(_H100S)
  )


def test_missing_ranks_leave_collectives_as_unsure_as_they_were(
  fsdp_scan: hlo.Module,
):
  process = _process(fsdp_scan)
  some = dataclasses.replace(process, devices=process.devices[:3])
  found = profiling.read({"host": xspace_text.serialized(some)})
  measured = costing_lib.of_profile(found, _H100S).measured
  assert measured.keys
  assert not any(map(measured.knows_collective, measured.keys))


@hypothesis.given(
  strategies.lists(strategies.floats(0.5, 2.0), min_size=2, max_size=20)
)
def test_ranges_hold_the_median_and_grow_with_what_varies(ratios: list[float]):
  found = variation.factors(ratios)
  assert found is not None
  high, low = found
  assert low <= 1 <= high
  wider = variation.factors([ratio**2 for ratio in ratios])
  assert wider is not None
  assert wider[0] >= high - 1e-9
  assert wider[1] <= low + 1e-9


def test_a_plan_says_which_run_it_rests_on(
  folder: pathlib.Path, tmp_path: pathlib.Path, profile: profile_lib.Profile
):
  arguments = (
    "tune",
    str(folder / "step.hlo.pb"),
    commands.CLUSTER,
    f"--out={tmp_path / 'plan'}",
  )
  text = commands.run(*arguments, f"--profile={folder / 'trace'}").out
  assert "Costs rest on the profile host" in text
  run = plan_lib.load(tmp_path / "plan").profile
  assert run is not None
  assert run.began_at == "2026-02-02T02:40:00+00:00"
  assert run.num_steps == len(profile.whole_steps)
  assert run.num_devices == 8
  assert all(0 <= share <= 1 for share in run.measured_shares.values())
  assert run.measured_shares["all-gather"] == 1.0
  commands.run(*arguments)
  assert plan_lib.load(tmp_path / "plan").profile is None


def test_plans_from_before_profiles_are_read():
  raw = sample_plan.PLAN.to_dict()
  del raw["profile"]
  assert plan_lib.from_dict(raw, where="plan.json") == sample_plan.PLAN


def test_measured_slowdowns_correct_the_models(
  step: step_lib.Step, profile: profile_lib.Profile
):
  assert step.measured is not None
  named = {measured_lib.work_of(k): k for k in profile.kernels.values()}
  beside = step.costs(step.default).beside
  lost_us, model_us, ran_us = 0.0, 0.0, 0.0
  for (work, key), factor in step.measured.losses.items():
    kernel = step.kernel_cost(named[work])
    collective = step.predict(key, step.default[key])
    model = contention.beside(kernel, collective, step.cluster.gpu)
    found = beside(kernel, collective)
    assert found.collective_factor == model.collective_factor
    lost = found.kernel_us - kernel.time_us
    assert lost == pytest.approx(factor * (model.kernel_us - kernel.time_us))
    lost_us += lost
    model_us += model.kernel_us - kernel.time_us
    ran_us += (simulated_run.SLOWDOWN - 1) * kernel.run_us
  # The run slows kernels half as much again, whatever the model thinks.
  assert abs(lost_us - ran_us) < abs(model_us - ran_us)


def test_few_runs_say_little():
  def factor(number: int) -> float:
    met = slowdowns.Met(time_us=13.0, lone_us=10.0, predicted_us=11.0)
    return slowdowns.factor([met] * number)

  assert 1 < factor(1) < factor(10) < factor(1000) < 3
  assert factor(1000) == pytest.approx(3, rel=0.01)


@pytest.mark.parametrize("name", ["maxtext_h100", "pax_a100"])
def test_slowdowns_hold_for_their_pairs_on_another_rank_alone(name: str):
  data = _ROOT.parent / "shared/data" / name
  if not data.exists():
    pytest.skip(f"shared/data/{name} is not there: too large to ship")
  halves = {"another rank": [], "other kernels": []}
  for row in corrected.rows(data):
    if row.held_out in halves:
      halves[row.held_out].append(row.pairs_corrected / row.pairs_model)
  assert max(halves["another rank"]) < 0.8
  assert max(halves["other kernels"]) > 1
