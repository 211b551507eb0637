# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""What is begun ahead changes how long a search takes, and nothing it finds."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
import contextlib
import dataclasses

from hypothesis import given
from hypothesis import strategies as st
import jax
import pytest

import fake_target
import hlo_text
from lagom_xla import cluster as cluster_lib
from lagom_xla.compile import config as config_lib
from lagom_xla.compile import pool
from lagom_xla.compile import target as target_lib
from lagom_xla.passes import hlo
from lagom_xla.search.xla import arms as arms_lib
from lagom_xla.search.xla import candidates
from lagom_xla.search.xla import evaluation
from lagom_xla.search.xla import joint

_H100S = cluster_lib.parse("1x8xh100")
_DOUBLED = "xla_gpu_enable_while_loop_double_buffering"
_BY_DIM = "xla_gpu_enable_all_gather_combine_by_dim"


def _config(number: int | str) -> config_lib.XlaConfig:
  return config_lib.XlaConfig(options={"number": number})


def _no_schedule(_: config_lib.XlaConfig) -> hlo.Module:
  raise AssertionError("Turns compile nothing themselves.")


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Recorded(fake_target.FakeTarget):
  """A target that writes down which configs are begun, and let go of."""

  workers: int
  numbers_begun: list[int] = dataclasses.field(default_factory=list)
  dropped: list[int] = dataclasses.field(default_factory=list)

  @property
  def num_workers(self) -> int:
    return self.workers

  @contextlib.contextmanager
  def started(self, configs: Iterable[config_lib.XlaConfig]) -> Iterator[None]:
    numbers = [int(config.options["number"]) for config in configs]
    self.numbers_begun.extend(numbers)
    try:
      yield
    finally:
      self.dropped.extend(numbers)


@given(
  num_configs=st.integers(0, 8),
  num_looked_at=st.integers(0, 8),
  workers=st.integers(0, 4),
)
def test_no_more_is_begun_than_workers_can_do_and_all_of_it_is_let_go(
  num_configs: int, num_looked_at: int, workers: int
) -> None:
  target = _Recorded(
    name="step", cluster=_H100S, scheduled=_no_schedule, workers=workers
  )
  configs = [_config(number) for number in range(num_configs)]
  seen = []
  in_turn = evaluation.Turns(target=target).ahead(configs)
  for config in in_turn:
    seen.append(config)
    # One more waits for the worker that is done first.
    begun_at_most = min(len(seen) + workers, num_configs)
    assert target.numbers_begun == list(range(begun_at_most))
    if len(seen) == num_looked_at:
      break
  in_turn.close()  # type: ignore[attr-defined]
  assert seen == configs[: len(seen)]
  assert sorted(target.dropped) == sorted(target.numbers_begun)


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Ordered(fake_target.FakeTarget):
  """A target with two workers that writes down what it is asked for, when."""

  ordered: list[config_lib.XlaConfig] = dataclasses.field(default_factory=list)
  begun_before: dict[str, list[config_lib.XlaConfig]] = dataclasses.field(
    default_factory=dict
  )

  @property
  def num_workers(self) -> int:
    return 2

  @contextlib.contextmanager
  def started(self, configs: Iterable[config_lib.XlaConfig]) -> Iterator[None]:
    self.ordered.extend(configs)
    yield

  def schedule(
    self, config: config_lib.XlaConfig = config_lib.DEFAULT
  ) -> hlo.Module:
    self.begun_before.setdefault(repr(config), list(self.ordered))
    return super().schedule(config)


def test_arms_are_begun_together() -> None:
  target = _Ordered(
    name="step",
    cluster=_H100S,
    scheduled=lambda _: hlo_text.exposed_gather(50.0),
  )
  arms = [
    arms_lib.Arm(name=str(n), config=_config(n))
    for n in ("one", "two", "three")
  ]
  joint.search(target, arms=arms)
  begun = target.begun_before[repr(arms[0].config)]
  assert all(arm.config in begun for arm in arms)


def _found(search: candidates.Search) -> list[object]:
  """All that was tried, in order, with what came of it."""
  return [
    (c.config, c.reason)
    if isinstance(c, candidates.Refused)
    else (c.config, c.tuned.step_time_us, c.settings, c.num_trials)
    for c in (search.default, *search.others)
  ]


def test_a_search_finds_the_same_with_any_number_of_workers(
  h100s: object, fsdp_step: Callable[..., jax.stages.Lowered]
) -> None:
  target = target_lib.of_step(fsdp_step(), _H100S, name="step")
  arms = [
    arms_lib.Arm(name=name, config=config_lib.XlaConfig(options={name: value}))
    for name, value in ((_DOUBLED, True), (_BY_DIM, False))
  ]
  found = []
  for num_workers in (0, 2):
    with contextlib.ExitStack() as stack:
      used: target_lib.Target = target
      if num_workers:
        used = used.with_workers(stack.enter_context(pool.Pool(num_workers)))
      assert used.num_workers == num_workers
      # Later ones go on from fused modules, in which XLA may break ties
      # otherwise.
      found.append(joint.search(used, arms=arms, seconds=1e-9))
  assert _found(found[0]) == _found(found[1])
  # The recipe that does nothing here is known for what it is.
  idle = found[0].found(arms[1].config)
  assert isinstance(idle, candidates.Candidate)
  assert idle.num_trials == 0
  assert idle.step is found[0].default.step


@pytest.mark.parametrize(
  ("kernels_us", "is_searched"), [(40, True), (60, False)]
)
def test_nccl_settings_are_searched_only_for_what_they_may_make_the_best(
  kernels_us: float, is_searched: bool
) -> None:
  def schedule(config: config_lib.XlaConfig) -> hlo.Module:
    return hlo_text.exposed_gather(
      kernels_us if "arm" in config.options else 50.0
    )

  target = fake_target.FakeTarget(
    name="step", cluster=_H100S, scheduled=schedule
  )
  config = config_lib.XlaConfig(options={"arm": 1})
  arm = arms_lib.Arm(name="arm", config=config)
  found = joint.search(target, arms=[arm]).found(config)
  assert isinstance(found, candidates.Candidate)
  assert (found.num_trials > 0) == is_searched
  if not is_searched:
    assert found.tuned == found.under_nccl_defaults
