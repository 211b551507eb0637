# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Time of a call of the NCCL tuner plugin.

    python -m benchmarks.plugin_call

NCCL calls the plugin before each collective that it enqueues, so a call should
take well below a microsecond; the limit is 200 ns. The loop is in
plugin_call.c, because a call from Python takes longer than the plugin. "least"
is the best of 50 batches; compare it if the machine also does other work.
"""

from __future__ import annotations

from collections.abc import Sequence
import os
import pathlib
import statistics
import subprocess
import tempfile

from benchmarks import table as table_lib
from lagom_xla.apply.nccl import build
from lagom_xla.apply.nccl import table as nccl_table

_MIB = 2**20


def compile_loop(folder: pathlib.Path) -> pathlib.Path:
  """Compiles plugin_call.c."""
  program = folder / "plugin_call"
  source = pathlib.Path(__file__).with_suffix(".c")
  subprocess.run(
    [*build.compiler(), "-std=c11", "-O2", "-o", program, source, "-ldl"],
    check=True,
  )
  return program


def measure(
  program: pathlib.Path,
  plugin: pathlib.Path,
  table: pathlib.Path | None,
  num_bytes: int,
) -> dict[str, float]:
  """Times all-gathers of a size over 8 ranks of one node.

  Returns:
    Nanoseconds of the plugin's two calls, for the fastest and the median batch.
  """
  env = {k: v for k, v in os.environ.items() if not k.startswith("LAGOM_XLA_")}
  if table is not None:
    env["LAGOM_XLA_NCCL_TABLE"] = str(table)
  kind = nccl_table.KINDS["all-gather"]
  output = subprocess.run(
    [program, plugin, "8", "1", str(kind), str(num_bytes), "1", "2"],
    env=env,
    check=True,
    capture_output=True,
    text=True,
  ).stdout
  batches = [tuple(map(float, line.split())) for line in output.splitlines()]
  choices, chunks = zip(*batches, strict=True)
  return {
    "choice_ns": min(choices),
    "median_choice_ns": statistics.median(choices),
    "chunk_ns": min(chunks),
    "median_chunk_ns": statistics.median(chunks),
  }


def rules(num_rules: int) -> Sequence[nccl_table.Rule]:
  """Rules for all-gathers of 1, 3, 5, ... MiB."""
  return [
    nccl_table.Rule(
      kind="all-gather",
      num_ranks=8,
      num_nodes=1,
      min_bytes=(2 * i + 1) * _MIB,
      max_bytes=(2 * i + 1) * _MIB,
      algorithm="ring",
      protocol="simple",
      num_channels=8,
      chunk_bytes=_MIB // 2,
    )
    for i in range(num_rules)
  ]


def main() -> None:
  """Runs the command."""
  arguments = table_lib.parser("benchmarks.plugin_call", __doc__).parse_args()
  rows: list[table_lib.Row] = []
  with tempfile.TemporaryDirectory() as scratch:
    folder = pathlib.Path(scratch)
    plugin = build.compile_to(folder / build.LIBRARY)
    program = compile_loop(folder)
    file = folder / "table.bin"
    for num_rules in (0, 16, 256, 4096):
      nccl_table.write(file, rules(num_rules))
      middle = (num_rules // 2 * 2 + 1) * _MIB
      cases = [("a rule matches", middle)] if num_rules else []
      for label, num_bytes in (*cases, ("none matches", middle + 1)):
        times_ns = measure(program, plugin, file, num_bytes)
        rows.append({"table": f"{num_rules} rules, {label}", **times_ns})
    rows.append({"table": "no table", **measure(program, plugin, None, _MIB)})
  columns = dict.fromkeys(list(rows[0])[1:], ".1f")
  table = table_lib.Table(
    name="plugin_call",
    title="Nanoseconds per call of the NCCL tuner plugin",
    columns=table_lib.columns(table="", **columns),
    rows=rows,
  )
  table_lib.show([table], arguments.format, arguments.csv)


if __name__ == "__main__":
  main()
