# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Signals and a time budget stop real commands."""

from __future__ import annotations

import os
import pathlib
import re
import signal
import subprocess
import sys
import time

import pytest

import commands
from lagom_xla import errors
from lagom_xla import plan as plan_lib
from lagom_xla.cli import progress
from lagom_xla.cli import stopping

# Slow enough to lower and to search that a signal comes in time.
_STEP = commands.STEPS.replace(
  "    return jnp.sum(jnp.square(jnp.tanh(x @ w[0]) @ w[1]))",
  """\
    for _ in range(8):
      y = jnp.tanh(x @ w[0]) @ w[1]
    return jnp.sum(jnp.square(y))""",
)
assert _STEP != commands.STEPS
# A second on an idle machine; tests share theirs with others.
_MOST_S = 10.0
_LONGEST_S = 300
_CLUSTER = "--cluster=1x8xh100"


@pytest.fixture(scope="module")
def step(h100s, tmp_path_factory) -> str:
  file = tmp_path_factory.mktemp("step") / "step.py"
  file.write_text(_STEP)
  return f"{file}:step"


def _start(
  step: str, plan: pathlib.Path, cache: pathlib.Path, *more: str
) -> subprocess.Popen[str]:
  command = ("tune", step, _CLUSTER, f"--out={plan}", *more)
  return subprocess.Popen(
    [sys.executable, "-m", "lagom_xla", *command],
    env={
      **os.environ,
      "LAGOM_XLA_WORKERS": "2",
      "LAGOM_XLA_CACHE": str(cache),
    },
    stdout=subprocess.DEVNULL,
    stderr=subprocess.PIPE,
    text=True,
  )


def test_ctrl_c_writes_the_best_plan_so_far_and_says_so(step, tmp_path):
  cache, plan = tmp_path / "cache", tmp_path / "plan"
  with _start(step, plan, cache) as process:
    assert process.stderr is not None
    first = next(line for line in process.stderr if " ms" in line)
    assert "XLA's defaults: " in first
    sent_s = time.monotonic()
    process.send_signal(signal.SIGINT)
    said = process.stderr.read()
    status = process.wait(_LONGEST_S)
  assert time.monotonic() - sent_s < _MOST_S
  assert status == 128 + signal.SIGINT
  assert "stopped by Ctrl-C after " in said
  assert plan_lib.load(plan).prediction.default_us > 0
  # The next run resumes from the cache.
  assert os.listdir(cache)


def test_sigterm_before_a_plan_exists_writes_no_plan_and_says_so(
  step, tmp_path
):
  plan = tmp_path / "plan"
  with _start(step, plan, tmp_path / "cache") as process:
    assert process.stderr is not None
    _await_child(process)
    sent_s = time.monotonic()
    process.send_signal(signal.SIGTERM)
    said = process.stderr.read()
    status = process.wait(_LONGEST_S)
  assert time.monotonic() - sent_s < _MOST_S
  assert status == 128 + signal.SIGTERM
  # While JAX is being imported, the line ends there.
  *_, last = said.splitlines()
  assert last.startswith("lagom-xla: stopped by SIGTERM")
  assert not (plan / "plan.json").exists()


@pytest.mark.parametrize(
  ("command", "imported"),
  [("inspect", "absl"), ("tune", "rich"), ("inspect", "jax")],
)
def test_ctrl_c_during_an_import_prints_one_line(
  command, imported, step, tmp_path
):
  # This module shadows the real one and blocks the import.
  file = tmp_path / f"{imported}.py"
  file.write_text("import os, time; os.write(2, b'!\\n'); time.sleep(300)")
  path = f"{tmp_path}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"
  with subprocess.Popen(
    [sys.executable, "-m", "lagom_xla", command, step, _CLUSTER],
    env={**os.environ, "PYTHONPATH": path},
    stdout=subprocess.DEVNULL,
    stderr=subprocess.PIPE,
    text=True,
  ) as process:
    assert process.stderr is not None
    lines = iter(process.stderr)
    assert any("!" in line for line in lines)  # The import has begun.
    process.send_signal(signal.SIGINT)
    *going_on, last = lines
    status = process.wait(_LONGEST_S)
  assert status == 128 + signal.SIGINT
  assert last.startswith("lagom-xla: stopped by Ctrl-C")
  assert all(line.endswith(f"{progress.GOES_ON}\n") for line in going_on)


def test_the_shortest_time_budget_still_predicts_todays_step(step, tmp_path):
  plan, cache = tmp_path / "plan", tmp_path / "cache"
  process = _start(step, plan, cache, "--time-budget=0.5s")
  _, said = process.communicate(timeout=_LONGEST_S)
  assert process.returncode == 0
  assert "stopped by the time budget of 0.5 s after " in said
  assert re.search(r" candidates?, while \w+.*: nothing after that was", said)
  assert plan_lib.load(plan).prediction.default_us > 0


def test_a_time_budget_that_is_not_a_time_is_refused():
  outcome = commands.run("tune", "step.py:step", _CLUSTER, "--time-budget=soon")
  assert outcome.status == 2
  assert "'soon' is not a time such as 120s, 5m or 1h" in outcome.err


def _await_child(process: subprocess.Popen[str]) -> None:
  """Waits until a process has a child, the first worker."""
  folder = pathlib.Path(f"/proc/{process.pid}/task")
  while process.poll() is None:
    if any(task.read_text() for task in folder.glob("*/children")):
      return
    time.sleep(0.01)
  raise AssertionError(f"no worker was started: {process.communicate()}")


def test_a_stop_wrapped_in_an_import_error_is_still_a_stop():
  with pytest.raises(errors.Stopped, match="Ctrl-C"):
    with stopping.raised():
      try:
        signal.raise_signal(signal.SIGINT)
      except errors.Stopped as stop:
        raise ImportError("while initializing the extension") from stop


def test_a_stop_that_an_extension_prints_is_not_shown(capsys):
  def printed(error: BaseException) -> str:
    # As PyErr_Print does.
    sys.excepthook(type(error), error, None)
    return capsys.readouterr().err

  with stopping.raised():
    assert printed(errors.Stopped("Ctrl-C", 130)) == ""
    assert "ValueError: other" in printed(ValueError("other"))
  assert "Ctrl-C" in printed(errors.Stopped("Ctrl-C", 130))


def test_a_stop_that_a_library_swallows_ends_in_one_line(tmp_path):
  # As JAX does while it loads its plugins.
  file = tmp_path / "drops.py"
  file.write_text(
    "import logging, os, signal, time\n"
    "def step(devices):\n"
    "  try:\n"
    "    os.kill(os.getpid(), signal.SIGINT)\n"
    "    time.sleep(9)\n"
    "  except Exception:\n"
    "    logging.exception('The plugin failed')\n"
    "  time.sleep(9)\n"
  )
  outcome = commands.run_process("inspect", f"{file}:step", _CLUSTER, "--quiet")
  assert outcome.err == "lagom-xla: stopped by Ctrl-C.\n"
  assert outcome.status == 128 + signal.SIGINT


@pytest.mark.parametrize("place", ["import", "trace"])
def test_a_target_that_interrupts_itself_stops_with_one_line(
  h100s, place, tmp_path
):
  interrupts = {
    "import": "raise KeyboardInterrupt",
    "trace": "import jax\ndef step(devices):\n"
    "  def interrupt(): raise KeyboardInterrupt\n"
    "  return jax.jit(interrupt), ()",
  }
  file = tmp_path / "interrupts.py"
  file.write_text(interrupts[place])
  outcome = commands.run_process("tune", f"{file}:step", _CLUSTER, "--quiet")
  assert outcome.err == "lagom-xla: stopped by Ctrl-C.\n"
  assert outcome.status == 128 + signal.SIGINT


def test_an_error_not_caused_by_a_stop_is_unchanged():
  with pytest.raises(ImportError, match="no such module"):
    with stopping.raised():
      raise ImportError("no such module")
