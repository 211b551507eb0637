# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""XLA options outside, NCCL settings inside, with or without workers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
import contextlib
import dataclasses

from hypothesis import given
from hypothesis import strategies as st
import jax
import pytest

import arm_steps
from arm_steps import DOUBLED
import compiles
import fake_target
import gather_steps
from gather_steps import H100
from gather_steps import KIB
from gather_steps import MIB
from gather_steps import ONE_WAVE
import hlo_text
from lagom_xla import errors
from lagom_xla.compile import config as config_lib
from lagom_xla.compile import pool as pool_lib
from lagom_xla.compile import target as target_lib
from lagom_xla.costs import settings as settings_lib
from lagom_xla.passes import hlo
from lagom_xla.passes.combine import table
from lagom_xla.search.nccl import channel_cap
from lagom_xla.search.xla import arms as arms_lib
from lagom_xla.search.xla import candidates
from lagom_xla.search.xla import evaluation
from lagom_xla.search.xla import joint
from lagom_xla.search.xla import knobs

_GATHER = knobs.OPTIONS["all-gather"]
_APART = gather_steps.module(*[[64 * KIB]] * 8, kernels_us=3.0)
_TOGETHER = gather_steps.module([64 * KIB] * 8, kernels_us=3.0)


def _combines(config: config_lib.XlaConfig) -> hlo.Module:
  """XLA's result: with other options, eight all-gathers become one."""
  threshold = int(config.options.get(_GATHER, 0))
  return _TOGETHER if threshold > table.DEFAULT_BYTES else _APART


_TARGET = fake_target.of(_combines)


def test_options_that_shorten_the_step_are_found_in_every_search():
  found, again = (joint.search(_TARGET, arms=()) for _ in range(2))
  assert found.default.config.is_default
  assert found.best.config.options == {_GATHER: 128 * MIB}
  assert candidates.tuned_us(found.best) < candidates.tuned_us(found.default)
  assert _found(found) == _found(again)


def test_options_that_xla_refuses_are_recorded():
  reason = "XLA could not compile: no such luck"

  def schedule(config: config_lib.XlaConfig) -> hlo.Module:
    if _GATHER in config.options:
      raise errors.CompileError(reason)
    return _APART

  found = joint.search(fake_target.of(schedule), arms=())
  config = config_lib.XlaConfig(options={_GATHER: 128 * MIB})
  refused = candidates.Refused(config=config, reason=reason)
  assert found.found(config) == refused
  assert found.best is found.default


def test_a_target_that_never_compiles_raises_an_error():
  def schedule(config: config_lib.XlaConfig) -> hlo.Module:
    raise errors.CompileError("XLA could not compile for 1x8xh100")

  with pytest.raises(errors.CompileError, match="for 1x8xh100"):
    joint.search(fake_target.of(schedule))


def test_a_scheduled_module_is_searched_only_for_nccl_settings():
  asked = []

  def schedule(config: config_lib.XlaConfig) -> hlo.Module:
    asked.append(config)
    # A kernel that fills an H100 once, beside an all-gather.
    return gather_steps.module([16 * MIB], kernels_us=400.0, size=ONE_WAVE)

  found = joint.search(fake_target.of(schedule, is_scheduled=True))
  assert not found.others
  assert len(asked) == 1
  before_us = found.default.under_nccl_defaults.step_time_us
  assert candidates.tuned_us(found.default) < before_us


@pytest.mark.parametrize(
  ("kernels_us", "is_searched"), [(40, True), (60, False)]
)
def test_nccl_settings_are_searched_only_for_possible_winners(
  kernels_us: float, is_searched: bool
):
  arm = arm_steps.arm("arm", arm=1)
  target = fake_target.of(
    lambda config: hlo_text.exposed_gather(
      kernels_us if "arm" in config.options else 50.0
    )
  )
  found = joint.search(target, arms=[arm]).found(arm.config)
  assert isinstance(found, candidates.Candidate)
  assert (found.num_trials > 0) == is_searched
  if not is_searched:
    assert found.tuned == found.under_nccl_defaults


def test_the_expected_number_of_candidates_is_an_upper_bound():
  expected: list[float] = []
  tried: list[int] = [0]

  def expect(num_candidates: float) -> None:
    expected.append(num_candidates)
    tried.append(0)

  def progress(unused_words: str) -> None:
    tried[-1] += 1

  found = joint.search(_TARGET, progress=progress, expect=expect)
  assert sum(tried) == 1 + len(found.others)
  # One for the arms and at least one for a round, after the default.
  assert len(expected) >= 2 and tried[0] == 1
  assert all(n <= most for n, most in zip(tried[1:], expected, strict=True))


def _with_loop(num_trips: str) -> hlo.Module:
  return hlo_text.load(
    f"""
    p = f32[256,256] parameter(0)
    first = s32[] constant(0)
    loop = s32[] while(first), condition=condition, body=body{num_trips}
    {hlo_text.kernel("kernel", 10.0)}
    ROOT result = (f32[256,256]) tuple(kernel)
    """,
    computations="""
    body {
      at = s32[] parameter(0)
      ROOT next = s32[] negate(at) }
    condition {
      now = s32[] parameter(0)
      ROOT goes_on = pred[] custom-call(now), custom_call_target="Unknown" }
    """,
  )


@pytest.mark.parametrize("known_before", [True, False])
def test_an_arm_that_makes_the_step_time_unknown_is_refused(known_before: bool):
  known = f", {hlo_text.trips(3)}"
  arm = arm_steps.arm("arm", arm=1)
  target = fake_target.of(
    lambda config: _with_loop("" if config.options else known * known_before)
  )
  found = joint.search(target, arms=[arm], seconds=1e-9).found(arm.config)
  if known_before:
    assert isinstance(found, candidates.Refused)
    assert "its loop loop runs" in found.reason
  else:
    assert isinstance(found, candidates.Candidate)


# Compiles begun ahead change how long a search takes, but not its result.


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Recorded(fake_target.FakeTarget):
  """A target that records which configs are started and dropped."""

  workers: int
  ahead: list[config_lib.XlaConfig] = dataclasses.field(default_factory=list)
  dropped: list[config_lib.XlaConfig] = dataclasses.field(default_factory=list)

  @property
  def num_workers(self) -> int:
    return self.workers

  @contextlib.contextmanager
  def started(self, configs: Iterable[config_lib.XlaConfig]) -> Iterator[None]:
    configs = list(configs)
    self.ahead.extend(configs)
    try:
      yield
    finally:
      self.dropped.extend(configs)


def _numbered(number: int) -> arms_lib.Arm:
  return arm_steps.arm(f"arm {number}", number=number)


def _no_schedule(_: config_lib.XlaConfig) -> hlo.Module:
  raise AssertionError("Turns compile nothing themselves.")


@given(
  num_configs=st.integers(0, 8),
  num_looked_at=st.integers(0, 8),
  workers=st.integers(0, 4),
)
def test_compiles_begun_ahead_are_limited_by_workers_and_all_dropped(
  num_configs: int, num_looked_at: int, workers: int
) -> None:
  target = _Recorded(
    name="step", cluster=H100, scheduled=_no_schedule, workers=workers
  )
  configs = [_numbered(number).config for number in range(num_configs)]
  seen = []
  in_turn = evaluation.Turns(target=target).ahead(configs)
  for config in in_turn:
    seen.append(config)
    # One more waits for the first free worker.
    begun_at_most = min(len(seen) + workers, num_configs)
    assert target.ahead == configs[:begun_at_most]
    if len(seen) == num_looked_at:
      break
  in_turn.close()  # type: ignore[attr-defined]
  assert seen == configs[: len(seen)]
  assert sorted(map(repr, target.dropped)) == sorted(map(repr, target.ahead))


def test_all_arms_are_begun_before_the_first_is_compiled():
  arms = [_numbered(number) for number in range(3)]
  begun: list[config_lib.XlaConfig] = []
  before_first: list[config_lib.XlaConfig] = []

  def schedule(config: config_lib.XlaConfig) -> hlo.Module:
    if config == arms[0].config:
      before_first.extend(begun)
    return hlo_text.exposed_gather(50.0)

  target = _Recorded(
    name="step", cluster=H100, scheduled=schedule, workers=2, ahead=begun
  )
  joint.search(target, arms=arms)
  assert all(arm.config in before_first for arm in arms)


def _found(search: candidates.Search) -> list[object]:
  """All candidates in order, with their outcome."""
  return [
    (c.config, c.reason)
    if isinstance(c, candidates.Refused)
    else (c.config, c.tuned.step_time_us, c.settings, c.num_trials)
    for c in (search.default, *search.others)
  ]


def test_a_search_finds_the_same_with_any_number_of_workers(
  fsdp_step: Callable[..., jax.stages.Lowered],
):
  target = compiles.target(fsdp_step())
  arms = [
    arm_steps.arm("acts", **{DOUBLED: True}),
    arm_steps.arm("idle", xla_gpu_enable_all_gather_combine_by_dim=False),
  ]
  # Later ones start from fused modules, where XLA may break ties differently.
  here = joint.search(target, arms=arms, seconds=1e-9)
  with pool_lib.Pool(2) as pool:
    there = target.with_workers(pool)
    assert there.num_workers == 2
    assert _found(joint.search(there, arms=arms, seconds=1e-9)) == _found(here)
  # The arm without an effect is recognized as the default.
  idle = here.found(arms[1].config)
  assert isinstance(idle, candidates.Candidate)
  assert idle.num_trials == 0
  assert idle.step is here.default.step


def _names(module: hlo.Module) -> list[str]:
  return [i.name for c in module.proto.computations for i in c.instructions]


def test_candidates_from_workers_are_recompiled_with_xlas_own_names(
  fsdp_step: Callable[..., jax.stages.Lowered],
):
  here = compiles.target(fsdp_step())
  first, second = (
    config_lib.XlaConfig(options={DOUBLED: True, _GATHER: threshold})
    for threshold in (2**30, 0)
  )
  by_cap = channel_cap.WithoutPlugin(limit=settings_lib.by_variable)

  def both(
    target: target_lib.Target, without_plugin: channel_cap.WithoutPlugin | None
  ) -> tuple[candidates.Candidate, candidates.Candidate]:
    """A candidate, and its compile from the beginning."""
    found = evaluation.evaluate_or_raise(
      second, target=target, without_plugin=without_plugin
    )
    return found, evaluation.from_the_beginning(
      found, target=target, without_plugin=without_plugin
    )

  names = _names(here.schedule(second))
  with pool_lib.Pool(1) as pool:
    target = here.with_workers(pool)
    target.schedule(first)  # Others may start from this.
    for without_plugin in (None, by_cap):
      found, judged = both(target, without_plugin)
      assert judged.step is not found.step
      assert _names(judged.step.analysis.module) == names
      assert (judged.config, judged.settings) == (found.config, found.settings)
      assert judged.tuned.step_time_us == found.tuned.step_time_us
      if without_plugin is by_cap:
        assert not found.takes_plugin and not judged.takes_plugin
        assert judged.launched_us == judged.tuned.step_time_us
  # Without workers, all compiles start from the beginning.
  found, judged = both(here, by_cap)
  assert judged is found
