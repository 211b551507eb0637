# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Notes name the assumptions behind a step's figures, with source lines."""

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

def counted_args(devices):
  return (*step_args(devices), jax.ShapeDtypeStruct((), jnp.int32))

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

@jax.jit
def chooses(x, n):
  return jax.lax.cond(n > 3, lambda x: x @ x @ x, lambda x: x @ x, x)

@jax.jit
def goes_on(x, n):
  return jax.lax.fori_loop(0, n, lambda _, x: x @ x, x)

@jax.jit
def repeats(x, n):
  return jax.lax.fori_loop(0, 4, lambda _, x: x @ x, x) * n

factors_args = solves_args = transforms_args = sorts_args = step_args
chooses_args = goes_on_args = repeats_args = counted_args
"""


@pytest.fixture
def steps(h100s: Sequence[jax.Device], tmp_path: pathlib.Path) -> str:
  del h100s  # Only says whether there is anything to compile with.
  file = tmp_path / "steps.py"
  file.write_text(_STEPS)
  return str(file)


def _output(*arguments: str) -> str:
  outcome = run("inspect", *arguments, "--cluster=1x1xh100")
  assert outcome.status == 0
  return " ".join(outcome.out.split())


def _at(step: str) -> str:
  """The source line of an operation, in the form of reports."""
  before, _, _ = _STEPS.partition(f"def {step}(")
  return f"(steps.py:{before.count(chr(10)) + 2})"


@pytest.mark.parametrize(
  ("step", "num", "called"),
  [
    (
      "factors",
      "2 library calls",
      ["cusolver_potrf_ffi", "cusolver_syevd_ffi"],
    ),
    # Neither is a matrix product, nor passes through memory only once.
    ("solves", "1 library call", [""]),
    ("transforms", "1 library call", [": fft"]),
  ],
)
def test_library_calls_of_unknown_work_are_named_with_their_lines(
  steps: str, tmp_path: pathlib.Path, step: str, num: str, called: list[str]
) -> None:
  page = tmp_path / "page.html"
  said = _output(f"{steps}:{step}", f"--report={page}")
  for text in (said, page.read_text()):
    assert f"only the bytes of {num} " in text
    assert all(f"{name} {_at(step)}" in text for name in called)
  printed = json.loads(_output(f"{steps}:{step}", "--format=json"))
  told = {*printed["calls_of_unknown_work"].values()}
  assert all(name.removeprefix(": ") in told for name in filter(None, called))


@pytest.mark.parametrize(
  ("step", "note"),
  [
    ("chooses", "take its slowest branch, and totals count all"),
    (
      "goes_on",
      "XLA gives no trip count for these loops; they count once: while",
    ),
    ("repeats", ""),
    # A sort takes about the time of its bytes.
    ("sorts", ""),
  ],
)
def test_branches_and_trip_counts_unknown_at_compile_time_are_named(
  steps: str, step: str, note: str
) -> None:
  said = _output(f"{steps}:{step}")
  assert note in said
  assert ("Note: " in said) == bool(note)
  assert not note or f"{_at(step)}." in said


_WITHOUT_CONFIG = """\
HloModule step, is_scheduled=true

ENTRY main {
  p = bf16[512,4,64] parameter(0)
  ROOT x = (bf16[4,512,512], s8[8]) custom-call(p, p),
    custom_call_target="__cublas$gemm"CONFIG
}
"""


@pytest.mark.parametrize("config", ["", ', backend_config={"gemm":{}}'])
def test_hlo_text_without_backend_configs_gets_a_note_on_matmuls(
  tmp_path: pathlib.Path, config: str
) -> None:
  file = tmp_path / "step.hlo"
  file.write_text(_WITHOUT_CONFIG.replace("CONFIG", config))
  said = "and with it matmuls in library calls: the real step may"
  assert (said in _output(str(file))) == (not config)


def test_a_matmul_that_is_known_from_its_shapes_gets_no_note(
  tmp_path: pathlib.Path,
) -> None:
  file = tmp_path / "step.hlo"
  file.write_text("""\
HloModule step, is_scheduled=true

ENTRY main {
  p = f8e4m3fn[1,512,512] parameter(0)
  s = f8e8m0fnu[1,512,16] parameter(1)
  ROOT x = bf16[1,512,512] custom-call(p, p, s, s),
    custom_call_target="__cudnn$blockScaledDot"
}
""")
  assert "lacks" not in _output(str(file))
