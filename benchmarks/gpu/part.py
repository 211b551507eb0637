# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""A part of the measurements: a process of its own, with a time limit.

    python -m benchmarks.gpu.part NAME FOLDER

measures one part here. Whatever becomes of that process, a part that hangs or
that the driver kills too, `run` returns a row that says so; and what the part
had measured by then, if it kept it.
"""

from __future__ import annotations

import dataclasses
import importlib
import json
import os
import pathlib
import signal
import subprocess
import sys
import time
from typing import Any, Literal

Status = Literal["measured", "not measured", "failed"]

_ROOT = pathlib.Path(__file__).parents[2]
_LIMIT = "BENCHMARKS_GPU_LIMIT_S"
_MOST_WORDS = 600
_NOT_MEASURED = 3  # Exit status; 1 and 2 are Python's.


class NotMeasuredError(Exception):
  """This machine lacks what the part measures; the message says what."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Part:
  """One part.

  Attributes:
    name: of its module in this folder, which has `measure(folder)`.
    limit_s: after which it is killed.
    what: it measures, in a few words.
  """

  name: str
  limit_s: float
  what: str


@dataclasses.dataclass(frozen=True, kw_only=True)
class Row:
  """What became of a part.

  Attributes:
    part: its name.
    status: "measured", or why there is nothing (or not all) of it.
    reason: that in a sentence; "" where it was measured.
    seconds: that it took.
    figures: what it found; where it failed, what it had kept by then.
  """

  part: str
  status: Status
  reason: str
  seconds: float
  figures: dict[str, Any]


def keep(folder: pathlib.Path, part: str, figures: dict[str, Any]) -> None:
  """Keeps what a part has found so far, should it not come to its end."""
  scratch = folder / f".{part}.json"
  scratch.write_text(json.dumps(figures))
  scratch.rename(_kept(folder, part))


def kept(folder: pathlib.Path, part: str) -> dict[str, Any]:
  """What a part kept in a folder; nothing if it kept nothing."""
  path = _kept(folder, part)
  return json.loads(path.read_text()) if path.exists() else {}


def own_limit_s() -> float:
  """How long the part that runs in this process may take."""
  return float(os.environ[_LIMIT])


def run(part: Part, folder: pathlib.Path, *, limit_s: float) -> Row:
  """Measures a part in a process of its own, and all that it starts.

  Args:
    part: the part.
    folder: where parts leave files for each other.
    limit_s: kills it after this long, or after its own limit.
  """
  limit_s = min(part.limit_s, limit_s)
  begin_s = time.monotonic()
  said = folder / f"{part.name}.log"
  with said.open("wb") as log:
    process = subprocess.Popen(
      (sys.executable, "-m", __spec__.name, part.name, str(folder)),
      cwd=_ROOT,
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
    _end(process)
  outcome, reason = _outcome(status, said, limit_s)
  return Row(
    part=part.name,
    status=outcome,
    reason=reason,
    seconds=time.monotonic() - begin_s,
    figures=kept(folder, part.name),
  )


def _end(process: subprocess.Popen[bytes]) -> None:
  """Ends a process and what it started that is still there."""
  try:
    os.killpg(process.pid, signal.SIGKILL)
  except ProcessLookupError:
    pass
  process.wait()


def _outcome(
  status: int | None, said: pathlib.Path, limit_s: float
) -> tuple[Status, str]:
  if status == 0:
    return "measured", ""
  if status is None:
    return "failed", f"It did not end within {limit_s:.0f} s."
  words = said.read_text(errors="replace").strip()
  last = words.rpartition("\n")[2][-_MOST_WORDS:]
  if status == _NOT_MEASURED:
    return "not measured", last
  return "failed", f"It ended with status {status}: {last or 'silently'}"


def _kept(folder: pathlib.Path, part: str) -> pathlib.Path:
  return folder / f"{part}.json"


def main() -> None:
  """Measures one part in this process."""
  name, folder = sys.argv[1], pathlib.Path(sys.argv[2])
  module = importlib.import_module(f"{__package__}.{name}")
  try:
    keep(folder, name, module.measure(folder))
  except NotMeasuredError as error:
    print(error, file=sys.stderr)
    sys.exit(_NOT_MEASURED)
  except ModuleNotFoundError as error:
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
