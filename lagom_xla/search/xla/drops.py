# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Drops: options that a search may take back, one at a time.

What gained when it was added may cost once others are beside it: a pipelined
all-reduce in a loop that is double-buffered, for one. A search that only ever
adds options keeps them all, and all that the recipe sets that it started from.
So where nothing more gains by being added, the best config is compiled without
each of a few options, of a recipe those that the search could add, too.
"""

from __future__ import annotations

from collections.abc import Iterator
from collections.abc import Set as AbstractSet
import dataclasses

from lagom_xla.compile import config as config_lib
from lagom_xla.costs import step as step_lib
from lagom_xla.search.xla import candidates
from lagom_xla.search.xla import hindsight as hindsight_lib
from lagom_xla.search.xla import knobs

# Drops that are compiled in a round, of what the search added.
MOST = 4


def of(
  so_far: candidates.Search, hindsight: hindsight_lib.Hindsight
) -> Iterator[tuple[str, config_lib.XlaConfig]]:
  """The best config without each of its options, and a label for each.

  Args:
    so_far: the search. Of what its default sets only combine thresholds and
      what changes loops are dropped, after what was added.
    hindsight: what it saw. What gained least when it was added is dropped
      first.
  """
  config, start = so_far.best.config, so_far.default.config
  added = [n for n in config.options if n not in start.options]
  added.sort(key=lambda n: hindsight.gain_of_option(n, config.options[n]))
  acting = _acting(so_far.best.step)
  began_with = [n for n in start.options if n in config.options.keys() & acting]
  for name in (*added[:MOST], *began_with):
    others = {n: value for n, value in config.options.items() if n != name}
    label = f"without {name.removeprefix('xla_gpu_')}"
    yield label, dataclasses.replace(config, options=others)


def _acting(step: step_lib.Step) -> AbstractSet[str]:
  """The options of combining and of loops that act on a step's collectives.

  Among them are suspects (`suspects.py`), which only a compile acquits: without
  a threshold that seems to combine nothing OLMoE on A100s is 0.5 % faster.
  """
  collectives = step.analysis.collectives
  kinds = {c.kind for c in collectives}
  combining = {o for kind, o in knobs.OPTIONS.items() if kind in kinds}
  has_loops = any(c.executions > 1 for c in collectives)
  return combining.union(knobs.OF_LOOPS if has_loops else ())
