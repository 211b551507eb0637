# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Calls of libraries of which only the bytes are costed are named."""

from __future__ import annotations

from collections.abc import Sequence
import json
import pathlib

import jax
import pytest

from commands import run

_STEPS = """\
import jax
import jax.numpy as jnp

def step_args(devices):
  return (jax.ShapeDtypeStruct((64, 64), jnp.float32),)

@jax.jit
def factors(x):
  return jnp.linalg.cholesky(x), jnp.linalg.eigh(x)

@jax.jit
def sorts(x):
  return jax.lax.top_k(x, 4), jnp.sort(x)

@jax.jit
def solves(x):
  return jax.scipy.linalg.solve_triangular(x, x)

@jax.jit
def transforms(x):
  return jnp.abs(jnp.fft.fft2(x))

factors_args = solves_args = transforms_args = sorts_args = step_args
"""


@pytest.fixture
def steps(h100s: Sequence[jax.Device], tmp_path: pathlib.Path) -> str:
  del h100s
  file = tmp_path / "steps.py"
  file.write_text(_STEPS)
  return str(file)


def _said(*arguments: str) -> str:
  outcome = run("inspect", *arguments, "--cluster=1x1xh100")
  assert outcome.status == 0
  return " ".join(outcome.out.split())


def test_factorizations_are_named_with_their_lines(
  steps: str, tmp_path: pathlib.Path
) -> None:
  page = tmp_path / "page.html"
  said = _said(f"{steps}:factors", f"--report={page}")
  assert "Only the bytes of 2 library calls are costed, so that" in said
  assert "cusolver_potrf_ffi (steps.py:9)" in said
  assert "cusolver_syevd_ffi (steps.py:9)" in said
  assert "Only the bytes of 2 library calls are costed" in page.read_text()


def test_a_triangular_solve_is_no_matrix_product(steps: str) -> None:
  said = _said(f"{steps}:solves")
  assert "Only the bytes of 1 library call are costed" in said
  assert "(steps.py:17)" in said


def test_a_fourier_transform_passes_through_memory_more_than_once(
  steps: str,
) -> None:
  said = _said(f"{steps}:transforms")
  assert "Only the bytes of 1 library call are costed" in said
  assert ": fft (steps.py:21)" in said


def test_a_program_can_ask_which_they_are(steps: str) -> None:
  printed = json.loads(_said(f"{steps}:factors", "--format=json"))
  assert set(printed["calls_of_unknown_work"].values()) == {
    "cusolver_potrf_ffi",
    "cusolver_syevd_ffi",
  }


def test_sorts_take_about_what_their_bytes_do(steps: str) -> None:
  assert "library call" not in _said(f"{steps}:sorts")
