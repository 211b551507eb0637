# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Plans that are kept are found again whole or not at all."""

from __future__ import annotations

from concurrent import futures
import dataclasses
import json
import os
import pathlib
import tempfile
from typing import Any

from flax import nnx
import hypothesis
from hypothesis import strategies
import jax
import jax.numpy as jnp
import pytest

from lagom_xla.live import plan_cache

_KEY = "0" * 64
_MACHINE = "one H200"
_ADOPTED = plan_cache.Entry(
  date=plan_cache.now(),
  adopted='{"is_proven": true}',
  name="2 XLA options",
  verdict="0.9 of the time",
)
_REJECTED = dataclasses.replace(_ADOPTED, adopted=None, name="")


@pytest.fixture
def said() -> list[str]:
  return []


@pytest.fixture
def cache(tmp_path, said) -> plan_cache.PlanCache:
  return plan_cache.PlanCache(tmp_path, _KEY, warn=said.append)


def lowered(scale: float = 2.0, size: int = 8, **options: Any) -> Any:
  jitted = jax.jit(lambda x: x * scale, **options)
  return jitted.lower(jnp.zeros(size))


@hypothesis.given(
  strategies.none() | strategies.text(),
  strategies.text(),
  strategies.text(),
)
def test_what_is_put_is_found_by_another_process(adopted, name, verdict):
  entry = dataclasses.replace(
    _ADOPTED, adopted=adopted, name=name, verdict=verdict
  )
  with tempfile.TemporaryDirectory() as folder:
    said: list[str] = []
    path = pathlib.Path(folder) / "plans"
    plan_cache.PlanCache(path, _KEY, warn=said.append).put(entry)
    found, other = (
      plan_cache.PlanCache(path, key, warn=said.append).get()
      for key in (_KEY, "1" * 64)
    )
    assert (found, other, said) == (entry, None, [])


@hypothesis.given(strategies.data())
def test_a_damaged_entry_is_as_none(data):
  with tempfile.TemporaryDirectory() as folder:
    said: list[str] = []
    cache = plan_cache.PlanCache(pathlib.Path(folder), _KEY, warn=said.append)
    cache.put(_REJECTED)
    (path,) = pathlib.Path(folder).iterdir()
    whole = path.read_bytes()
    at = data.draw(strategies.integers(0, len(whole) - 2))
    flipped = bytes([whole[at] ^ data.draw(strategies.integers(1, 255))])
    for damaged in (whole[:at], whole[:at] + flipped + whole[at + 1 :]):
      path.write_bytes(damaged)
      # What is blank to JSON may be flipped to another blank.
      assert cache.get() in (None, _REJECTED)
    path.write_bytes(whole[:at])
    assert cache.get() is None
    assert len(said) == 1


@pytest.mark.parametrize(
  ("changed", "words"),
  [
    (lambda raw: [], "no format"),
    (lambda raw: {}, "no format"),
    (lambda raw: {**raw, "format": 1}, "format is 1"),
    (lambda raw: {**raw, "key": "1" * 64}, "renamed"),
    (
      lambda raw: {**raw, "entry": {**raw["entry"], "name": "other"}},
      "changed",
    ),
    (lambda raw: {**raw, "checksum": None}, "changed"),
  ],
)
def test_a_foreign_entry_is_as_none_with_one_message(
  changed, words, cache, said, tmp_path
):
  cache.put(_ADOPTED)
  (path,) = tmp_path.iterdir()
  path.write_text(json.dumps(changed(json.loads(path.read_text()))))
  assert cache.get() is None
  assert cache.get() is None
  (message,) = said
  assert str(path) in message
  assert words in message
  cache.put(_ADOPTED)
  assert cache.get() == _ADOPTED


def test_plans_of_no_use_for_longest_go_when_there_are_too_many(tmp_path, said):
  plan_cache.PlanCache(tmp_path, "first").put(_ADOPTED)
  (path,) = tmp_path.iterdir()
  max_bytes = 2 * path.stat().st_size + 3
  first, second, third = caches = [
    plan_cache.PlanCache(tmp_path, key, max_bytes=max_bytes, warn=said.append)
    for key in ("first", "second", "third")
  ]
  second.put(_ADOPTED)
  for age_s, name in ((2000, "first"), (1000, "second")):
    path = tmp_path / f"{name}.plan.json"
    long_ago_s = path.stat().st_mtime - age_s
    os.utime(path, (long_ago_s, long_ago_s))
  assert first.get() == _ADOPTED  # Now it is the newer one.
  notes = tmp_path / "notes.json"
  notes.write_text("a user's")
  os.utime(notes, (0, 0))
  third.put(_ADOPTED)
  assert [cache.get() for cache in caches] == [_ADOPTED, None, _ADOPTED]
  assert notes.exists()
  third.drop()
  third.drop()
  assert third.get() is None
  assert said == []


def test_of_many_writers_one_is_whole(cache, said, tmp_path):
  entries = [dataclasses.replace(_ADOPTED, name=str(n)) for n in range(20)]

  def put_and_get(entry: plan_cache.Entry) -> plan_cache.Entry | None:
    cache.put(entry)
    return cache.get()

  with futures.ThreadPoolExecutor(8) as threads:
    seen = list(threads.map(put_and_get, entries))
  assert all(entry in entries for entry in seen)
  assert len(list(tmp_path.iterdir())) == 1
  assert said == []


def test_equal_steps_have_one_key_and_others_another(monkeypatch):
  keys = [
    plan_cache.key(lowered(), _MACHINE),
    plan_cache.key(lowered(scale=3.0), _MACHINE),
    plan_cache.key(lowered(size=16), _MACHINE),
    plan_cache.key(lowered(donate_argnums=0), _MACHINE),
    plan_cache.key(
      lowered(compiler_options={"xla_cpu_enable_fast_math": True}), _MACHINE
    ),
    plan_cache.key(lowered(), "one H100"),
  ]
  for name, value in (
    ("XLA_FLAGS", "--xla_cpu_enable_fast_math=true"),
    ("NCCL_MAX_CTAS", "8"),
  ):
    with monkeypatch.context() as patched:
      patched.setenv(name, value)
      keys.append(plan_cache.key(lowered(), _MACHINE))
  assert len(set(keys)) == len(keys)
  assert plan_cache.key(lowered(), _MACHINE) == keys[0]


def test_a_step_of_nnx_has_the_key_of_the_function_inside():
  step = nnx.jit(lambda x: x + 1)
  outside: Any = step.lower(jnp.zeros(8))
  inside = plan_cache.key(outside.lowered, _MACHINE)
  assert plan_cache.key(outside, _MACHINE) == inside


def test_a_step_that_calls_back_has_a_key():
  def step(x: jax.Array) -> jax.Array:
    jax.debug.print("{x}", x=x)
    return x

  assert plan_cache.key(jax.jit(step).lower(jnp.zeros(8)), _MACHINE)


@pytest.mark.parametrize("name", ["file/plans", ""])
def test_a_folder_that_does_not_let_it_costs_one_message(
  name, cache, said, tmp_path
):
  if name:
    (tmp_path / "file").touch()
    cache = plan_cache.PlanCache(tmp_path / name, _KEY, warn=said.append)
  else:
    (tmp_path / f"{_KEY}.plan.json").mkdir()
    assert cache.get() is None
  cache.put(_ADOPTED)
  cache.put(_ADOPTED)
  assert cache.get() is None
  (message,) = said
  assert ("cannot be written" if name else "cannot be read") in message


def test_plans_are_kept_where_compiles_are_or_the_user_says(
  monkeypatch, tmp_path
):
  # LAGOM_XLA_CACHE=off; see conftest.py
  assert plan_cache.folder_of(True) is None
  monkeypatch.setenv("LAGOM_XLA_CACHE", str(tmp_path))
  assert plan_cache.folder_of(False) is None
  assert plan_cache.folder_of(tmp_path / "named") == tmp_path / "named"
  folder = plan_cache.folder_of(True)
  assert folder is not None and folder.name == "plans"
  assert tmp_path in folder.parents
  monkeypatch.delenv("LAGOM_XLA_CACHE")
  monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
  monkeypatch.setattr(os.path, "expanduser", lambda path: path)
  assert plan_cache.folder_of(True) is None  # A user without a home.
