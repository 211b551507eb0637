# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""A candidate gets XLA's own names, and keeps what was found of it."""

from __future__ import annotations

from collections.abc import Callable

import jax

import compiles
from lagom_xla.compile import config as config_lib
from lagom_xla.compile import pool as pool_lib
from lagom_xla.compile import target as target_lib
from lagom_xla.costs import settings as settings_lib
from lagom_xla.passes import hlo
from lagom_xla.search import nccl
from lagom_xla.search.nccl import channel_cap
from lagom_xla.search.xla import candidates
from lagom_xla.search.xla import evaluation

_SEARCHER = nccl.SEARCHERS[nccl.DEFAULT_SEARCHER]
_FIRST, _SECOND = (
  config_lib.XlaConfig(
    options={
      "xla_gpu_enable_while_loop_double_buffering": True,
      "xla_gpu_all_gather_combine_threshold_bytes": threshold,
    }
  )
  for threshold in (2**30, 0)
)


def test_with_workers_it_is_the_schedule_from_the_beginning(
  fsdp_step: Callable[..., jax.stages.Lowered],
) -> None:
  here = compiles.target(fsdp_step())
  with pool_lib.Pool(1) as pool:
    target = here.with_workers(pool)
    target.schedule(_FIRST)  # Compiles what others may start from.
    found = _evaluated(target)
    judged = evaluation.from_the_beginning(
      found, target=target, searcher=_SEARCHER
    )
  assert _names(judged.step.analysis.module) == _names(here.schedule(_SECOND))
  assert judged.config == found.config
  assert judged.settings == found.settings
  assert judged.tuned.step_time_us == found.tuned.step_time_us


def test_what_goes_capped_takes_no_plugin(
  fsdp_step: Callable[..., jax.stages.Lowered],
) -> None:
  searcher = channel_cap.WithoutPlugin(limit=settings_lib.by_variable)
  with pool_lib.Pool(1) as pool:
    target = compiles.target(fsdp_step()).with_workers(pool)
    target.schedule(_FIRST)  # Compiles what others may start from.
    found = _evaluated(target, searcher)
    judged = evaluation.from_the_beginning(
      found, target=target, searcher=searcher
    )
  assert judged.step is not found.step
  assert not found.takes_plugin
  assert not judged.takes_plugin
  assert judged.launched_us == judged.tuned.step_time_us


def test_without_workers_it_was_from_the_beginning(
  fsdp_step: Callable[..., jax.stages.Lowered],
) -> None:
  here = compiles.target(fsdp_step())
  found = _evaluated(here)
  assert (
    evaluation.from_the_beginning(found, target=here, searcher=_SEARCHER)
    is found
  )


def _evaluated(
  target: target_lib.Target, searcher: nccl.Searcher = _SEARCHER
) -> candidates.Candidate:
  return evaluation.evaluate_or_raise(_SECOND, target=target, searcher=searcher)


def _names(module: hlo.Module) -> list[str]:
  return [i.name for c in module.proto.computations for i in c.instructions]
