# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Measures forms by wall clock on two hosts of one machine, with a slow link.

    python -m benchmarks.strands.wall_clock JSON

is the program of a host: it alternates the ways of a task of `table`. Its last
printed line is also JSON: {"seconds": way -> seconds of each round, "is_same":
way -> whether it gave the same bits as the first}.

The step runs over gloo. The slow link makes communication long enough to hide,
and XLA:CPU hides it if a pass puts each collective behind a product
(`benchmarks/live/cpu/behind_products.py`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
import json
import os
import time
from typing import Any

import jax

from benchmarks import shaped_hosts
from benchmarks import table as table_lib
from benchmarks.live.cpu import compiling
from benchmarks.workloads import perceptrons
from lagom_xla import errors

_XLAS_ORDER = "XLA's order"
# The first one is the baseline.
_WAYS: Mapping[str, compiling.Way] = {
  "sequential": compiling.Way(is_ordered=True),
  _XLAS_ORDER: compiling.AS_XLA_DOES,
  "strands, paired": compiling.Way(strands="paired", is_ordered=True),
  "strands, rotated": compiling.Way(strands="rotated", is_ordered=True),
  "slices of 2": compiling.Way(num_pieces=2, is_ordered=True),
  "slices of 4": compiling.Way(num_pieces=4, is_ordered=True),
  "both, paired and 2": compiling.Way(
    strands="paired", num_pieces=2, is_ordered=True
  ),
}
# Tokens, and the rate of the link in Mb/s.
_SETTINGS = ((512, 200), (256, 400))
_NUM_LAUNCHES = 3
_NUM_ROUNDS = 10

_COLUMNS = table_lib.columns(
  setting="", form="", over="", ms=".0f", ratio=".3f", low=".3f", high=".3f",
  same_bits="", launches="d", rounds="d", load=".1f",
)  # fmt: skip


def table() -> table_lib.Table:
  """Measures all settings.

  Raises:
    LagomError: a host ended without a result.
  """
  rows: list[dict[str, Any]] = []
  for tokens, rate in _SETTINGS:
    launches = []
    for _ in range(_NUM_LAUNCHES):  # Each uses new hosts.
      task = {"tokens": tokens, "num_rounds": _NUM_ROUNDS}
      hosts = shaped_hosts.run(
        "benchmarks.strands.wall_clock", task, mbit_per_s=rate
      )
      launches.append({"hosts": hosts, "load": os.getloadavg()[0]})
      table_lib.say(f"launched at a load of {launches[-1]['load']:.1f}")
    rows += rows_of(f"T {tokens}, {rate} Mb/s", launches)
  return table_lib.Table(
    name="wall_clock",
    title="Forms by wall clock: two hosts, TP 2, accumulation of 4",
    columns=_COLUMNS,
    rows=rows,
    notes=(
      shaped_hosts.MEASURED_ON,
      "Ratios are of medians over rounds of alternating forms, on the slower"
      " host, with 95 % bootstrap intervals over launches and rounds.",
      f"All but {_XLAS_ORDER} put collectives behind products.",
      shaped_hosts.TO_BE_TRUSTED,
    ),
  )


def rows_of(
  setting: str, launches: Sequence[Mapping[str, Any]]
) -> list[dict[str, Any]]:
  """A row per form.

  Args:
    setting: the step and the link.
    launches: for each, "hosts", their output, and "load", the machine's load
      average over a minute at the end.
  """
  seconds = [
    {
      form: [host["seconds"][form] for host in launch["hosts"]]
      for form in launch["hosts"][0]["seconds"]
    }
    for launch in launches
  ]
  over, *forms = seconds[0]
  rows = []
  for form in forms:
    are_same = all(
      host["is_same"][form] for launch in launches for host in launch["hosts"]
    )
    rows.append(
      {
        "setting": setting,
        "form": form,
        "over": over,
        "ms": 1e3 * shaped_hosts.median(seconds, form),
        **shaped_hosts.ratio(seconds, form, over),
        "same_bits": "yes" if are_same else "no",
        "launches": len(launches),
        "rounds": len(seconds[0][form][0]),
        "load": max(launch["load"] for launch in launches),
      }
    )
  return rows


def main() -> None:
  """Runs the ways on this host, one step of each per round."""
  task = shaped_hosts.joined()
  sizes = perceptrons.Sizes(tokens=task["tokens"], num_layers=2)
  step, specs = perceptrons.two_hosts_step(jax.devices(), sizes)
  compiled = {}
  for name, way in _WAYS.items():
    try:
      compiled[name] = compiling.compiled(step.lower(*specs), way)
    except errors.LagomError as error:
      table_lib.say(f"no {name}: {error}")
  arguments = jax.tree.map(perceptrons.filled, specs)

  def run(name: str) -> Any:
    return jax.block_until_ready(compiled[name](*arguments))

  outputs = {name: shaped_hosts.bits(run(name)) for name in compiled}
  first = next(iter(outputs.values()))
  seconds: dict[str, list[float]] = {name: [] for name in compiled}
  for name in shaped_hosts.in_turns(list(compiled), task["num_rounds"]):
    begin = time.perf_counter()
    run(name)
    seconds[name].append(time.perf_counter() - begin)
  is_same = {name: out == first for name, out in outputs.items()}
  print(json.dumps({"seconds": seconds, "is_same": is_same}), flush=True)


if __name__ == "__main__":
  main()
