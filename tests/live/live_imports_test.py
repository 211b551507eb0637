# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Imports of a run: late ones only for a search, none that affect jit."""

from __future__ import annotations

import os
import subprocess
import sys

_RUN = """
import sys
import jax, jax.numpy as jnp
import lagom_xla
from benchmarks.live import cpu
from lagom_xla.live import loop, tuned

cpu.plug_in()
tuned.LIMITS = loop.Limits(overhead_steps=1e-6)
step = lagom_xla.tune(jax.jit(lambda x: x * 2), cache=True)
x = jnp.ones(3)
while "now: wait" not in step.report():
  x = step(x)
print(*sys.modules)
"""
# Modules with settings that affect tracing make jit lower a step again. A
# search must not import them; importing one here shows the effect.
_LOWERED = """
import sys
import jax, jax.numpy as jnp
import lagom_xla
from benchmarks.live import cpu
from lagom_xla.live import loop, tuned

cpu.plug_in()
tuned.LIMITS = loop.Limits(overhead_steps=1e9)
jitted = jax.jit(lambda x: x * 2)
step = lagom_xla.tune(jitted, cache=False)
x = jnp.ones(3)
before = jitted.lower(x)._lowering
while not any(it in step.report() for it in ("now: wait", "now: watch")):
  x = step(x)
print(jitted.lower(x)._lowering is before)
from jax._src import config
config.bool_state("lagom_new", False, "", include_in_trace_context=True)
for _ in range(100):
  x = step(x)
print(jitted.lower(x)._lowering is before)
print(step.report().count("now: "))
print(*sys.modules)
"""
# Modules that read, cost, search and store, and their dependencies, without
# scipy, which reports use for intervals.
_OF_SEARCHES = {
  "google.protobuf",
  "lagom_xla.cluster",
  "lagom_xla.costs.nccl",
  "benchmarks.live.cpu.proposer",
  "lagom_xla.passes",
  "lagom_xla.plan",
  "lagom_xla.search",
  "lagom_xla.tuner",
  "pydantic",
}


def _said(program: str) -> list[str]:
  """The words that a program prints in its own process."""
  done = subprocess.run(
    (sys.executable, "-c", program),
    capture_output=True,
    text=True,
    env={**os.environ, "JAX_PLATFORMS": "cpu"},
  )
  assert done.returncode == 0, done.stderr
  return done.stdout.split()


def test_a_run_too_short_for_a_search_imports_no_search_modules():
  imported = set(_said(_RUN))
  assert "lagom_xla.live.account" in imported
  assert not imported & _OF_SEARCHES


def test_a_search_never_makes_jit_lower_the_step_again():
  after_search, after_import, num_loops, *imported = _said(_LOWERED)
  assert after_search == "True"
  # If another import does, the step is still recognized.
  assert (after_import, num_loops) == ("False", "1")
  searched = {"google.protobuf", "benchmarks.live.cpu.proposer"}
  assert searched <= _OF_SEARCHES & set(imported)
