# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Notes on flags that jaxlib does not have hold for the one that is here."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import pytest

from jaxlib_options import UNROLLING
from lagom_xla import plan as plan_lib
from lagom_xla.flags import check
from lagom_xla.flags import debug_options
from lagom_xla.flags import notes
from lagom_xla.flags import options as xla_options
from lagom_xla.flags import probe
from lagom_xla.passes import hlo


@pytest.mark.parametrize("rename", notes.RENAMES, ids=lambda r: r.old)
def test_a_version_has_one_of_an_options_two_names(rename: notes.Rename):
  names = (rename.old, rename.new)
  assert sum(debug_options.find(name) is not None for name in names) == 1
  for value in rename.values:
    assert not isinstance(xla_options.translate(rename.old, value), str)


@pytest.mark.parametrize("name", notes.REMOVED)
def test_a_removed_flag_ends_a_process_and_its_successor_does_not(name: str):
  note = notes.REMOVED[name]
  removed, *instead = probe.ask(
    [f"--{name}=true", *filter(None, note.instead.values())]
  )
  assert removed.unknown
  assert not any(answer.is_fatal for answer in instead)


@pytest.mark.parametrize(
  "conflict", check.CONFLICTS, ids=lambda c: "-".join(c.options)
)
def test_defaults_do_not_contradict_each_other(
  conflict: check.Conflict,
):
  defaults = {o.name: o.default for o in debug_options.options().values()}
  is_here = all(name in defaults for name in conflict.options)
  is_of_other_version = any(
    name in (rename.old, rename.new)
    for name in conflict.options
    for rename in notes.RENAMES
  )
  assert is_here or is_of_other_version
  off_passes = "xla_disable_hlo_passes" in conflict.options
  assert off_passes or not is_here or not conflict.holds(defaults)


_EARLY = "xla_gpu_experimental_collective_start_as_early_as_possible"
_STREAMS = "xla_gpu_experimental_enable_collective_multi_streaming"
_FULL = {UNROLLING: "WHILE_LOOP_UNROLLING_FULL_UNROLL"}


@pytest.mark.parametrize(
  ("others", "void"),
  [
    *(({}, {name: True}) for name in (_EARLY, _STREAMS)),
    ({}, {"xla_gpu_collective_inflation_factor": 2}),
    ({}, {"xla_gpu_enable_nccl_clique_optimization": True}),
    ({}, {"xla_gpu_collective_permute_decomposer_threshold": 0}),
    (_FULL, {"xla_gpu_enable_while_loop_double_buffering": True}),
  ],
)
def test_what_is_said_to_do_nothing_changes_no_schedule(
  scheduled: Callable[..., hlo.Module],
  fsdp_step: Callable[..., jax.stages.Lowered],
  others: dict[str, Any],
  void: dict[str, Any],
):
  without = scheduled(fsdp_step(), **others)
  with_it = scheduled(fsdp_step(), **others, **void)
  assert plan_lib.fingerprint(with_it) == plan_lib.fingerprint(without)
