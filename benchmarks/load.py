# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""The time and memory that reading and analysing a very large module takes.

The module is the Llama example for eight H100s with its layers unrolled, put
into one schedule as often as it takes to have that many instructions. It is
made in a process of its own, so that the peak memory is that of reading alone.

  python benchmarks/load.py --num_instructions=173000
"""

from __future__ import annotations

import argparse
import os
import pathlib
import re
import resource
import subprocess
import sys
import tempfile
import time

from jaxlib import _hlo

from lagom_xla import cluster
from lagom_xla.compile import load
from lagom_xla.passes import hlo
from lagom_xla.passes import overlap

_ROOT = pathlib.Path(__file__).resolve().parent.parent


def _unrolled_llama() -> hlo.Module:
  step = load.load(
    f"{_ROOT}/examples/llama/train.py:train_step",
    cluster.parse("1x8xh100"),
    arguments={"layers": "unroll"},
  )
  return step.schedule()


def _repeated(text: str, times: int) -> str:
  """The module's text with every computation `times` times in it.

  The copies of the entry computation follow each other in one schedule and
  share its parameters.
  """
  blocks = re.split(r"\n{2,}", text.strip())
  (entry,) = (b for b in blocks if b.startswith("ENTRY"))
  callees = [b for b in blocks if b.startswith("%")]
  header = [b + "\n" for b in blocks if b not in callees and b is not entry]
  signature, *body, end = entry.split("\n")
  parameters = [line for line in body if " parameter(" in line]
  shared = {re.findall(r"%[\w.-]+", line)[0] for line in parameters}
  rest = [line for line in body if " parameter(" not in line]

  def renamed(block: str, copy: int) -> str:
    return re.sub(
      r"%[\w.-]+",
      lambda found: (
        found[0] if found[0] in shared else f"{found[0]}.copy{copy}"
      ),
      block,
    )

  lines = list(header)
  for copy in range(times):
    lines += [renamed(callee, copy) + "\n" for callee in callees]
  lines += [signature, *parameters]
  for copy in range(times):
    block = "\n".join(rest)
    if copy < times - 1:
      block = block.replace("ROOT ", "")
    lines.append(renamed(block, copy))
  return "\n".join([*lines, end, ""])


def _write(path: pathlib.Path, num_instructions: int) -> None:
  module = _unrolled_llama()
  times = -(-num_instructions // module.num_instructions)
  text = _hlo.HloModule.from_serialized_hlo_module_proto(
    module.proto.SerializeToString()
  ).to_string()
  path.write_text(_repeated(text, times))


def _read(path: pathlib.Path) -> None:
  begin = time.perf_counter()
  module = hlo.load(path)
  loaded = time.perf_counter()
  analysis = overlap.analyze(module)
  num_kernels = len(analysis.kernels)
  num_overlaps = len(analysis.overlaps)
  num_beside = sum(map(len, analysis.kernels_beside.values()))
  end = time.perf_counter()
  peak_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
  print(
    f"{path.stat().st_size / 1e6:.1f} MB of text,"
    f" {module.num_instructions} instructions, {num_kernels} kernels,"
    f" {len(analysis.collectives)} collectives, {num_overlaps} overlaps,"
    f" {num_beside} kernels beside collectives\n"
    f"load     {loaded - begin:6.2f} s\n"
    f"analyse  {end - loaded:6.2f} s\n"
    f"peak     {peak_kib / 2**20:6.2f} GiB"
  )


def _arguments() -> argparse.Namespace:
  parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
  parser.add_argument("--num_instructions", type=int, default=173_000)
  parser.add_argument("--write_to", type=pathlib.Path)
  return parser.parse_args()


def main() -> None:
  """Writes the module or, in another process, reads it and prints."""
  arguments = _arguments()
  if arguments.write_to is not None:
    _write(arguments.write_to, arguments.num_instructions)
    return
  with tempfile.TemporaryDirectory() as directory:
    path = pathlib.Path(directory) / "llama.hlo"
    # Without this the CUDA plugin refuses to load where there is no driver.
    subprocess.run(
      [sys.executable, *sys.argv, f"--write_to={path}"],
      env=os.environ | {"JAX_SKIP_CUDA_CONSTRAINTS_CHECK": "1"},
      check=True,
    )
    _read(path)


if __name__ == "__main__":
  main()
