# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Commands on a machine with a GPU: `lagom-xla profile` and `tune`, as typed.

`tune` runs twice: for the GPU that is here, by the trace of the example's step,
and for eight of them, which XLA then compiles for with a GPU to time kernels
on.
"""

from __future__ import annotations

from collections.abc import Sequence
import json
import pathlib
import subprocess
import time
from typing import Any

from benchmarks.gpu import live_gpu
from benchmarks.gpu import part as part_lib
from benchmarks.gpu import traced_step

_PART = "commands"
_STEP = "examples/llama/train.py:train_step"
_TIME_BUDGET = "25s"
_MOST_WORDS = 400


def measure(folder: pathlib.Path) -> dict[str, Any]:
  """Runs the commands one after the other."""
  here = live_gpu.cluster_name_elsewhere()
  return typed(folder, model=traced_step.MODEL, here=here)


def typed(folder: pathlib.Path, *, model: str, here: str) -> dict[str, Any]:
  """What the commands print, and how long they take.

  Args:
    folder: with the trace of the step, if there is one.
    model: of the example.
    here: the cluster of this machine's GPU.
  """
  gpu = here.rpartition("x")[2]
  trace = folder / traced_step.TRACE
  figures: dict[str, Any] = {}
  profile = (f"--profile={trace}",) if trace.exists() else ()
  commands: dict[str, Sequence[str]] = {
    "tune for eight": _tune(folder / "eight", model, f"1x8x{gpu}"),
  }
  if profile:
    commands["profile"] = ("profile", str(trace), "--format=json")
  commands["tune here"] = (*_tune(folder / "here", model, here), *profile)
  for name, command in commands.items():
    figures[name] = _run(command)
    part_lib.keep(folder, _PART, figures)
  return figures


def _tune(out: pathlib.Path, model: str, cluster: str) -> Sequence[str]:
  return (
    *("tune", _STEP, f"--arg=model={model}", f"--cluster={cluster}"),
    *(f"--out={out}", "--in-process", f"--time-budget={_TIME_BUDGET}"),
    "--format=json",
  )


def _run(command: Sequence[str]) -> dict[str, Any]:
  """Runs a command; what it printed is told in its main parts."""
  begin_s = time.monotonic()
  try:
    done = live_gpu.run("lagom_xla", *command)
  except subprocess.TimeoutExpired as error:
    reason = f"{error.timeout:.0f} s passed"
    return {"command": " ".join(command), "reason": reason}
  figures = {
    "command": " ".join(command),
    "status": done.returncode,
    "seconds": time.monotonic() - begin_s,
    "said": done.stderr.strip()[-_MOST_WORDS:],
  }
  try:
    return figures | _in_short(json.loads(done.stdout))
  except json.JSONDecodeError:
    return figures


def _in_short(printed: dict[str, Any]) -> dict[str, Any]:
  """The plan and its prediction; of other commands all that they print."""
  if "plan" not in printed:
    return {"printed": printed}
  plan = printed["plan"]
  return {
    "xla": plan["xla"]["options"],
    "prediction": plan["prediction"],
    "num_candidates": len(printed["candidates"]),
    "stopped": printed["stopped"],
    "profile": printed.get("profile"),
  }
