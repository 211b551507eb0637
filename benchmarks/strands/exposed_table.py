# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""The table of what the best form still exposes, collective by collective.

How often a collective runs in a step tells where it stands: once, with the
gradients of all micro-batches and the optimizer; once per micro-batch, at the
embedding or the head; once per layer or more often, in the loops over layers.
XLA may have unrolled those by two, which makes two collectives of one.
"""

from __future__ import annotations

import collections
from collections.abc import Sequence
from typing import Any

from benchmarks import table as table_lib
from benchmarks.strands import arms as arms_lib
from benchmarks.strands import module as module_lib

NAME = "exposed"

# Kind, executions per step, GPUs and bytes.
_Place = tuple[str, int, int, int]

# Less, as a share of the step, is not shown.
_LEAST = 1e-3

_COLUMNS = (
  table_lib.Column(field="module", heading="module"),
  table_lib.Column(field="form", heading="form"),
  table_lib.Column(field="kind", heading="collective"),
  table_lib.Column(field="executions", heading="per step", form="d"),
  table_lib.Column(field="num_ranks", heading="GPUs", form="d"),
  table_lib.Column(field="mbytes", heading="MB", form=".1f"),
  table_lib.Column(field="alone_ms", heading="alone ms", form=".1f"),
  table_lib.Column(field="exposed_ms", heading="exposed ms", form=".1f"),
  table_lib.Column(field="share", heading="of the step", form=".1%"),
)


def table_of(rows: Sequence[table_lib.Row]) -> table_lib.Table:
  """The table of these rows."""
  return table_lib.Table(
    name=NAME,
    title="What stays exposed in the best form",
    columns=_COLUMNS,
    rows=rows,
    notes=(
      "Predicted. Collectives of one kind and size that run equally often are"
      f" one row; those below {_LEAST:.1%} of the step are left out.",
    ),
  )


def rows(
  module: module_lib.Module, arms: arms_lib.Arms
) -> list[dict[str, Any]]:
  """What is exposed in the best form of a train step, most of it first."""
  tuned, step = arms.best.tuned, arms.best.candidate.step
  settings = arms.best.candidate.settings
  exposed_us: dict[_Place, float] = collections.defaultdict(float)
  alone_us: dict[_Place, float] = collections.defaultdict(float)
  for collective in step.analysis.collectives:
    key = step.key_of[collective.name]
    place = (
      collective.kind,
      collective.executions,
      key.num_ranks,
      key.num_bytes,
    )
    exposed_us[place] += tuned.exposed_us.get(collective.name, 0.0)
    once_us = step.predict(key, settings[key]).time_us
    alone_us[place] += collective.executions * once_us
  found = []
  for place in sorted(exposed_us, key=lambda place: -exposed_us[place]):
    share = exposed_us[place] / tuned.step_time_us
    if share < _LEAST:
      break
    kind, executions, num_ranks, num_bytes = place
    found.append(
      {
        "module": module.name,
        "form": arms.best.name,
        "kind": kind,
        "executions": executions,
        "num_ranks": num_ranks,
        "mbytes": num_bytes / 1e6,
        "alone_ms": alone_us[place] / 1e3,
        "exposed_ms": exposed_us[place] / 1e3,
        "share": share,
      }
    )
  return found
