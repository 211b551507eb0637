# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""A step's settings have the largest assured gain, or are NCCL's own."""

from __future__ import annotations

import dataclasses
import pathlib
from unittest import mock

import pytest

import gather_steps
from gather_steps import H100
from gather_steps import MIB
from gather_steps import ONE_WAVE
import hlo_text
from lagom_xla import cluster as cluster_lib
from lagom_xla.compile import load
from lagom_xla.costs import gemm
from lagom_xla.costs import nccl
from lagom_xla.costs import step as step_lib
from lagom_xla.costs import uncertainty
from lagom_xla.passes import hlo
from lagom_xla.passes import registry
from lagom_xla.search.nccl import channel_cap
from lagom_xla.search.nccl import problem as problem_lib
from lagom_xla.search.nccl import settings


@pytest.fixture
def step(fsdp_unrolled: hlo.Module) -> step_lib.Step:
  return step_lib.of_module(fsdp_unrolled, H100)


def test_no_single_change_of_the_found_settings_has_an_assured_gain(step):
  found = settings.search(step)
  for key in step.keys:
    for setting in settings.worth_trying(step, key):
      other = {**found.configuration, key: setting}
      times = uncertainty.times(step, other)
      surer_us = uncertainty.gain(found.tuned_times, times).low
      assert surer_us <= 1e-3 * found.default_times.mean_us


def test_each_algorithm_is_tried_with_all_channels_and_fewer(step):
  key = max(step.keys, key=lambda key: key.num_bytes)
  tried = settings.worth_trying(step, key)
  assert tried[0] == step.default[key]
  ways = nccl.candidates(H100, key.communicator, key.kind)
  call, *_ = step.calls[key]
  assert {(s.algorithm, s.protocol) for s in tried} == set(ways)
  for algorithm, protocol in ways:
    counts = {
      s.num_channels
      for s in tried
      if (s.algorithm, s.protocol) == (algorithm, protocol)
    }
    most = nccl.max_channels(H100, key.communicator, algorithm)
    # Every array gets as many channels as the others.
    few = {call.channels_each(n) * call.num_arrays for n in (1, most // 2)}
    assert {*few, most} <= counts and max(counts) == most


def test_overlaps_shared_with_another_schedule_are_predicted_once(
  step, fsdp_unrolled
):
  first = settings.search(step)
  again = step_lib.of_module(fsdp_unrolled, step.cluster)
  with mock.patch.object(problem_lib, "Predictor", side_effect=AssertionError):
    assert settings.search(again) == first


# Steps whose best settings are known.


@pytest.mark.parametrize(
  ("size", "tail_us", "changes"),
  [
    (ONE_WAVE, 1.0, True),
    (256, 1.0, False),  # It meets idle SMs.
    (ONE_WAVE, 1e7, False),  # It hardly matters to the step.
  ],
)
def test_settings_change_only_where_the_step_gains_noticeably(
  size: int, tail_us: float, changes: bool
):
  step = gather_steps.step(
    gather_steps.module(
      [16 * MIB], kernels_us=400.0, size=size, tail_us=tail_us
    )
  )
  assert (settings.search(step).configuration != step.default) == changes


def test_searched_settings_are_no_slower_than_any_channel_cap():
  step = gather_steps.step(
    gather_steps.module(
      [16 * MIB], [64 * MIB], [MIB], kernels_us=800.0, size=ONE_WAVE
    )
  )
  found = settings.search(step)
  cap = channel_cap.best(step)
  assert cap.max_channels is not None
  found_us = step.timeline(found.configuration).step_time_us
  assert found_us <= cap.step_time_us * 1.001
  assert 0 < found.num_trials < 150


def test_settings_per_key_beat_any_cap_if_keys_need_different_channels():
  # The short gather is hidden on the few channels that leave its kernel in one
  # wave; on as few, the long one would outlast its kernel by far.
  step = gather_steps.step(
    gather_steps.module([8 * MIB], [512 * MIB], kernels_us=600.0, size=ONE_WAVE)
  )
  configuration = settings.search(step).configuration
  cap = channel_cap.best(step)
  short, long = sorted(step.keys, key=lambda key: key.num_bytes)
  assert configuration[short].num_channels < configuration[long].num_channels
  assert step.timeline(configuration).step_time_us < 0.99 * cap.step_time_us


def test_sends_and_receives_keep_nccls_choice_even_if_a_cap_would_help():
  # A cap would help, but none can be set only for permutes: the matmul fills an
  # H100 once, and lasts longer than the permute on few channels.
  shape = (1, 2048, 2048, 16384)
  num_blocks, blocks_per_sm = gemm.blocks(H100.gpu, shape, "f32")
  assert 0.9 < num_blocks / (blocks_per_sm * H100.gpu.num_sms) < 1
  step = gather_steps.step(
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


def test_changed_settings_use_one_channel_unless_that_is_slower():
  step = gather_steps.step(
    gather_steps.module([16 * MIB], [64], kernels_us=400.0, size=ONE_WAVE)
  )
  configuration = settings.search(step).configuration
  found_us = step.timeline(configuration).step_time_us
  changed = {
    key: setting
    for key, setting in configuration.items()
    if setting != step.default[key] and setting.num_channels > 1
  }
  assert changed
  for key, setting in changed.items():
    one = dataclasses.replace(setting, num_channels=1)
    fewer_us = step.timeline({**configuration, key: one}).step_time_us
    assert fewer_us > found_us


def test_settings_shorten_a_real_step_and_its_times_add_up():
  folder = pathlib.Path(__file__).parents[4] / "shared" / "data" / "hlo"
  path = folder / "hlo_llama3_8b_cp_bf16_1x4.hlo.xz"
  if not path.exists():
    pytest.skip(f"no shared/data/hlo/{path.name} beside the repository")
  if registry.plugin_path() is None:
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
      + replayed.total_copy_slowdown_us
      + replayed.total_copy_wait_us
    )
