# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Launches of the train step on two hosts, with all forms in turns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
import dataclasses
import json
import os
import sys
from typing import Any

from benchmarks.shaped_hosts import hosts as hosts_lib
from benchmarks.shaped_hosts import intervals
from benchmarks.strands import progress
from benchmarks.strands.wall_clock import train_step
from lagom_xla import errors

# Threads of XLA:CPU's pool: with 1 nothing can be hidden, with 2 all can, and
# more fight for two cores.
_NUM_THREADS = 2
_PORT = 12921
_ENVIRONMENT = {
  "JAX_PLATFORMS": "cpu",
  "PJRT_NPROC": str(_NUM_THREADS),
  "OMP_NUM_THREADS": "1",
  "XLA_FLAGS": "",
}


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Way:
  """A way to run the step.

  Attributes:
    strands: as in `program.form.Form`.
    num_pieces: of every chain; 1 cuts none.
    is_ordered: whether collectives are put behind products.
  """

  strands: str = "none"
  num_pieces: int = 1
  is_ordered: bool = True


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Setting:
  """A step and a link.

  Attributes:
    sizes: of the step.
    mbit_per_s: rate of the link.
  """

  sizes: train_step.Sizes
  mbit_per_s: int

  @property
  def name(self) -> str:
    """What the tables call it."""
    return f"T {self.sizes.tokens}, {self.mbit_per_s} Mb/s"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Launch:
  """What a launch measured.

  Attributes:
    seconds: way -> host -> seconds of each round.
    is_same: way -> whether its outputs have the bits of the first way's.
    load: the machine's load average over a minute, when it was over.
  """

  seconds: intervals.Launch
  is_same: Mapping[str, bool]
  load: float


def launch(
  setting: Setting, ways: Mapping[str, Way], num_rounds: int
) -> Launch:
  """Runs the step on two fresh hosts.

  Raises:
    LagomError: a host ended before it had measured.
  """
  with hosts_lib.pair(mbit_per_s=setting.mbit_per_s) as pair:
    processes = [
      pair.start(
        rank,
        [
          sys.executable,
          *("-m", "benchmarks.strands.wall_clock.host"),
          json.dumps(_task(setting, ways, num_rounds, rank, pair)),
        ],
        _ENVIRONMENT,
      )
      for rank in range(len(pair.names))
    ]
    found = [_result(process.communicate()[0]) for process in processes]
  for way, reason in found[0]["refused"].items():
    progress.say(f"  no {way}: {reason}")
  load = os.getloadavg()[0]
  made = [way for way in ways if way not in found[0]["refused"]]
  progress.say(f"  launch of {setting.name} at a load of {load:.1f}")
  return Launch(
    seconds={way: [f["seconds"][way] for f in found] for way in made},
    is_same={way: all(f["is_same"][way] for f in found) for way in made},
    load=load,
  )


def _task(
  setting: Setting,
  ways: Mapping[str, Way],
  num_rounds: int,
  rank: int,
  pair: hosts_lib.Pair,
) -> dict[str, Any]:
  return {
    "rank": rank,
    "address": f"{pair.addresses[0]}:{_PORT}",
    "sizes": dataclasses.asdict(setting.sizes),
    "forms": {name: dataclasses.asdict(way) for name, way in ways.items()},
    "num_rounds": num_rounds,
  }


def _result(printed: str) -> dict[str, Any]:
  """What a host found: its last line, as gloo prints lines of its own."""
  lines: Sequence[str] = printed.splitlines()
  try:
    return json.loads(lines[-1])
  except (IndexError, json.JSONDecodeError):
    raise errors.LagomError(
      "A host ended before it had measured anything; what it said is above."
    ) from None
