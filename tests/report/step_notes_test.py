# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""What only a run decides is named: branches, and how often loops go on."""

from __future__ import annotations

from collections.abc import Sequence
import pathlib

import jax
import pytest

from commands import run

_STEPS = """\
import jax
import jax.numpy as jnp

def step_args(devices):
  return (
    jax.ShapeDtypeStruct((512, 512), jnp.float32),
    jax.ShapeDtypeStruct((), jnp.int32),
  )

@jax.jit
def chooses(x, n):
  return jax.lax.cond(n > 3, lambda x: x @ x @ x, lambda x: x @ x, x)

@jax.jit
def goes_on(x, n):
  return jax.lax.fori_loop(0, n, lambda _, x: x @ x, x)

@jax.jit
def repeats(x, n):
  return jax.lax.fori_loop(0, 4, lambda _, x: x @ x, x) * n

chooses_args = goes_on_args = repeats_args = step_args
"""


@pytest.mark.parametrize(
  ("step", "note"),
  [
    ("chooses", "take their slowest branch each time, and totals count all"),
    ("goes_on", "Counted once, as their trip counts are not known: while"),
    ("repeats", ""),
  ],
)
def test_what_is_known_only_at_run_time_is_named_with_its_line(
  h100s: Sequence[jax.Device], tmp_path: pathlib.Path, step: str, note: str
) -> None:
  del h100s  # Only says whether there is anything to compile with.
  file = tmp_path / "steps.py"
  file.write_text(_STEPS)
  outcome = run("inspect", f"{file}:{step}", "--cluster=1x1xh100")
  assert outcome.status == 0
  said = " ".join(outcome.out.split())
  assert note in said
  line = {"chooses": 12, "goes_on": 16}.get(step)
  assert ("Note: " in said) == bool(note)
  assert line is None or f"(steps.py:{line})." in said
