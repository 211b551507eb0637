# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""A part of the measurements: a process of its own, with a time limit.

    python -m benchmarks.gpu.part NAME FOLDER

measures one part here: the module NAME of this folder has `measure(FOLDER)`.
Whatever becomes of that process, a part that hangs or that the driver kills
too, `run` returns a row that says so; and what the part had measured by then,
if it kept it.
"""

from __future__ import annotations

import contextlib
import glob
import importlib
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import time
from typing import Any

ROOT = pathlib.Path(__file__).parents[2]
_LIMIT = "BENCHMARKS_GPU_LIMIT_S"
_MOST_WORDS = 600
_NOT_MEASURED = 3  # Exit status; 1 and 2 are Python's.


class NotMeasuredError(Exception):
  """This machine lacks what the part measures; the message says what."""


def check_is_there() -> None:
  """Checks that there is a GPU, which nobody holds for that.

  Raises:
    NotMeasuredError: there is none.
  """
  if not (glob.glob("/dev/nvidia[0-9]*") or shutil.which("nvidia-smi")):
    raise NotMeasuredError("There is no NVIDIA GPU on this machine.")


def keep(folder: pathlib.Path, part: str, figures: dict[str, Any]) -> None:
  """Keeps what a part has found so far, should it not come to its end."""
  scratch = folder / f".{part}.json"
  scratch.write_text(json.dumps(figures))
  scratch.rename(folder / f"{part}.json")


def own_limit_s() -> float:
  """How long the part that runs in this process may take."""
  return float(os.environ[_LIMIT])


def run(name: str, folder: pathlib.Path, *, limit_s: float) -> dict[str, Any]:
  """Measures a part in a process of its own, and all that it starts.

  Args:
    name: of the part.
    folder: where parts leave files for each other.
    limit_s: after which it is killed.

  Returns:
    The part's name; its status, "measured", "not measured" or "failed", with
    the reason in a sentence; the seconds that it took; and the figures that it
    found, or had kept when it failed.
  """
  begin_s = time.monotonic()
  said = folder / f"{name}.log"
  with said.open("wb") as log:
    process = subprocess.Popen(
      (sys.executable, "-m", __spec__.name, name, str(folder)),
      cwd=ROOT,
      env={**os.environ, _LIMIT: str(limit_s)},
      stdin=subprocess.DEVNULL,
      stdout=log,
      stderr=log,
      start_new_session=True,
    )
  try:
    status: int | None = process.wait(max(limit_s, 0.0))
  except subprocess.TimeoutExpired:
    status = None
  finally:
    # What it started may still be there.
    with contextlib.suppress(ProcessLookupError):
      os.killpg(process.pid, signal.SIGKILL)
    process.wait()
  last = said.read_text(errors="replace").strip().rpartition("\n")[2]
  last = last[-_MOST_WORDS:]
  outcome, reason = {
    0: ("measured", ""),
    None: ("failed", f"It did not end within {limit_s:.0f} s."),
    _NOT_MEASURED: ("not measured", last),
  }.get(
    status, ("failed", f"It ended with status {status}: {last or 'silently'}")
  )
  kept = folder / f"{name}.json"
  return {
    "part": name,
    "status": outcome,
    "reason": reason,
    "seconds": time.monotonic() - begin_s,
    "figures": json.loads(kept.read_text()) if kept.exists() else {},
  }


def main() -> None:
  """Measures one part in this process."""
  name, folder = sys.argv[1], pathlib.Path(sys.argv[2])
  try:
    if name != "environment":  # Which has something to say without one.
      check_is_there()  # Without this, JAX would be imported for nothing.
    module = importlib.import_module(f"{__package__}.{name}")
    keep(folder, name, module.measure(folder))
  except NotMeasuredError as error:
    print(error, file=sys.stderr)
    sys.exit(_NOT_MEASURED)
  except ModuleNotFoundError as error:
    if error.name == f"{__package__}.{name}":
      raise
    print(
      f"Python has no package {error.name} here, which this part needs: bring"
      " what pyproject.toml lists, as wheels where there is no registry.",
      file=sys.stderr,
    )
    sys.exit(_NOT_MEASURED)


if __name__ == "__main__":
  # The class that parts raise, not the one of this script.
  from benchmarks.gpu import part as part_lib

  part_lib.main()
