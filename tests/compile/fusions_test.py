# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Fusions: one job of those that share one does it, whatever comes of it."""

from __future__ import annotations

from concurrent import futures
import dataclasses
import pathlib

import pytest

from lagom_xla import cluster as cluster_lib
from lagom_xla.compile import cache
from lagom_xla.compile import job as job_lib
from lagom_xla.compile import pool
from lagom_xla.jax_internals import request as request_lib
from lagom_xla.passes import registry


def _job(limit: int, *, must_begin: bool = False) -> job_lib.Job:
  request = request_lib.Request(
    stablehlo=b"program",
    content_digest="program",
    options=b"",
    overrides=(("limit", limit),),
    device_ids=(0,),
  )
  return job_lib.Job(
    name="step",
    cluster=cluster_lib.parse("1x8xh100"),
    request=request,
    stage=registry.Stage.POST_SCHEDULER,
    fusion="shared",
    must_begin=must_begin,
  )


@pytest.fixture
def fusions(tmp_path: pathlib.Path) -> pool.Fusions:
  return pool.Fusions(cache.Cache(tmp_path))


def test_the_first_leads_and_others_wait_for_it(
  fusions: pool.Fusions,
) -> None:
  led: futures.Future[job_lib.Result] = futures.Future()
  assert fusions.awaited(_job(1)) is None
  assert fusions.assigned(_job(1), led).leads
  assert fusions.awaited(_job(2)) is led
  default = _job(3, must_begin=True)
  assert fusions.awaited(default) is None
  assert fusions.assigned(default, futures.Future()) == default


def test_others_go_on_from_what_it_gave(fusions: pool.Fusions) -> None:
  _lead(fusions, b"fused")
  for limit in (2, 3):
    assert fusions.awaited(_job(limit)) is None
    follower = fusions.assigned(_job(limit), futures.Future())
    assert (follower.leads, follower.fused) == (False, b"fused")
  default = _job(4, must_begin=True)
  assert fusions.assigned(default, futures.Future()) == default


def test_what_others_went_on_from_is_known_to_the_next_process(
  fusions: pool.Fusions, tmp_path: pathlib.Path
) -> None:
  _lead(fusions, b"fused")
  fusions.assigned(_job(2), futures.Future())
  _check_next_process(tmp_path, b"fused")


def test_that_there_is_none_is_known_to_the_next_process(
  fusions: pool.Fusions, tmp_path: pathlib.Path
) -> None:
  _lead(fusions, None)
  _check_next_process(tmp_path, None)


def test_what_nobody_went_on_from_is_not_kept(
  fusions: pool.Fusions, tmp_path: pathlib.Path
) -> None:
  _lead(fusions, b"fused")
  later = pool.Fusions(cache.Cache(tmp_path))
  assert later.assigned(_job(2), futures.Future()).leads


def _lead(fusions: pool.Fusions, fused: bytes | None) -> None:
  led: futures.Future[job_lib.Result] = futures.Future()
  leader = fusions.assigned(_job(1), led)
  result = job_lib.Result(module=b"schedule", fused=fused)
  fusions.keep(leader, result)
  led.set_result(result)


def _check_next_process(tmp_path: pathlib.Path, fused: bytes | None) -> None:
  later = pool.Fusions(cache.Cache(tmp_path))
  follower = later.assigned(_job(3), futures.Future())
  assert (follower.leads, follower.fused) == (False, fused)


def test_what_is_compiled_to_the_end_with_code_is_no_other_compile() -> None:
  """But up to its schedule it is the same."""
  end = dataclasses.replace(_job(1), stage=None)
  proof = dataclasses.replace(end, needs_code=True)
  assert proof.digest != end.digest
  assert proof.shown.digest == end.shown.digest == _job(1).digest


def test_where_the_first_ends_without_a_result_the_next_leads(
  fusions: pool.Fusions,
) -> None:
  led: futures.Future[job_lib.Result] = futures.Future()
  fusions.assigned(_job(1), led)
  led.cancel()
  assert fusions.awaited(_job(2)) is None
  assert fusions.assigned(_job(2), futures.Future()).leads
