# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Everything that one NVIDIA GPU can tell, measured in one call.

    python -m benchmarks.gpu [--only=PART,...] [--out=FOLDER]
        [--limit=SECONDS] [--brief]

Each part is a process with a time limit, and each survives the others' failure.
The first one, environment, always runs: the others go by the GPUs that it
finds, and are reported as not measured where there are none. The folder gets
`gpu.json`, as fixtures the trace and the module of the example's step, and
`traces.tar.gz` with all traces and logs. benchmarks/gpu/results was written so.
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
# A lent machine's command may take ten minutes, with all that is around it.
_LIMIT_S = 530.0
# What is brought home beside the figures.
_FIXTURES = ("step.xplane.pb.xz", "step.hlo.xz")
# All traces and logs: what could not be compared there can be elsewhere.
_TRACES = "traces.tar.gz"
_PACKED = ("*.xplane.pb", "*.log")
_MOST_PACKED_BYTES = 64 * 2**20


def main(argv: Sequence[str] | None = None) -> None:
  """The command."""
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
    help="for all parts together",
  )
  parser.add_argument(
    "--brief",
    action="store_true",
    help="measure little of each, to see whether all parts run",
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
  """Measures parts one after the other; `out` gets what is there after each.

  Args:
    names: of parts, beside the first.
    out: the folder.
    limit_s: of all together.
    is_brief: whether to measure little of each thing.

  Returns:
    A row for each, as of `part.row`, and the device that it is of.
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
  """Packs traces and logs, smallest first, as many as may travel."""
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
