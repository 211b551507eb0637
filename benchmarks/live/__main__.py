# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Measures tuning while a step trains, by wall clock, on two shaped hosts.

    python -m benchmarks.live [--only=CASE[:RATE],...] [--format=text|csv]
        [--csv=FOLDER]

Each case is a user's training loop, in a JAX process on each of two hosts with
a slow link between them. Afterward, the variant that `lagom_xla.tune` adopted
is measured against XLA's default.

Needs root and iproute2. Each case and rate takes two to seven minutes, or up to
twelve if a step takes seconds. Progress goes to stderr. --csv also writes the
table into a folder; the one in results/ was written this way. --only keeps its
other rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
import os
import pathlib
import sys
import tempfile
from typing import Any

from benchmarks import shaped_hosts
from benchmarks import table as table_lib
from benchmarks.live import cases as cases_lib
from lagom_xla import errors

_NUM_ROUNDS = 24
_LEAST_ADOPTED = 4

_COLUMNS = table_lib.columns(
  case="", rate="d", adopted="", way="", default_ms=".1f", ratio=".3f",
  low=".3f", high=".3f", predicted_ratio=".3f", tried="d", steps="d",
  same_bits="", load=".1f",
)  # fmt: skip


def _measured(chosen: Iterable[tuple[str, int]]) -> Iterator[table_lib.Row]:
  """Runs cases at their rates, each on fresh hosts."""
  for case, rate in chosen:
    table_lib.say(f"training: {case}, {rate} Mb/s")
    with tempfile.TemporaryDirectory() as folder:
      log = pathlib.Path(folder, "trials.jsonl")
      found = shaped_hosts.run(
        "benchmarks.live.host",
        {"case": case, "log": os.fspath(log), "num_rounds": _NUM_ROUNDS},
        mbit_per_s=rate,
      )
    table_lib.say(found[0]["report"])
    yield row(case, rate, found)


def row(
  case: str, rate: int, found: Sequence[Mapping[str, Any]]
) -> dict[str, Any]:
  """The row for the results of two hosts."""
  seconds = {
    name: [host["seconds"][name] for host in found]
    for name in ("default", "chosen")
  }
  trials = found[0]["trials"]
  adopted = [trial for trial in trials if trial["adopted"]]
  told = adopted[-1:] if adopted else trials[:1]
  return {
    "case": case,
    "rate": rate,
    "adopted": "yes" if adopted else "no",
    "way": adopted[-1]["proposal"] if adopted else "",
    "default_ms": 1e3 * shaped_hosts.median([seconds], "default"),
    **shaped_hosts.ratio([seconds], "chosen", "default"),
    "predicted_ratio": told[0]["predicted_ratio"] if told else None,
    "tried": len(trials),
    "steps": found[0]["num_steps"],
    "same_bits": "yes" if all(host["is_same"] for host in found) else "no",
    "load": max(host["load"] for host in found),
  }


def table_of(rows: Sequence[table_lib.Row]) -> table_lib.Table:
  """The table of these rows, with its targets."""
  won = {r["case"] for r in rows if r["adopted"] == "yes" and r["high"] < 1}
  num_lost = sum(r["low"] > 1 for r in rows)
  return table_lib.Table(
    name="live",
    title="lagom_xla.tune on two shaped hosts: adopted, and XLA's default",
    columns=_COLUMNS,
    rows=rows,
    targets=(
      table_lib.Target(
        wanted=f"adopted and surely faster in at least {_LEAST_ADOPTED} cases",
        found=f"{len(won)}",
        is_met=len(won) >= _LEAST_ADOPTED,
      ),
      table_lib.Target(
        wanted="surely slower in none", found=f"{num_lost}", is_met=not num_lost
      ),
    ),
    notes=(
      shaped_hosts.MEASURED_ON,
      "Ratios are of medians over alternating blocks, on the slower host, with"
      " 95 % bootstrap intervals; if nothing was adopted, of the default to"
      " itself.",
      "Predicted: for the adopted variant, or else for the first one tried.",
      shaped_hosts.TO_BE_TRUSTED,
    ),
  )


def main(argv: Sequence[str] | None = None) -> None:
  """Runs the command."""
  parser = table_lib.parser("benchmarks.live", __doc__)
  parser.add_argument("--only", default="", metavar="CASE[:RATE],...")
  arguments = parser.parse_args(argv)
  rates = {name: case.rates for name, case in cases_lib.CASES.items()}
  every = [(name, rate) for name in rates for rate in rates[name]]
  known = {**rates, **{f"{name}:{rate}": (rate,) for name, rate in every}}
  only = arguments.only or ",".join(rates)
  chosen = [
    (name.partition(":")[0], rate)
    for name in table_lib.chosen(only, known, "case")
    for rate in known[name]
  ]
  obstacle = shaped_hosts.obstacle()
  if obstacle is not None:
    sys.exit(f"live: skipped: {obstacle}.")
  try:
    rows = list(_measured(chosen))
    if arguments.csv is not None:
      fields = ("case", "rate")
      table_lib.keep(table_of, rows, arguments.csv, every, fields=fields)
  except errors.LagomError as error:
    sys.exit(f"live: {error}")
  table_lib.show([table_of(rows)], arguments.format)


if __name__ == "__main__":
  main()
