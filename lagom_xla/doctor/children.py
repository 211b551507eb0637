# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Child processes in which trials are run, side by side and not for ever."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
import concurrent.futures
import json
import os
import signal
import subprocess
import sys

from lagom_xla.doctor import trials

_MODULE = "lagom_xla.doctor.trials"
# Text of a child that ended, for the reason it gives last.
_MOST_CHARACTERS = 200


def run(
  groups: Iterable[Sequence[str]], *, limit_s: float
) -> dict[str, trials.Answer]:
  """Runs groups of trials, each in a process, all at the same time.

  Args:
    groups: names of trials that share a process.
    limit_s: what each process may take.

  Returns:
    By name, what came of a trial; a failure where it ended its process.
  """
  groups = [tuple(group) for group in groups]
  with concurrent.futures.ThreadPoolExecutor(len(groups)) as threads:
    answers = threads.map(lambda group: _run(group, limit_s), groups)
    return {name: answer for one in answers for name, answer in one.items()}


def _run(names: Sequence[str], limit_s: float) -> dict[str, trials.Answer]:
  child = subprocess.Popen(
    [sys.executable, "-m", _MODULE, *names],
    # A GPU's memory stays with whoever trains on it.
    env={**os.environ, "XLA_PYTHON_CLIENT_PREALLOCATE": "false"},
    stdout=subprocess.PIPE,
    stderr=subprocess.PIPE,
    text=True,
    start_new_session=True,
  )
  ran_out = False
  try:
    printed, said = child.communicate(timeout=limit_s)
    reason = _reason(child.returncode, said)
  except subprocess.TimeoutExpired:
    # The compiler that it started goes with it.
    os.killpg(child.pid, signal.SIGKILL)
    printed, _ = child.communicate()
    ran_out = True
    reason = (
      f"it took longer than {limit_s:g} s and was ended: try again when this"
      " machine is less busy"
    )
  lines = [line for line in printed.splitlines() if line.startswith("{")]
  printed_answers = (trials.Answer(**json.loads(line)) for line in lines)
  answers = {answer.name: answer for answer in printed_answers}
  for name in names:
    if name not in answers:
      answers[name] = trials.Answer(name, "fails", reason, was_cut_off=ran_out)
      reason = "it was not tried, as what was tried before ended its process"
  return answers


def _reason(status: int, said: str) -> str:
  """Why a process ended before its trials did."""
  *_, last = said.strip().splitlines() or [""]
  how = f"with status {status}"
  if status < 0:
    how = f"by {signal.Signals(-status).name}"
  return f"its process was ended {how}: {last[:_MOST_CHARACTERS]}"
