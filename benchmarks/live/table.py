# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Table of what `tune` adopted on shaped hosts, and what that was worth."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
import os
import pathlib
import sys
import tempfile
from typing import Any

from benchmarks import shaped_hosts
from benchmarks import table as table_lib
from benchmarks.live import cases as cases_lib

NAME = "live"
_NUM_ROUNDS = 24
_LEAST_ADOPTED = 4

_COLUMNS = (
  table_lib.Column("case"),
  table_lib.Column("rate", "d"),
  table_lib.Column("adopted"),
  table_lib.Column("way"),
  table_lib.Column("default_ms", ".1f"),
  table_lib.Column("ratio", ".3f"),
  table_lib.Column("low", ".3f"),
  table_lib.Column("high", ".3f"),
  table_lib.Column("predicted_ratio", ".3f"),
  table_lib.Column("tried", "d"),
  table_lib.Column("steps", "d"),
  table_lib.Column("same_bits"),
  table_lib.Column("load", ".1f"),
)


def rows(case: str, rates: Sequence[int] = ()) -> Iterator[dict[str, Any]]:
  """Runs a case on fresh hosts, at each rate.

  Raises:
    LagomError: a host ended before it had found anything.
  """
  for rate in rates or cases_lib.CASES[case].rates:
    _say(f"training: {case}, {rate} Mb/s")
    with tempfile.TemporaryDirectory() as folder:
      log = pathlib.Path(folder, "trials.jsonl")
      found = shaped_hosts.run(
        "benchmarks.live.host",
        {"case": case, "log": os.fspath(log), "num_rounds": _NUM_ROUNDS},
        mbit_per_s=rate,
      )
    _say(found[0]["report"])
    yield row(case, rate, found)


def row(
  case: str, rate: int, found: Sequence[Mapping[str, Any]]
) -> dict[str, Any]:
  """The row of what two hosts found."""
  seconds = {
    name: [host["seconds"][name] for host in found]
    for name in ("default", "chosen")
  }
  ratio = shaped_hosts.ratio([seconds], "chosen", "default")
  trials = found[0]["trials"]
  adopted = [trial for trial in trials if trial["adopted"]]
  told = (adopted or trials)[-1:] if adopted else trials[:1]
  return {
    "case": case,
    "rate": rate,
    "adopted": bool(adopted),
    "way": adopted[-1]["proposal"] if adopted else "",
    "default_ms": 1e3 * shaped_hosts.median([seconds], "default"),
    "ratio": ratio.ratio,
    "low": ratio.low,
    "high": ratio.high,
    "predicted_ratio": told[0]["predicted_ratio"] if told else None,
    "tried": len(trials),
    "steps": found[0]["num_steps"],
    "same_bits": "yes" if all(host["is_same"] for host in found) else "no",
    "load": max(host["load"] for host in found),
  }


def _say(words: str) -> None:
  print(words, file=sys.stderr, flush=True)


def table_of(rows: Sequence[table_lib.Row]) -> table_lib.Table:
  """The table of these rows, with what is asked of them."""
  won = [
    r["case"] for r in rows if r["adopted"] in (True, "yes") and r["high"] < 1
  ]
  lost = [r["case"] for r in rows if r["low"] > 1]
  return table_lib.Table(
    name=NAME,
    title="lagom_xla.tune on two shaped hosts: adopted beside XLA's default",
    columns=_COLUMNS,
    rows=[
      {**r, "adopted": "yes" if r["adopted"] in (True, "yes") else "no"}
      for r in rows
    ],
    targets=(
      table_lib.Target(
        wanted=f"adopted and surely faster in at least {_LEAST_ADOPTED} cases",
        found=f"{len(set(won))}",
        is_met=len(set(won)) >= _LEAST_ADOPTED,
      ),
      table_lib.Target(
        wanted="surely slower in none", found=f"{len(lost)}", is_met=not lost
      ),
    ),
    notes=(
      shaped_hosts.MEASURED_ON,
      "Ratios are of medians over blocks that took turns, the slower host's,"
      " with 95 % bootstrap intervals; where nothing was adopted, of the"
      " default with itself.",
      "Predicted: of what was adopted; else of what was tried first.",
      shaped_hosts.TO_BE_TRUSTED,
    ),
  )
