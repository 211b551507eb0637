# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Launches of the train step on two hosts, with all forms in turns."""

from __future__ import annotations

from collections.abc import Mapping
import dataclasses
import os

from benchmarks.shaped_hosts import hosts
from benchmarks.shaped_hosts import intervals
from benchmarks.strands import modules
from benchmarks.strands.wall_clock import train_step


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
  found = hosts.run(
    "benchmarks.strands.wall_clock.host",
    {
      "sizes": dataclasses.asdict(setting.sizes),
      "forms": {name: dataclasses.asdict(way) for name, way in ways.items()},
      "num_rounds": num_rounds,
    },
    mbit_per_s=setting.mbit_per_s,
  )
  for way, reason in found[0]["refused"].items():
    modules.say(f"  no {way}: {reason}")
  load = os.getloadavg()[0]
  made = [way for way in ways if way not in found[0]["refused"]]
  modules.say(f"  launch of {setting.name} at a load of {load:.1f}")
  return Launch(
    seconds={way: [f["seconds"][way] for f in found] for way in made},
    is_same={way: all(f["is_same"][way] for f in found) for way in made},
    load=load,
  )
