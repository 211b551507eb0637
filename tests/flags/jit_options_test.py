# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""compiler_options that JAX or XLA rejects give an error with their line."""

from __future__ import annotations

import pathlib
import re

import pytest

import commands
from lagom_xla import errors
from lagom_xla.tuner import tuner


@pytest.mark.parametrize(
  ("name", "value", "reason", "instead"),
  [
    ("optimization_level", '"fast"', "JAX .* rejects", " (29|'O2')[.]"),
    ("memory_fitting_level", "1.5", "JAX .* rejects", " (29|'O2')[.]"),
    ("xla_gpu_magic", "True", "XLA rejects it: No such", "magic'[.]$"),
    (
      "xla_gpu_autotune_levl",
      "4",
      "No such",
      "Did you mean xla_gpu_autotune_level",
    ),
    ("xla_gpu_autotune_level", "1.5", "'1.5' is not a valid", "whole number"),
    ("xla_gpu_autotune_level", "None", "not accept a NoneType", "whole number"),
    (
      "xla_gpu_enable_while_loop_unrolling",
      '"full_unroll"',
      "not a valid enum",
      "Write .*: 'WHILE_LOOP_UNROLLING_FULL_UNROLL'",
    ),
    (
      "xla_gpu_enable_pipelined_all_gather",
      '"on"',
      "XLA rejects",
      "'xla_gpu_enable_pipelined_all_gather': True[.]"
      "|'xla_gpu_pipeline_all_gather': '.*_ON'[.]",
    ),
  ],
)
def test_refused_options_of_jit_are_reported_with_a_correction(
  tmp_path, name, value, reason, instead
):
  with pytest.raises(errors.TargetError) as error:
    tuner.inspect(_target(tmp_path, name, value), cluster="1x1xh100")
  said = str(error.value)
  assert re.search(reason, said) and re.search(instead, said)
  assert "Traceback" not in said and "train.py:2" in said


def test_an_unhashable_option_of_jit_is_reported_with_its_line(tmp_path):
  target = _target(tmp_path, "xla_gpu_enable_command_buffer", "[1]")
  # In a separate process: JAX frees the function that it could not make, and
  # loses its list of the functions whose caches jax.clear_caches() clears.
  refused = commands.run_process("inspect", target, "--cluster=1x1xh100")
  assert refused.status == 2 and "Traceback" not in refused.err
  assert "unhashable" in refused.err and "train.py:3" in refused.err


def _target(folder: pathlib.Path, name: str, value: str) -> str:
  """A target whose jit has one compiler option, with its value as code."""
  target = folder / "train.py"
  target.write_text(
    "import jax\n"
    f"OPTIONS = {{'{name}': {value}}}\n"
    "STEP = lambda: jax.jit(lambda x: x, compiler_options=OPTIONS)\n"
    "def step(devices):\n"
    "  return STEP(), (jax.ShapeDtypeStruct((8,), 'f4'),)\n"
  )
  return f"{target}:step"
