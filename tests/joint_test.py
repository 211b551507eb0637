# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""XLA options outside, NCCL settings inside, on targets made of HLO text."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
import dataclasses
import pathlib

import pytest

import fake_target
import hlo_text
from lagom_xla import cluster as cluster_lib
from lagom_xla import errors
from lagom_xla.compile import config as config_lib
from lagom_xla.compile import load
from lagom_xla.costs import gemm
from lagom_xla.costs import scenario as scenario_lib
from lagom_xla.costs import step as step_lib
from lagom_xla.costs import uncertainty
from lagom_xla.costs.replay import timeline
from lagom_xla.passes import collectives as collectives_lib
from lagom_xla.passes import hlo
from lagom_xla.passes import overlap as overlap_lib
from lagom_xla.passes import pjrt_transform
from lagom_xla.passes.combine import table
from lagom_xla.passes.program import outcome as outcome_lib
from lagom_xla.search import nccl
from lagom_xla.search.nccl import channel_cap
from lagom_xla.search.nccl import settings
from lagom_xla.search.xla import candidates
from lagom_xla.search.xla import evaluation
from lagom_xla.search.xla import joint
from lagom_xla.search.xla import thresholds
from lagom_xla.xla_schedule import reschedule

H100 = cluster_lib.parse("1x8xh100")
_KIB, _MIB = 2**10, 2**20
# A kernel of this size has blocks for 128 of an H100's 132 SMs, all at once.
_ONE_WAVE = 1024
_GATHER = thresholds.OPTIONS["all-gather"]


def _module(
  *gathers: Sequence[int],
  kernels_us: float = 50.0,
  size: int = 256,
  plain_scatters: Sequence[int] = (),
  tail_us: float = 0.0,
) -> hlo.Module:
  """All-gathers, each beside one kernel of size x size; then one alone.

  The kernels are library calls, whose times XLA's estimates set.
  """
  lines = []
  for position, sizes in enumerate(gathers):
    start, done = hlo_text.all_gather(f"all-gather.{position}", *sizes)
    kernel = hlo_text.kernel(f"kernel.{position}", kernels_us, size=size)
    lines += [start, kernel, done]
  if tail_us:
    lines.append(hlo_text.kernel("tail", tail_us, size=size))
  for position, num_bytes in enumerate(plain_scatters):
    lines += [
      f"whole.{position} = f32[{num_bytes // 4}] custom-call(),"
      ' custom_call_target="AllocateBuffer"',
      f"reduce-scatter.{position} = f32[{num_bytes // 32}]"
      f" reduce-scatter(whole.{position}), {hlo_text.GATHER}, to_apply=add",
    ]
  body = "\n".join(lines)
  return hlo_text.load(f"""
  p = f32[{size},{size}] parameter(0)
{body}
  ROOT result = (f32[{size},{size}]) tuple(p)
""")


def _target(
  schedule: Callable[[config_lib.XlaConfig], hlo.Module],
  *,
  is_read_only: bool = False,
) -> fake_target.FakeTarget:
  return fake_target.FakeTarget(
    name="step",
    cluster=H100,
    scheduled=schedule,
    is_scheduled=is_read_only,
  )


def _step(module: hlo.Module) -> step_lib.Step:
  return step_lib.of_module(module, H100)


def _tuned_us(candidate: candidates.Candidate) -> float:
  return candidate.tuned.step_time_us


_APART = [[64 * _KIB]] * 8
_TOGETHER = [[64 * _KIB] * 8]


def _combines(config: config_lib.XlaConfig) -> hlo.Module:
  """What XLA does: beyond the default, eight all-gathers become one."""
  is_combined = int(config.options.get(_GATHER, 0)) > table.DEFAULT_BYTES
  return _module(*(_TOGETHER if is_combined else _APART), kernels_us=3.0)


# Thresholds that are worth a compile.


def _collectives(module: hlo.Module) -> tuple[collectives_lib.Collective, ...]:
  return overlap_lib.analyze(module).collectives


def _worth_trying(*gathers: Sequence[int]) -> list[int]:
  found = thresholds.worth_trying(_collectives(_module(*gathers)), "all-gather")
  return [threshold // _MIB for threshold in found]


def test_a_lone_collective_has_no_thresholds_worth_trying():
  assert _worth_trying([40 * _MIB]) == []


def test_small_thresholds_are_tried_where_something_is_combined():
  assert _worth_trying([8 * _MIB, 8 * _MIB]) == [0, 8]


def test_large_thresholds_are_tried_where_two_fit_under_them():
  assert _worth_trying([40 * _MIB], [40 * _MIB], [40 * _MIB]) == [128]
  assert _worth_trying([70 * _MIB], [70 * _MIB]) == [512]


def test_thresholds_end_with_one_that_all_fit_under():
  assert _worth_trying(*[[40 * _MIB]] * 8) == [128, 512]


def test_kinds_are_combined_apart():
  module = _module([64 * _KIB], [64 * _KIB])
  assert not list(
    thresholds.worth_trying(_collectives(module), "reduce-scatter")
  )


def test_sizes_are_those_that_xla_counts():
  module = _module([8 * _MIB, 8 * _MIB], plain_scatters=[8 * _MIB])
  gather, scatter = _collectives(module)
  assert table.combined_bytes(gather) == 16 * _MIB
  assert table.combined_bytes(scatter) == _MIB


# The search over options.


def test_options_that_shorten_the_step_are_kept():
  found = joint.search(_target(_combines), arms=())
  assert found.default.config.is_default
  assert found.best.config.options == {_GATHER: 128 * _MIB}
  assert _tuned_us(found.best) < _tuned_us(found.default)


def test_the_default_is_kept_when_nothing_is_better():
  found = joint.search(
    _target(lambda options: _module(*_APART, kernels_us=3.0)), arms=()
  )
  assert found.others
  assert found.best is found.default


def _candidate(
  default_us: float,
  tuned_us: float,
  tuned_if: Mapping[scenario_lib.Scenario, float] | None = None,
  **options: int,
) -> candidates.Candidate:
  def lasting(step_time_us: float) -> timeline.Timeline:
    return timeline.Timeline(
      step_time_us=step_time_us,
      kernel_us=step_time_us,
      collective_us=0.0,
      exposed_us={},
      slowdown_us={},
    )

  step = _step(_module([64 * _KIB]))
  return candidates.Candidate(
    config=config_lib.XlaConfig(options=options),
    step=step,
    runs=step,
    settings={},
    under_nccl_defaults=lasting(default_us),
    tuned=lasting(tuned_us),
    default_times=uncertainty.Times(mean_us=default_us, by_scenario={}),
    tuned_times=uncertainty.Times(
      mean_us=tuned_us, by_scenario=dict(tuned_if or {})
    ),
    num_trials=1,
    outcome=outcome_lib.Outcome(),
  )


@pytest.mark.parametrize(("gain", "is_kept"), [(0.0005, False), (0.01, True)])
def test_a_gain_within_the_models_error_is_no_reason_to_leave_the_default(
  gain, is_kept
):
  default = _candidate(100.0, 100.0)
  other = _candidate(100.0, 100.0 * (1 - gain), threshold=1)
  found = candidates.Search(default=default, others=(other,))
  assert (found.best is other) == is_kept


@pytest.mark.parametrize(
  ("tuned_us", "is_kept"), [(99.0, True), (101.0, False)]
)
def test_a_gain_must_be_left_where_the_model_is_wrong(tuned_us, is_kept):
  slow = scenario_lib.Scenario(part="contention", contention=2.0)
  default = _candidate(100.0, 100.0, {slow: 100.0})
  other = _candidate(100.0, 90.0, {slow: tuned_us}, threshold=1)
  found = candidates.Search(default=default, others=(other,))
  assert (found.best is other) == is_kept


def test_options_must_not_hurt_those_who_run_nccls_defaults():
  default = _candidate(100.0, 90.0)
  hurts = _candidate(101.0, 50.0, threshold=1)
  helps = _candidate(100.0, 80.0, threshold=2)
  assert candidates.Search(default=default, others=(hurts,)).best is default
  both = candidates.Search(default=default, others=(hurts, helps))
  assert both.best is helps
  assert both.refused(helps, "It does not fit.").best is default


def test_options_that_xla_refuses_are_recorded():
  def schedule(config: config_lib.XlaConfig) -> hlo.Module:
    if _GATHER in config.options:
      raise errors.CompileError("XLA could not compile: no such luck")
    return _combines(config)

  found = joint.search(_target(schedule), arms=())
  assert found.others[0] == candidates.Refused(
    config=config_lib.XlaConfig(options={_GATHER: 128 * _MIB}),
    reason="XLA could not compile: no such luck",
  )
  assert found.best is found.default


def test_a_target_that_does_not_compile_at_all_is_an_error():
  def schedule(config: config_lib.XlaConfig) -> hlo.Module:
    raise errors.CompileError("XLA could not compile for 1x8xh100")

  with pytest.raises(errors.CompileError, match="for 1x8xh100"):
    joint.search(_target(schedule))


def test_a_scheduled_module_is_searched_for_nccl_settings_only():
  asked = []

  def schedule(config: config_lib.XlaConfig) -> hlo.Module:
    asked.append(config)
    # A kernel that fills an H100 once, beside an all-gather.
    return _module([16 * _MIB], kernels_us=400.0, size=_ONE_WAVE)

  target = _target(schedule, is_read_only=True)
  found = joint.search(target)
  assert not found.others
  assert len(asked) == joint.max_candidates(target) == 1
  assert (
    _tuned_us(found.default) < found.default.under_nccl_defaults.step_time_us
  )


def test_what_is_predicted_to_gain_is_compiled_before_what_is_unknown():
  told: list[str] = []
  joint.search(_target(_combines), arms=(), progress=told.append)
  assert told[:2] == ["XLA's defaults", "all-gather combined up to 128 MiB"]
  assert "collectives started as early as possible" in told[2:]


def test_what_is_predicted_not_to_gain_is_not_compiled():
  told: list[str] = []
  # Hidden behind long kernels: there is nothing to gain by combining them.
  module = _module([_MIB], [_MIB], kernels_us=5_000.0)
  target = _target(lambda _: module)
  found = joint.search(target, arms=(), progress=told.append)
  assert told == ["XLA's defaults"]
  assert found.num_predicted > 1


def test_pipelining_is_compiled_where_the_graph_cannot_show_it(
  fsdp_scan, monkeypatch
):
  def unable(module: hlo.Module, *_: object) -> hlo.Module:
    return module

  monkeypatch.setattr(reschedule, "reschedule", unable)
  found = joint.search(_target(lambda _: fsdp_scan), arms=())
  tried = {
    name for candidate in found.others for name in candidate.config.options
  }
  assert any("pipeline" in name for name in tried)
  assert "xla_gpu_enable_while_loop_double_buffering" in tried
  assert tried.isdisjoint(thresholds.OPTIONS.values())


def test_progress_is_told_of_each_candidate():
  told: list[str] = []
  target = _target(_combines)
  found = joint.search(target, progress=told.append)
  assert 1 + len(found.others) == len(told) <= joint.max_candidates(target)


def test_no_more_is_compiled_than_allowed():
  asked = []

  def schedule(config: config_lib.XlaConfig) -> hlo.Module:
    asked.append(config)
    return _combines(config)

  found = joint.search(_target(schedule), arms=(), max_compiles=2)
  assert len(asked) == 1 + len(found.others) == 2


def test_the_same_target_gives_the_same_search():
  first, second = (joint.search(_target(_combines), arms=()) for _ in range(2))
  assert [c.config for c in first.others] == [c.config for c in second.others]
  assert first.best.settings == second.best.settings


_LOOP = """
body {
  at = s32[] parameter(0)
  one = s32[] constant(1)
  ROOT next = s32[] add(at, one)
}
condition {
  now = s32[] parameter(0)
  end = s32[] custom-call(), custom_call_target="Unknown"
  ROOT goes_on = pred[] compare(now, end), direction=LT
}
"""


def _with_loop(num_trips: str) -> hlo.Module:
  return hlo_text.load(
    f"""
  p = f32[256,256] parameter(0)
  first = s32[] constant(0)
  loop = s32[] while(first), condition=condition, body=body{num_trips}
  {hlo_text.kernel("kernel", 10.0)}
  ROOT result = (f32[256,256]) tuple(kernel)
""",
    computations=_LOOP,
  )


@pytest.mark.parametrize("known_before", [True, False])
def test_a_step_whose_time_is_no_longer_known_is_refused(known_before):
  known = f", {hlo_text.trips(3)}"
  default = evaluation.evaluate_or_raise(
    config_lib.DEFAULT,
    target=_target(lambda _: _with_loop(known if known_before else "")),
    searcher=nccl.SEARCHERS[nccl.DEFAULT_SEARCHER],
  )
  found = evaluation.evaluate(
    config_lib.XlaConfig(options={_GATHER: 0}),
    target=_target(lambda _: _with_loop("")),
    searcher=nccl.SEARCHERS[nccl.DEFAULT_SEARCHER],
    default=default,
  )
  if known_before:
    assert isinstance(found, candidates.Refused)
    assert "its loop loop runs" in found.reason
  else:
    assert isinstance(found, candidates.Candidate)


# The search over NCCL settings of a whole step.


def test_settings_are_changed_only_where_it_matters():
  # The first all-gather slows its kernel; the second meets idle SMs.
  contended = _module([16 * _MIB], kernels_us=400.0, size=_ONE_WAVE)
  hidden = _module([16 * _MIB], kernels_us=400.0, size=256)
  for module, changes in ((contended, True), (hidden, False)):
    step = _step(module)
    configuration = settings.search(step).configuration
    assert (configuration != step.default) == changes


def test_searched_settings_are_no_slower_than_any_channel_cap():
  step = _step(
    _module([16 * _MIB], [64 * _MIB], [_MIB], kernels_us=600.0, size=_ONE_WAVE)
  )
  found = settings.search(step)
  cap = channel_cap.best(step)
  assert cap.max_channels is not None
  found_us = step.timeline(found.configuration).step_time_us
  assert found_us <= cap.step_time_us * 1.001
  assert 0 < found.num_trials < 150


def test_settings_per_key_beat_any_cap_where_keys_want_different_channels():
  # The short gather is hidden on the few channels that leave its kernel in one
  # wave; on as few, the long one would outlast its kernel by far.
  step = _step(
    _module([8 * _MIB], [512 * _MIB], kernels_us=600.0, size=_ONE_WAVE)
  )
  configuration = settings.search(step).configuration
  cap = channel_cap.best(step)
  short, long = sorted(step.keys, key=lambda key: key.num_bytes)
  assert configuration[short].num_channels < configuration[long].num_channels
  assert step.timeline(configuration).step_time_us < 0.99 * cap.step_time_us


def test_sends_and_receives_keep_nccls_choice_whatever_the_cap():
  # A cap would help, but nothing can set one for a permute alone: the product
  # fills an H100 once, and lasts longer than the permute on few channels.
  shape = {"batch": 1, "m": 2048, "n": 2048, "k": 16384}
  num_blocks, blocks_per_sm = gemm.blocks(H100.gpu, **shape, element_type="f32")
  assert 0.9 < num_blocks / (blocks_per_sm * H100.gpu.num_sms) < 1
  step = _step(
    hlo_text.load(
      """
  p = f32[2048,16384] parameter(0)
  q = f32[2048,2048] parameter(1)
  permute = (f32[2048,2048], f32[2048,2048]) collective-permute-start(q),
    channel_id=1, source_target_pairs={{0,1},{1,0}}
  dot = f32[2048,2048] dot(p, p), lhs_contracting_dims={1},
    rhs_contracting_dims={1}
  permuted = f32[2048,2048] collective-permute-done(permute)
  ROOT result = (f32[2048,2048], f32[2048,2048]) tuple(dot, permuted)
""",
      header="is_scheduled=true, num_partitions=2",
    )
  )
  assert channel_cap.best(step).configuration != step.default
  configuration = settings.search(step).configuration
  assert configuration == step.default


def test_a_key_that_hardly_matters_to_the_step_keeps_its_default():
  for tail_us, changes in ((1.0, True), (1e7, False)):
    step = _step(
      _module([16 * _MIB], kernels_us=400.0, size=_ONE_WAVE, tail_us=tail_us)
    )
    configuration = settings.search(step).configuration
    assert (configuration != step.default) == changes


def test_a_setting_has_no_more_channels_than_it_gains_from():
  step = _step(_module([16 * _MIB], [64], kernels_us=400.0, size=_ONE_WAVE))
  configuration = settings.search(step).configuration
  found_us = step.timeline(configuration).step_time_us
  for key, setting in configuration.items():
    if setting == step.default[key] or setting.num_channels == 1:
      continue
    one = dataclasses.replace(setting, num_channels=1)
    fewer_us = step.timeline({**configuration, key: one}).step_time_us
    assert fewer_us > found_us


def test_a_cap_is_the_highest_of_the_best():
  step = _step(_module([16 * _MIB], kernels_us=400.0, size=_ONE_WAVE))
  cap = channel_cap.best(step)
  ((key, default),) = step.default.items()
  times_us = {}
  for max_channels in range(1, default.num_channels + 1):
    setting = dataclasses.replace(default, num_channels=max_channels)
    times_us[max_channels] = step.timeline({key: setting}).step_time_us
  least_us = min(times_us.values())
  assert cap.step_time_us == least_us
  assert cap.max_channels == max(
    n for n, us in times_us.items() if us == least_us
  )
  # The kernel's blocks leave 4 of 132 SMs idle.
  assert cap.max_channels is not None and cap.max_channels <= 4
  assert cap.configuration == {
    key: dataclasses.replace(default, num_channels=cap.max_channels)
  }


def test_there_is_no_cap_where_none_helps():
  step = _step(_module([64 * _MIB], kernels_us=3.0))
  cap = channel_cap.best(step)
  assert cap.max_channels is None
  assert cap.configuration == step.default


def test_there_is_no_cap_without_collectives():
  assert channel_cap.best(_step(_module())).max_channels is None


# A real module.


def test_a_real_module_is_never_tuned_for_the_worse():
  folder = pathlib.Path(__file__).parents[2] / "shared" / "data" / "hlo"
  path = folder / "hlo_llama3_8b_cp_bf16_1x4.hlo.xz"
  if not path.exists():
    pytest.skip(f"no shared/data/hlo/{path.name} beside the repository")
  if pjrt_transform.plugin_path() is None:
    pytest.skip("JAX's CUDA plugin is not installed (extra aot)")
  cluster = cluster_lib.parse("1x4xh100")
  step = step_lib.of_module(load.load(str(path), cluster).schedule(), cluster)
  configuration = settings.search(step).configuration
  before, after = step.timeline(step.default), step.timeline(configuration)
  assert after.step_time_us < before.step_time_us
  for replayed in (before, after):
    assert replayed.step_time_us == pytest.approx(
      replayed.kernel_us
      + replayed.total_slowdown_us
      + replayed.total_exposed_us
    )
