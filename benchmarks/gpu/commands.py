# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Commands on a machine with a GPU: `lagom-xla profile` and `tune`, as typed.

`tune` runs twice: for eight of the GPU that is here, for which XLA then
compiles with a GPU to time kernels on, and for it alone, by the trace of the
example's step.
"""

from __future__ import annotations

from collections.abc import Sequence
import json
import pathlib
import subprocess
import time
from typing import Any

from benchmarks.gpu import environment
from benchmarks.gpu import part as part_lib
from benchmarks.gpu import traced_step

_MOST_WORDS = 400


def measure(folder: pathlib.Path) -> dict[str, Any]:
  """What the commands print, one after the other, and how long they take."""
  one, eight = environment.several(1), environment.several(8)
  commands = {"tune for eight": _tune(folder / "eight", eight)}
  trace, profile = folder / traced_step.TRACE, ()
  if trace.exists():
    commands["profile"] = ("profile", str(trace), "--format=json")
    profile = (f"--profile={trace}",)
  commands["tune here"] = (*_tune(folder / "here", one), *profile)
  figures: dict[str, Any] = {}
  for name, command in commands.items():
    figures[name] = {"command": " ".join(command), **_run(command)}
    part_lib.keep(folder, "commands", figures)
  return figures


def _tune(out: pathlib.Path, cluster: str) -> Sequence[str]:
  return (
    *("tune", "examples/llama/train.py:train_step", f"--cluster={cluster}"),
    *(f"--arg=model={traced_step.MODEL}", f"--out={out}", "--in-process"),
    *("--time-budget=25s", "--format=json"),
  )


def _run(command: Sequence[str]) -> dict[str, Any]:
  """Runs a command; of a plan the options and the prediction are told."""
  begin_s = time.monotonic()
  try:
    done = environment.run("lagom_xla", *command)
  except subprocess.TimeoutExpired as error:
    return {"reason": f"{error.timeout:.0f} s passed"}
  figures = {
    "status": done.returncode,
    "seconds": time.monotonic() - begin_s,
    "said": done.stderr.strip()[-_MOST_WORDS:],
  }
  try:
    printed = json.loads(done.stdout)
  except json.JSONDecodeError:
    return figures
  if "plan" not in printed:
    return figures | {"printed": printed}
  plan = printed["plan"]
  return figures | {
    "xla": plan["xla"]["options"],
    "prediction": plan["prediction"],
    "num_candidates": len(printed["candidates"]),
    "stopped": printed["stopped"],
    "profile": printed.get("profile"),
  }
