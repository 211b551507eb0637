# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Targets that print or fail do not disturb a command's result."""

from __future__ import annotations

import json
import re

import pytest

from commands import CLUSTER
from commands import HLO
from commands import PLAN_FILES
from commands import STEPS
from commands import run
from commands import run_process
from lagom_xla.compile import load

_SPEAKS = """
import atexit, logging, os, subprocess, threading, warnings
print("at import")
logging.getLogger("jax._src.xla_bridge").info("a backend is absent")
logging.getLogger("jax._src.xla_bridge").warning("a backend is broken")
atexit.register(print, "at exit")
os.write(1, b"below Python\\n")
subprocess.run(["echo", "in another process"], check=True)
warnings.warn("of the user")

def report():
  threading.main_thread().join()
  print("after the command")

threading.Thread(target=report).start()

@jax.jit
def noted(*args):
  jax.debug.print("{}", args[1].sum())
  return step(*args)

def prints(devices):
  print("in the function")
  return noted, step_args(devices)
"""
_FAILS = """
import jax, jax.numpy as jnp

def chained(devices):
  try:
    try:
      {}["vocab_size"]
    except KeyError as error:
      raise ValueError("no size\\nof the vocabulary") from error
  except ValueError:
    raise RuntimeError("The config is unusable:\\n  in model.yml\\n  line 3")

def alone(devices):
  try:
    {}["vocab_size"]
  except KeyError:
    raise RuntimeError("no vocabulary") from None

def says_nothing(devices):
  assert False

def ends(devices):
  raise SystemExit("usage: train.py CONFIG")

def goes_on(devices):
  raise ValueError("\\n".join(f"line {n}" for n in range(100)))

def noted(devices):
  error = ValueError("no size")
  error.add_note("in the vocabulary")
  raise error

def several(devices):
  raise ExceptionGroup("hosts", [ValueError("no\\nsize"), TypeError("no name")])

def mismatched(devices):
  def step(x):
    return jax.lax.scan(lambda c, _: (c.astype(jnp.int8), None), x, length=2)
  return jax.jit(step), (jnp.ones(3),)
"""


def test_all_output_of_a_target_goes_to_stderr_even_at_exit(h100s, tmp_path):
  (tmp_path / "steps.py").write_text(STEPS + _SPEAKS)
  outcome = run_process(
    "inspect", "steps.py:prints", CLUSTER, "--format=json", cwd=tmp_path
  )
  assert outcome.status == 0
  assert json.loads(outcome.out)["collectives"]
  lines = outcome.err.splitlines()
  printed = {
    *("at exit", "at import", "below Python", "in another process"),
    *("in the function", "after the command"),
  }
  assert printed < set(lines)
  logged, warning, source, ours = [it for it in lines if it not in printed]
  # JAX's warnings are shown, and its INFO lines are not.
  assert re.fullmatch(r"W\d{4} .*\] a backend is broken", logged)
  # Our warning takes one line; the user's is shown as Python does.
  assert "UserWarning: of the user" in warning and "steps.py" in warning
  assert source.strip().startswith("warnings.warn")
  assert ours.startswith("lagom-xla: 1 jax.debug call was left out: ")


def test_quiet_hides_logged_warnings_but_not_errors(tmp_path, caplog):
  logs = """
import logging
logging.warning("a backend is broken")
logging.error("a GPU is lost")
"""
  (tmp_path / "steps.py").write_text(STEPS + logs)
  target = f"{tmp_path / 'steps.py'}:raises"
  run("inspect", target, CLUSTER, "--quiet")
  assert caplog.messages == ["a GPU is lost"]


@pytest.fixture
def fails(tmp_path, monkeypatch) -> None:
  (tmp_path / "fails.py").write_text(_FAILS)
  monkeypatch.chdir(tmp_path)


def _line_of(words: str) -> int:
  lines = _FAILS.splitlines()
  (number,) = (i for i, line in enumerate(lines, 1) if words in line)
  return number


def _error(target: str, *more: str) -> str:
  outcome = run("inspect", f"fails.py:{target}", CLUSTER, *more)
  assert (outcome.status, outcome.out) == (2, "")
  return outcome.err


@pytest.mark.parametrize(
  ("target", "at", "lines"),
  [
    (
      "chained",
      'raise RuntimeError("The',
      [
        "RuntimeError: The config is unusable:",
        "    in model.yml",
        "    line 3",
        "  from ValueError: no size",
        "    of the vocabulary",
        "  from KeyError: 'vocab_size'",
      ],
    ),
    # `from None` hides the cause.
    ("alone", "from None", ["RuntimeError: no vocabulary"]),
    ("says_nothing", "assert False", ["AssertionError"]),
    (
      "ends",
      "raise SystemExit",
      ["SystemExit: usage: train.py CONFIG"],
    ),
    # Only as many lines as fit a screen.
    (
      "goes_on",
      "range(100)",
      [
        "ValueError: line 0",
        *(f"  line {n}" for n in range(1, 20)),
        "  ... and 80 more lines",
      ],
    ),
    ("noted", "raise error", ["ValueError: no size", "  in the vocabulary"]),
    (
      "several",
      "ExceptionGroup",
      [
        "ExceptionGroup: hosts (2 sub-exceptions)",
        "    with ValueError: no",
        "      size",
        "    with TypeError: no name",
      ],
    ),
  ],
)
def test_a_targets_error_is_reported_with_its_causes_and_notes(
  h100s, fails, target, at, lines
):
  first, *others = lines
  expected = f"fails.py:{target} raised {first} (fails.py:{_line_of(at)})"
  assert _error(target).splitlines() == [f"lagom-xla: {expected}", *others]


def test_all_lines_of_a_jax_error_are_reported(h100s, fails):
  message = _error("mismatched")
  assert f"(fails.py:{_line_of('lax.scan')})" in message
  assert "has type int8[3], so the dtypes do not match" in message
  assert "JAX has removed its internal frames" not in message


def test_debug_prints_the_traceback_before_the_error(h100s, fails):
  plain, debug = _error("chained"), _error("chained", "--debug")
  assert "Traceback" not in plain
  assert debug.startswith("Traceback (most recent call last):\n")
  assert debug.endswith(plain)
  assert '{}["vocab_size"]' in debug
  assert "in load_target" in debug


def test_an_unexpected_exception_is_reported_as_a_bug_in_one_line(
  tmp_path, monkeypatch
):
  def read(*_: object, **__: object) -> None:
    raise KeyError("kernel_strategy")

  monkeypatch.setattr(load, "load", read)
  outcome = run("inspect", "step.hlo", CLUSTER)
  assert (outcome.status, outcome.out) == (70, "")
  assert re.fullmatch(
    r"lagom-xla: KeyError: 'kernel_strategy' \(\S+target_output_test.py:\d+\)\."
    r" This is a bug: .* --debug prints\.\n",
    outcome.err,
  )


def test_brackets_in_a_path_are_printed_unchanged(tmp_path):
  folder = tmp_path / "[b]" / "[red]:smile:[/red]" / ("long" * 30)
  folder.mkdir(parents=True)
  (folder / "step[0].hlo").write_text(HLO)
  out = folder / "plan"
  outcome = run("tune", str(folder / "step[0].hlo"), CLUSTER, f"--out={out}")
  assert outcome.status == 0
  wrote = [line for line in outcome.out.splitlines() if "Wrote" in line]
  assert wrote == [f"Wrote {out / name}" for name in PLAN_FILES]
  assert (out / "plan.json").is_file()
  absent = folder / "absent.hlo"
  assert str(absent) in run("inspect", str(absent), CLUSTER).err
