# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Nothing is compiled twice: jobs share fusions, and compiles are cached."""

from __future__ import annotations

from concurrent import futures
import dataclasses
import os
import pathlib
import tempfile

import hypothesis
from hypothesis import strategies
import pytest

from lagom_xla import cluster as cluster_lib
from lagom_xla.compile import cache as cache_lib
from lagom_xla.compile import job as job_lib
from lagom_xla.compile import pool
from lagom_xla.jax_internals import request as request_lib
from lagom_xla.passes import registry


def _job(limit: int, *, must_begin: bool = False) -> job_lib.Job:
  request = request_lib.Request(
    program=request_lib.Program(bytecode=b"program", content_digest="program"),
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
  return pool.Fusions(cache_lib.Cache(tmp_path))


def _future() -> pool.Future:
  return futures.Future()


def _lead(fusions: pool.Fusions, fused: bytes | None) -> None:
  led = _future()
  leader = fusions.assigned(_job(1), led)
  result = job_lib.Result(module=b"schedule", fused=fused)
  fusions.keep(leader, result)
  led.set_result(result)


def test_the_first_job_leads_and_others_wait_or_lead_if_it_is_canceled(fusions):
  led = _future()
  assert fusions.awaited(_job(1)) is None
  assert fusions.assigned(_job(1), led).leads
  assert fusions.awaited(_job(2)) is led
  default = _job(3, must_begin=True)
  assert fusions.awaited(default) is None
  assert fusions.assigned(default, _future()) == default
  led.cancel()
  assert fusions.awaited(_job(2)) is None
  assert fusions.assigned(_job(2), _future()).leads


def test_later_jobs_start_from_the_fused_module_of_the_first(fusions):
  _lead(fusions, b"fused")
  for limit in (2, 3):
    assert fusions.awaited(_job(limit)) is None
    follower = fusions.assigned(_job(limit), _future())
    assert (follower.leads, follower.fused) == (False, b"fused")
  default = _job(4, must_begin=True)
  assert fusions.assigned(default, _future()) == default


@pytest.mark.parametrize("fused", [b"fused", None])
@pytest.mark.parametrize("is_used", [True, False])
def test_later_processes_reuse_a_used_fused_module_or_know_it_is_missing(
  fusions, tmp_path, fused, is_used
):
  _lead(fusions, fused)
  if is_used:
    fusions.assigned(_job(2), _future())
  later = pool.Fusions(cache_lib.Cache(tmp_path))
  follower = later.assigned(_job(3), _future())
  is_known = is_used or fused is None
  assert follower.leads != is_known
  assert follower.fused == (fused if is_known else None)


def test_compiles_with_and_without_code_share_only_their_schedule():
  """The digests up to the schedule are equal."""
  end = dataclasses.replace(_job(1), stage=None)
  proof = dataclasses.replace(end, needs_code=True)
  assert proof.digest != end.digest
  assert proof.to_schedule.digest == end.to_schedule.digest == _job(1).digest


_DIGEST = "0" * 64


@hypothesis.given(
  strategies.none() | strategies.binary(),
  strategies.none() | strategies.integers(0, 2**48),
)
def test_a_stored_result_is_found_again_only_under_its_digest(
  module, peak_bytes
):
  result = job_lib.Result(module=module, peak_bytes=peak_bytes)
  with tempfile.TemporaryDirectory() as folder:
    cache_lib.Cache(pathlib.Path(folder)).put(_DIGEST, result)
    found = cache_lib.Cache(pathlib.Path(folder))
    assert found.get(_DIGEST) == result
    assert found.get("1" * 64) is None


@hypothesis.given(strategies.data())
def test_a_damaged_file_is_ignored(data):
  with tempfile.TemporaryDirectory() as folder:
    cache = cache_lib.Cache(pathlib.Path(folder))
    cache.put(_DIGEST, job_lib.Result(module=b"module" * 9, peak_bytes=1))
    (path,) = pathlib.Path(folder).iterdir()
    whole = path.read_bytes()
    at = data.draw(strategies.integers(0, len(whole) - 1))
    flipped = bytes([whole[at] ^ data.draw(strategies.integers(1, 255))])
    for damaged in (whole[:at], whole[:at] + flipped + whole[at + 1 :]):
      path.write_bytes(damaged)
      assert cache.get(_DIGEST) is None


def test_the_least_recently_used_results_are_deleted_beyond_a_size_limit(
  tmp_path,
):
  """A user's own files stay, however old they are."""
  result = job_lib.Result(module=os.urandom(1000))
  cache_lib.Cache(tmp_path).put("first", result)
  (path,) = tmp_path.iterdir()
  max_bytes = 2 * path.stat().st_size
  own = tmp_path / "thesis.tex"
  own.touch()
  os.utime(own, (0, 0))
  cache = cache_lib.Cache(tmp_path, max_bytes=max_bytes)
  cache.put("second", result)
  for age_s, name in ((2000, "first"), (1000, "second")):
    path = tmp_path / f"{name}.compiled"
    long_ago_s = path.stat().st_mtime - age_s
    os.utime(path, (long_ago_s, long_ago_s))
  assert cache.get("first") == result  # Now used later than "second".
  cache.put("third", result)
  assert cache.get("second") is None
  assert cache.get("first") == cache.get("third") == result
  assert sum(p.stat().st_size for p in tmp_path.iterdir()) <= max_bytes
  assert own.exists()


def test_an_unwritable_cache_folder_is_not_an_error(tmp_path):
  (tmp_path / "file").touch()
  cache = cache_lib.Cache(tmp_path / "file" / "folder")
  cache.put(_DIGEST, job_lib.Result(module=b"module"))
  assert cache.get(_DIGEST) is None


@pytest.mark.parametrize(
  ("variables", "folder"),
  [
    ({"XDG_CACHE_HOME": "/xdg"}, "/xdg/lagom_xla/compiles"),
    ({"XDG_CACHE_HOME": "relative"}, "/me/.cache/lagom_xla/compiles"),
    ({}, "/me/.cache/lagom_xla/compiles"),
    ({"XDG_CACHE_HOME": "/xdg", "LAGOM_XLA_CACHE": "/mine"}, "/mine"),
    ({"LAGOM_XLA_CACHE": "mine"}, str(pathlib.Path("mine").absolute())),
    ({"XDG_CACHE_HOME": "/xdg", "LAGOM_XLA_CACHE": "off"}, None),
  ],
)
def test_the_cache_folder_follows_lagom_xla_cache_and_xdg_cache_home(
  variables, folder, monkeypatch
):
  for name in ("XDG_CACHE_HOME", "LAGOM_XLA_CACHE"):
    monkeypatch.delenv(name, raising=False)
  for name, value in {"HOME": "/me", **variables}.items():
    monkeypatch.setenv(name, value)
  found = cache_lib.folder_of_user()
  assert found == (None if folder is None else pathlib.Path(folder))
