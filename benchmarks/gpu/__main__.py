# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Measures everything that one NVIDIA GPU can show, in one call.

    python -m benchmarks.gpu [--only=PART,...] [--out=FOLDER]
        [--limit=SECONDS] [--brief]

Each part is a process with a time limit, and survives the failure of others.
The first part, environment, always runs. The others use the GPUs that it finds;
if there are none, they are reported as not measured. The folder gets
`gpu.json`, the trace and the module of the example's step as fixtures, and
`traces.tar.gz` with all traces and logs. benchmarks/gpu/results was written
this way.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Sequence
import json
import pathlib
import shutil
import tarfile
import tempfile
import time
from typing import Any

from benchmarks import table
from benchmarks.gpu import part as part_lib

_RESULTS = pathlib.Path(__file__).with_name("results")
# Below a limit of ten minutes for a command on a shared machine.
_LIMIT_S = 530.0
# Files to keep besides the figures.
_FIXTURES = ("step.xplane.pb.xz", "step.hlo.xz")
# All traces and logs, for later comparisons elsewhere.
_TRACES = "traces.tar.gz"
_PACKED = ("*.xplane.pb", "*.log")
_MOST_PACKED_BYTES = 64 * 2**20


def main(argv: Sequence[str] | None = None) -> None:
  """Runs the command."""
  parser = argparse.ArgumentParser(
    prog="python -m benchmarks.gpu",
    description=__doc__.partition("\n")[0],
    formatter_class=argparse.ArgumentDefaultsHelpFormatter,
  )
  parser.add_argument("--only", default="", metavar="PART,...")
  parser.add_argument(
    "--out",
    type=pathlib.Path,
    default=_RESULTS,
    metavar="FOLDER",
    help="where figures and fixtures go",
  )
  parser.add_argument(
    "--limit",
    type=float,
    default=_LIMIT_S,
    metavar="SECONDS",
    help="time limit for all parts together",
  )
  parser.add_argument(
    "--brief",
    action="store_true",
    help="measure little in each part, to check that all parts run",
  )
  arguments = parser.parse_args(argv)
  rows = measure(
    table.chosen(arguments.only, part_lib.PARTS, "part"),
    arguments.out,
    limit_s=arguments.limit,
    is_brief=arguments.brief,
  )
  for row in rows:
    print(f"{row['part']:14} {row['status']:13} {row['seconds']:6.1f} s")
    if row["reason"]:
      print(f"  {row['reason']}")
    for name, value in row["figures"].items():
      print(f"  {name}: {json.dumps(value)}")


def measure(
  names: Iterable[str],
  out: pathlib.Path,
  *,
  limit_s: float,
  is_brief: bool = False,
) -> list[dict[str, Any]]:
  """Measures parts one after the other; updates `out` after each.

  Args:
    names: names of the parts, besides the first.
    out: the output folder.
    limit_s: time limit of all parts together.
    is_brief: whether to measure little in each part.

  Returns:
    A row for each part, from `part.row`, with its device.
  """
  deadline_s = time.monotonic() + limit_s
  out.mkdir(parents=True, exist_ok=True)
  rows: list[dict[str, Any]] = []
  with tempfile.TemporaryDirectory(prefix="gpu-") as folder:
    first, gpus = next(iter(part_lib.PARTS)), {}
    for name in dict.fromkeys((first, *names)):
      table.say(f"gpu: {name}")
      task = part_lib.Task(
        part=name,
        folder=folder,
        limit_s=min(part_lib.PARTS[name][0], deadline_s - time.monotonic()),
        cluster=gpus.get("cluster", ""),
        is_brief=is_brief,
      )
      if name == first or task.cluster:
        row = part_lib.run(task)
      else:
        row = part_lib.row(name, "not measured", rows[0]["reason"])
      gpus = gpus or row["figures"]
      rows.append(row | {"device": gpus.get("device")})
      (out / "gpu.json").write_text(json.dumps({"rows": rows}, indent=1) + "\n")
      for fixture in filter(
        pathlib.Path.exists, map(task.path.joinpath, _FIXTURES)
      ):
        shutil.copy(fixture, out)
      _pack(task.path, out / _TRACES)
  return rows


def _pack(folder: pathlib.Path, archive: pathlib.Path) -> None:
  """Packs traces and logs, smallest first, up to a size limit."""
  found = [p for pattern in _PACKED for p in folder.rglob(pattern)]
  left_bytes = _MOST_PACKED_BYTES
  with tarfile.open(archive, "w:gz") as tar:
    for path in sorted(found, key=lambda path: path.stat().st_size):
      left_bytes -= path.stat().st_size
      if left_bytes < 0:
        table.say(f"gpu: {path} is too large to keep")
        return
      tar.add(path, path.relative_to(folder))


if __name__ == "__main__":
  main()
