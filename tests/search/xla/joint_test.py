# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""XLA options outside, NCCL settings inside, on targets made of HLO text."""

from __future__ import annotations

import pytest

import gather_steps
from gather_steps import APART
from gather_steps import GATHER
from gather_steps import MIB
from gather_steps import ONE_WAVE
import hlo_text
from lagom_xla import errors
from lagom_xla.compile import config as config_lib
from lagom_xla.passes import hlo
from lagom_xla.search import nccl
from lagom_xla.search.xla import candidates
from lagom_xla.search.xla import evaluation
from lagom_xla.search.xla import joint


def test_options_that_shorten_the_step_are_kept():
  found = joint.search(gather_steps.target(gather_steps.combines), arms=())
  assert found.default.config.is_default
  assert found.best.config.options == {GATHER: 128 * MIB}
  assert gather_steps.tuned_us(found.best) < gather_steps.tuned_us(
    found.default
  )


def test_the_default_is_kept_when_nothing_is_better():
  found = joint.search(
    gather_steps.target(
      lambda options: gather_steps.module(*APART, kernels_us=3.0)
    ),
    arms=(),
  )
  assert found.others
  assert found.best is found.default


def test_options_that_xla_refuses_are_recorded():
  def schedule(config: config_lib.XlaConfig) -> hlo.Module:
    if GATHER in config.options:
      raise errors.CompileError("XLA could not compile: no such luck")
    return gather_steps.combines(config)

  found = joint.search(gather_steps.target(schedule), arms=())
  config = config_lib.XlaConfig(options={GATHER: 128 * MIB})
  assert found.found(config) == candidates.Refused(
    config=config, reason="XLA could not compile: no such luck"
  )
  assert found.best is found.default


def test_a_target_that_does_not_compile_at_all_is_an_error():
  def schedule(config: config_lib.XlaConfig) -> hlo.Module:
    raise errors.CompileError("XLA could not compile for 1x8xh100")

  with pytest.raises(errors.CompileError, match="for 1x8xh100"):
    joint.search(gather_steps.target(schedule))


def test_a_scheduled_module_is_searched_for_nccl_settings_only():
  asked = []

  def schedule(config: config_lib.XlaConfig) -> hlo.Module:
    asked.append(config)
    # A kernel that fills an H100 once, beside an all-gather.
    return gather_steps.module([16 * MIB], kernels_us=400.0, size=ONE_WAVE)

  target = gather_steps.target(schedule, is_read_only=True)
  found = joint.search(target)
  assert not found.others
  assert len(asked) == 1
  assert (
    gather_steps.tuned_us(found.default)
    < found.default.under_nccl_defaults.step_time_us
  )


def test_progress_is_told_of_each_candidate():
  told: list[str] = []
  target = gather_steps.target(gather_steps.combines)
  found = joint.search(target, progress=told.append)
  assert 1 + len(found.others) == len(told)


def test_what_is_expected_counts_all_that_a_round_may_try():
  expected: list[float] = []
  tried: list[int] = []

  def expect(num_candidates: float) -> None:
    expected.append(num_candidates)
    tried.append(0)

  def progress(unused_words: str) -> None:
    if tried:
      tried[-1] += 1

  target = gather_steps.target(gather_steps.combines)
  joint.search(target, progress=progress, expect=expect)
  # Of the arms, and of a round at least.
  assert len(expected) >= 2
  assert all(n <= most for n, most in zip(tried, expected, strict=True))
  assert sum(tried) > 1


def test_the_same_target_gives_the_same_search():
  first, second = (
    joint.search(gather_steps.target(gather_steps.combines), arms=())
    for _ in range(2)
  )
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
    target=gather_steps.target(
      lambda _: _with_loop(known if known_before else "")
    ),
    searcher=nccl.SEARCHERS[nccl.DEFAULT_SEARCHER],
  )
  found = evaluation.evaluate(
    config_lib.XlaConfig(options={GATHER: 0}),
    target=gather_steps.target(lambda _: _with_loop("")),
    searcher=nccl.SEARCHERS[nccl.DEFAULT_SEARCHER],
    default=default,
  )
  if known_before:
    assert isinstance(found, candidates.Refused)
    assert "its loop loop runs" in found.reason
  else:
    assert isinstance(found, candidates.Candidate)
