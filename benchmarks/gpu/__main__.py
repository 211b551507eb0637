# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Everything that one NVIDIA GPU can tell, measured in one call.

    python -m benchmarks.gpu [--only=PART,...] [--out=FOLDER]
        [--limit=SECONDS] [--format=text|json]

Each part is a process with a time limit, and each survives the others' failure.
The folder gets `gpu.json`, as fixtures the trace and the module of the
example's step, and `traces.tar.gz` with all traces and logs. Where there is no
GPU the parts that need one are reported as not measured. benchmarks/gpu/results
was written so.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
import json
import pathlib
import shutil
import sys
import tarfile
import tempfile
import time
from typing import Any

from benchmarks import table
from benchmarks.gpu import part as part_lib

_RESULTS = pathlib.Path(__file__).with_name("results")
# A lent machine's command may take ten minutes, with all that is around it.
_LIMIT_S = 530.0

# In this order: later ones read what earlier ones leave, and the last one takes
# as many settings as there is time left for.
PARTS = (
  part_lib.Part(
    name="environment", limit_s=30, what="driver, NCCL and Python packages"
  ),
  part_lib.Part(
    name="traced_step", limit_s=100, what="the Llama example's step, traced"
  ),
  part_lib.Part(
    name="kernel_times",
    limit_s=45,
    what="its kernels, predicted against measured",
  ),
  part_lib.Part(
    name="lone_kernels",
    limit_s=75,
    what="products and fusions alone, predicted against measured",
  ),
  part_lib.Part(
    name="tuner_plugin", limit_s=85, what="the NCCL tuner plugin, loaded"
  ),
  part_lib.Part(
    name="decorated", limit_s=130, what="lagom_xla.tune around the same step"
  ),
  part_lib.Part(
    name="commands", limit_s=90, what="lagom-xla profile and tune, end to end"
  ),
  part_lib.Part(
    name="two_ranks",
    limit_s=300,
    what="products and fusions beside NCCL, of two ranks on this GPU",
  ),
)

# What is brought home beside the figures.
_FIXTURES = ("step.xplane.pb.xz", "step.hlo.xz")
# All traces and logs: what could not be compared there can be elsewhere.
_TRACES = "traces.tar.gz"
_PACKED = ("*.xplane.pb", "*.log")
_MOST_PACKED_BYTES = 64 * 2**20


def main(argv: Sequence[str] | None = None) -> None:
  """The command."""
  parser = argparse.ArgumentParser(
    prog="python -m benchmarks.gpu", description=__doc__.partition("\n")[0]
  )
  parser.add_argument("--only", default="", metavar="PART,...")
  parser.add_argument(
    "--out",
    type=pathlib.Path,
    default=_RESULTS,
    metavar="FOLDER",
    help="where figures and fixtures go (default: %(default)s)",
  )
  parser.add_argument(
    "--limit",
    type=float,
    default=_LIMIT_S,
    metavar="SECONDS",
    help="for all parts together (default: %(default)g)",
  )
  parser.add_argument("--format", choices=("text", "json"), default="text")
  arguments = parser.parse_args(argv)
  names = table.names(arguments.only)
  known = {part.name: part for part in PARTS}
  for name in names:
    if name not in known:
      sys.exit(
        f"gpu: --only={name} is no part; choose from {', '.join(known)}."
      )
  parts = [part for part in PARTS if not names or part.name in names]
  rows = measure(parts, arguments.out, limit_s=arguments.limit)
  if arguments.format == "json":
    print(json.dumps({"rows": rows}, indent=1))
    return
  for row in rows:
    print(f"{row['part']:14} {row['status']:13} {row['seconds']:6.1f} s")
    if row["reason"]:
      print(f"  {row['reason']}")
    for name, value in row["figures"].items():
      print(f"  {name}: {json.dumps(value)}")


def measure(
  parts: Sequence[part_lib.Part], out: pathlib.Path, *, limit_s: float
) -> list[dict[str, Any]]:
  """Measures parts one after the other; `out` gets gpu.json after each anew.

  Returns:
    A row for each, as of `part.run`.
  """
  deadline_s = time.monotonic() + limit_s
  out.mkdir(parents=True, exist_ok=True)
  rows: list[dict[str, Any]] = []
  with tempfile.TemporaryDirectory(prefix="gpu-") as name:
    folder = pathlib.Path(name)
    for part in parts:
      left_s = deadline_s - time.monotonic()
      print(f"gpu: {part.what}", file=sys.stderr, flush=True)
      rows.append(part_lib.run(part, folder, limit_s=left_s))
      (out / "gpu.json").write_text(json.dumps({"rows": rows}, indent=1) + "\n")
    for fixture in _FIXTURES:
      if (folder / fixture).exists():
        shutil.copy(folder / fixture, out / fixture)
    _pack(folder, out / _TRACES)
  return rows


def _pack(folder: pathlib.Path, archive: pathlib.Path) -> None:
  """Packs traces and logs, smallest first, as many as may travel."""
  found = [p for pattern in _PACKED for p in folder.rglob(pattern)]
  left_bytes = _MOST_PACKED_BYTES
  with tarfile.open(archive, "w:gz") as tar:
    for path in sorted(found, key=lambda path: path.stat().st_size):
      left_bytes -= path.stat().st_size
      if left_bytes < 0:
        print(f"gpu: {path} is too large to keep", file=sys.stderr)
        return
      tar.add(path, path.relative_to(folder))


if __name__ == "__main__":
  main()
