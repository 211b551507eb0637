# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""The settings of a step are what the chosen searcher finds, or NCCL's own."""

from __future__ import annotations

import dataclasses
import pathlib

import pytest

import gather_steps
from gather_steps import H100
from gather_steps import MIB
from gather_steps import ONE_WAVE
import hlo_text
from lagom_xla import cluster as cluster_lib
from lagom_xla.compile import load
from lagom_xla.costs import gemm
from lagom_xla.costs import step as step_lib
from lagom_xla.costs import uncertainty
from lagom_xla.passes import hlo
from lagom_xla.passes import registry
from lagom_xla.search import nccl as nccl_search
from lagom_xla.search.nccl import channel_cap
from lagom_xla.search.nccl import searcher as searcher_lib
from lagom_xla.search.nccl import settings


@pytest.fixture
def step(fsdp_unrolled: hlo.Module) -> step_lib.Step:
  return step_lib.of_module(fsdp_unrolled, H100)


class _StartAlone(searcher_lib.Searcher):
  """Tries nothing but the start."""

  def trials(self, problem, cluster, start, first, seed):
    yield from ()


def test_a_searcher_is_chosen_and_balance_if_nothing_is_said(step, monkeypatch):
  # The cost model is taken to be right.
  monkeypatch.setattr(uncertainty, "scenarios", lambda cluster, measured: ())
  found = {
    name: settings.search(step, searcher)
    for name, searcher in nccl_search.SEARCHERS.items()
  }
  default_us = step.timeline(step.default).step_time_us
  for each in found.values():
    assert step.timeline(each.configuration).step_time_us < default_us
  assert settings.search(step) == found["balance"] != found["lagom"]


def test_what_no_search_improves_is_left_to_nccl(step):
  found = settings.search(step, _StartAlone())
  assert found.configuration == step.default


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Counting(nccl_search.Balance):
  """Balance, which writes down the searches that it begins."""

  told: list[float] = dataclasses.field(default_factory=list, compare=False)

  def trials(self, problem, cluster, start, first, seed):
    self.told.append(first.total_us)
    return super().trials(problem, cluster, start, first, seed)


def test_overlaps_that_another_schedule_has_too_are_searched_once(
  step, fsdp_unrolled
):
  searcher = _Counting(least_gain=0.0123)  # One that no other test asks.
  first = settings.search(step, searcher)
  num_told = len(searcher.told)
  assert num_told > 0
  again = step_lib.of_module(fsdp_unrolled, step.cluster)
  assert settings.search(again, searcher) == first
  assert len(searcher.told) == num_told


# Steps of which a test knows what is best.


@pytest.mark.parametrize(
  ("size", "tail_us", "changes"),
  [
    (ONE_WAVE, 1.0, True),
    (256, 1.0, False),  # It meets idle SMs.
    (ONE_WAVE, 1e7, False),  # It hardly matters to the step.
  ],
)
def test_settings_are_changed_only_where_it_matters(
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


def test_settings_per_key_beat_any_cap_where_keys_want_different_channels():
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


def test_sends_and_receives_keep_nccls_choice_whatever_the_cap():
  # A cap would help, but nothing can set one for a permute alone: the product
  # fills an H100 once, and lasts longer than the permute on few channels.
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


def test_a_setting_has_no_more_channels_than_it_gains_from():
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


def test_a_real_module_is_never_tuned_for_the_worse():
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
