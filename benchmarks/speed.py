# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""The time that one schedule of a target takes, and one compile to the end.

Seconds of wall and CPU time, in this process and with the processes that XLA
starts; the second round has nothing left to load.

  python -m benchmarks.speed examples/llama/train.py:train_step
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
import resource
import time

from lagom_xla import cluster as cluster_lib
from lagom_xla.compile import config as config_lib
from lagom_xla.compile import load

_ROUNDS = 2


def main() -> None:
  """Prints a line for each compile."""
  parser = argparse.ArgumentParser(description=__doc__)
  parser.add_argument("target")
  parser.add_argument("--cluster", default="1x8xh100")
  parser.add_argument("--options", nargs="*", default=[])
  arguments = parser.parse_args()
  target = load.load(arguments.target, cluster_lib.parse(arguments.cluster))
  config = config_lib.XlaConfig(
    options=dict(_option(text) for text in arguments.options)
  )
  for _ in range(_ROUNDS):
    _time("to the schedule", lambda: target.schedule(config))
    if not target.obstacle:
      _time("to the end", lambda: target.compile(config))


def _option(text: str) -> tuple[str, bool | int | str]:
  name, _, value = text.partition("=")
  if value in ("true", "false"):
    return name, value == "true"
  return name, int(value) if value.lstrip("-").isdigit() else value


def _time(what: str, compile_once: Callable[[], object]) -> None:
  begin_s, begin_cpu_s = time.perf_counter(), _cpu_s()
  compile_once()
  wall_s = time.perf_counter() - begin_s
  print(f"{what:>16} {wall_s:7.2f} s, {_cpu_s() - begin_cpu_s:7.2f} s of CPU")


def _cpu_s() -> float:
  who = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
  usages = [resource.getrusage(one) for one in who]
  return sum(usage.ru_utime + usage.ru_stime for usage in usages)


if __name__ == "__main__":
  main()
