# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""The table of step times by wall clock, form against form.

Each launch runs the train step on two hosts, with all forms in turns.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
import dataclasses
import os
from typing import Any

from benchmarks import shaped_hosts
from benchmarks import table as table_lib
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

  seconds: shaped_hosts.Launch
  is_same: Mapping[str, bool]
  load: float


XLAS_ORDER = "XLA's order"
SEQUENTIAL = "sequential"
CHOSEN = "chosen"

WAYS: Mapping[str, Way] = {
  SEQUENTIAL: Way(),
  XLAS_ORDER: Way(is_ordered=False),
  "strands, paired": Way(strands="paired"),
  "strands, rotated": Way(strands="rotated"),
  "slices of 2": Way(num_pieces=2),
  "slices of 4": Way(num_pieces=4),
  "both, paired and 2": Way(strands="paired", num_pieces=2),
}
SETTINGS = (
  Setting(sizes=train_step.Sizes(tokens=512, num_layers=2), mbit_per_s=200),
  Setting(sizes=train_step.Sizes(tokens=256, num_layers=2), mbit_per_s=400),
)
_NUM_LAUNCHES = 3
_NUM_ROUNDS = 10

_COLUMNS = (
  *map(table_lib.Column, ("setting", "form", "over")),
  table_lib.Column("ms", ".0f"),
  *(table_lib.Column(name, ".3f") for name in ("ratio", "low", "high")),
  table_lib.Column("same_bits"),
  *(table_lib.Column(name, "d") for name in ("launches", "rounds")),
  table_lib.Column("load", ".1f"),
)


def table(settings: Sequence[Setting]) -> table_lib.Table:
  """Measures all settings; the first of the ways is what others are held to."""
  rows: list[dict[str, Any]] = []
  for setting in settings:
    modules.say(f"measuring {setting.name}")
    # Launches of the settings are not mixed: each makes its own hosts.
    launches = [_launch(setting) for _ in range(_NUM_LAUNCHES)]
    rows += rows_of(setting.name, launches)
  return table_lib.Table(
    name="wall_clock",
    title="Forms by wall clock: two hosts, TP 2, accumulation of 4",
    columns=_COLUMNS,
    rows=rows,
    notes=(
      shaped_hosts.MEASURED_ON,
      "Ratios are of medians over rounds in which all forms took turns, the"
      " slower host's; with 95 % bootstrap intervals over launches and rounds.",
      f"All but {XLAS_ORDER} have collectives put behind products.",
      f"{CHOSEN}: the quickest form of the first launch, judged on the others.",
      shaped_hosts.TO_BE_TRUSTED,
    ),
  )


def _launch(setting: Setting) -> Launch:
  """Runs the step on two fresh hosts.

  Raises:
    LagomError: a host ended before it had measured.
  """
  found = shaped_hosts.run(
    "benchmarks.strands.wall_clock.host",
    {
      "sizes": dataclasses.asdict(setting.sizes),
      "forms": {name: dataclasses.asdict(way) for name, way in WAYS.items()},
      "num_rounds": _NUM_ROUNDS,
    },
    mbit_per_s=setting.mbit_per_s,
  )
  refused = found[0]["refused"]
  for way, reason in refused.items():
    modules.say(f"  no {way}: {reason}")
  load = os.getloadavg()[0]
  modules.say(f"  launch of {setting.name} at a load of {load:.1f}")
  made = [way for way in WAYS if way not in refused]
  return Launch(
    seconds={way: [f["seconds"][way] for f in found] for way in made},
    is_same={way: all(f["is_same"][way] for f in found) for way in made},
    load=load,
  )


def rows_of(setting: str, launches: Sequence[Launch]) -> list[dict[str, Any]]:
  """A row per form, and one of the form that a first launch would choose."""
  over, *forms = launches[0].seconds
  rows = [_row(setting, launches, form, over) for form in forms]
  if len(launches) > 1:
    chosen = quickest(launches[0])
    row = _row(setting, launches[1:], chosen, over)
    rows.append({**row, "form": f"{CHOSEN}: {chosen}"})
  return rows


def quickest(launch: Launch) -> str:
  """The form whose median is the least; the first, unless one is surely so.

  A form other than the first is taken if the interval of its ratio is below 1,
  as the decorator keeps what it had unless the new is faster.
  """
  first, *others = (way for way in launch.seconds if way != XLAS_ORDER)
  ratios = {
    form: shaped_hosts.ratio([launch.seconds], form, first) for form in others
  }
  sure = {form: r.ratio for form, r in ratios.items() if r.high < 1.0}
  return min(sure, key=lambda form: sure[form], default=first)


def _row(
  setting: str, launches: Sequence[Launch], form: str, over: str
) -> dict[str, Any]:
  seconds = [launch.seconds for launch in launches]
  found = shaped_hosts.ratio(seconds, form, over)
  return {
    "setting": setting,
    "form": form,
    "over": over,
    "ms": 1e3 * shaped_hosts.median(seconds, form),
    "ratio": found.ratio,
    "low": found.low,
    "high": found.high,
    "same_bits": "yes" if all(x.is_same[form] for x in launches) else "no",
    "launches": len(launches),
    "rounds": len(next(iter(seconds[0][form]))),
    "load": max(launch.load for launch in launches),
  }
