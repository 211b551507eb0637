# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Runs commands of `lagom-xla` in this process or in their own.

Most tests call the console script's function in this process, which saves the
two seconds to start Python with JAX.
"""

from __future__ import annotations

from collections.abc import Mapping
import contextlib
import dataclasses
import io
import json
import os
import pathlib
import shlex
import subprocess
import sys
from typing import Any
from unittest import mock

import jsonschema
import pytest

from lagom_xla.cli import main
from lagom_xla.cli import progress
from lagom_xla.cli.commands import installation

ROOT = pathlib.Path(__file__).parents[2]
TARGET = str(ROOT / "examples/llama/train.py") + ":train_step"
CLUSTER = "--cluster=1x8xh100"
MODEL = "--arg=model=tiny"
# Files of `tune`, in the order in which it lists them.
_PLAN = "plan.json env.sh nccl_table.bin report.json.gz explain.json.gz"
PLAN_FILES = tuple(_PLAN.split())

# A process that takes longer than this hangs, even on a busy machine.
_TIMEOUT_S = 120

# One kernel and no collective, which is fast to read.
HLO = """\
HloModule step, is_scheduled=true

ENTRY main {
  p = f32[1024]{0} parameter(0)
  ROOT x = f32[1024]{0} negate(p)
}
"""

STEPS = """\
import jax
import jax.numpy as jnp
from jax.sharding import Mesh, NamedSharding, PartitionSpec
import numpy as np

@jax.jit
def step(w, x):
  def loss(w):
    return jnp.sum(jnp.square(jnp.tanh(x @ w[0]) @ w[1]))
  return jax.tree.map(lambda w, g: w - g, w, jax.grad(loss)(w))

def step_args(devices, size="4096"):
  rows = NamedSharding(Mesh(np.array(devices), ("x",)), PartitionSpec("x"))
  w = jax.ShapeDtypeStruct((int(size), int(size)), jnp.float32, sharding=rows)
  return (w, w), w

def not_jitted(w, x):
  return w @ x

def raises(devices):
  raise RuntimeError("no data")
"""

RAISES_AT = len(STEPS.splitlines())


def write_hlo(folder: pathlib.Path) -> str:
  """Writes the kernel into a folder; returns the file's name."""
  (folder / "step.hlo").write_text(HLO)
  return str(folder / "step.hlo")


def write_steps(folder: pathlib.Path) -> str:
  """Writes the steps into a folder; returns the name of one that compiles."""
  (folder / "steps.py").write_text(STEPS)
  return f"{folder / 'steps.py'}:step"


@dataclasses.dataclass(frozen=True)
class Outcome:
  """The result of a command.

  Progress lines of stderr, of which a busy machine has more, are separate.
  """

  status: int
  out: str
  err: str
  going_on: tuple[str, ...] = dataclasses.field(default=(), compare=False)


def _outcome(status: int, out: str, err: str) -> Outcome:
  lines = err.splitlines(keepends=True)
  ends = f"{progress.GOES_ON}\n"
  going_on = tuple(line for line in lines if line.endswith(ends))
  err = "".join(line for line in lines if line not in going_on)
  return Outcome(status, out, err, going_on)


class Terminal(io.StringIO):
  """A stream that claims to be a terminal."""

  def isatty(self) -> bool:
    return True


def run(*arguments: str, on_terminal: bool = False) -> Outcome:
  """Runs `lagom-xla ARGUMENTS` here, as in a pipe or on a terminal."""
  stream = Terminal if on_terminal else io.StringIO
  out, err = stream(), stream()
  with (
    mock.patch.object(sys, "argv", ["lagom-xla", *arguments]),
    contextlib.redirect_stdout(out),
    contextlib.redirect_stderr(err),
    pytest.raises(SystemExit) as ended,
  ):
    main.run()
  return _outcome(int(ended.value.code or 0), out.getvalue(), err.getvalue())


def run_process(
  *arguments: str,
  cwd: pathlib.Path | None = None,
  env: Mapping[str, str] | None = None,
) -> Outcome:
  """Runs `lagom-xla ARGUMENTS` without variables that it should set itself."""
  unset = ("JAX_", "XLA_", "TF_CPP_")
  here = {k: v for k, v in os.environ.items() if not k.startswith(unset)}
  done = subprocess.run(
    [sys.executable, "-m", "lagom_xla", *arguments],
    cwd=cwd,
    env={**here, **(env or {})},
    capture_output=True,
    text=True,
    check=False,
    timeout=_TIMEOUT_S,
  )
  return _outcome(done.returncode, done.stdout, done.stderr)


def bash(folder: pathlib.Path, command: str) -> str:
  """Output of a line of bash in a folder, stdout and stderr.

  It uses $LAGOM instead of lagom-xla. Progress lines are removed.
  """
  lagom = f"{shlex.quote(sys.executable)} -m lagom_xla"
  done = subprocess.run(
    ["bash", "-c", command.replace("$LAGOM", lagom)],
    cwd=folder,
    stdout=subprocess.PIPE,
    stderr=subprocess.STDOUT,
    text=True,
    check=False,
    timeout=_TIMEOUT_S,
  )
  return _outcome(done.returncode, "", done.stdout).err


def assert_refused(outcome: Outcome, *words: str) -> None:
  """Checks for one line with these words, and status 2."""
  assert (outcome.status, outcome.out) == (2, "")
  assert outcome.err.startswith("lagom-xla: ")
  assert outcome.err.count("\n") == 1
  assert all(said in outcome.err for said in words), outcome.err


def printed(command: str, *arguments: str) -> Any:
  """The JSON that a command prints, after a check of its schema."""
  found = json.loads(run(command, *arguments, "--format=json").out)
  check_schema(command, found)
  return found


def check_schema(command: str, printed: object) -> None:
  """Fails if a command's JSON does not follow the command's schema."""
  schema = installation.schema_of(command)
  jsonschema.Draft202012Validator(schema).validate(printed)
