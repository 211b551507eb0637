# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""The spread of the cost model's errors, by part: costs/fitted/errors.json.

    python -m benchmarks.errors --data FOLDER [--write] [--format=text|csv]

Computes the spreads from the groups of `python -m benchmarks.accuracy`, from
held-out groups if a part has any. An error is ln(measured / predicted). A
spread contains 90 % of the errors, and always 0. The unit of an error is
something that a plan can choose or a step adds up: a measured collective; the
loss of all kernels beside one collective, weighted by that loss; the sum of all
kernels of a step that ran alone, resampled from its classes (a bootstrap); and
a whole step predicted from its module.

Two kinds of errors count with both signs: those of the ratio of two algorithms,
because NCCL's own choice differs by size and GPU; and those of a step's
kernels, because the few traced steps do not show the sign for the next one.
"""

from __future__ import annotations

import collections
from collections.abc import Callable, Iterable, Mapping, Sequence
import dataclasses
import re
import sys
from typing import Any

import numpy as np

from benchmarks import accuracy
from benchmarks import data as data_lib
from benchmarks import groups as groups_lib
from benchmarks import table as table_lib
from lagom_xla import costs
from lagom_xla.costs import uncertainty

# Smaller slowdowns are noise of a trace.
_LEAST_LOSS = 0.05

# Bootstrap samples of each traced step's kernels; the seed is fixed.
_NUM_DRAWS = 1000


# The number of figures, ln(measured / predicted), and weights.
_Errors = tuple[int, np.ndarray, np.ndarray]


def _of_figures(group: groups_lib.Group) -> _Errors:
  logs = np.log([c.measured / c.predicted for c in group.comparisons])
  return len(logs), logs, np.ones_like(logs)


def _of_losses(group: groups_lib.Group) -> _Errors:
  """Errors by collective; comparisons are named "KERNEL beside COLLECTIVE"."""
  beside = collections.defaultdict(list)
  for comparison in group.comparisons:
    beside[comparison.what.rpartition(" beside ")[2]].append(comparison)

  def lost(ratios: Iterable[float]) -> float:
    return sum(max(ratio - 1, _LEAST_LOSS) for ratio in ratios)

  predicted = [lost(c.predicted for c in found) for found in beside.values()]
  measured = [lost(c.measured for c in found) for found in beside.values()]
  logs = np.log(np.divide(measured, predicted))
  return len(beside), logs, np.maximum(predicted, measured)


def _of_sums(group: groups_lib.Group) -> _Errors:
  """Errors of sums over bootstrap samples of the figures."""
  predicted = np.array([c.predicted for c in group.comparisons])
  measured = np.array([c.measured for c in group.comparisons])
  n = len(measured)
  drawn = np.random.default_rng(0).integers(n, size=(_NUM_DRAWS, n))
  logs = np.log(measured[drawn].sum(axis=1) / predicted[drawn].sum(axis=1))
  return n, logs, np.ones_like(logs)


_BY_PART: Mapping[str, Callable[[groups_lib.Group], _Errors]] = {
  "contention": _of_losses,
  "products": _of_sums,
  "other_kernels": _of_sums,
}
# In the other parts, errors of other figures are likely to have the same sign.
_BOTH_WAYS = ("short_settings", "long_settings", "products", "other_kernels")


# Marks of groups whose figures no fit saw.
_HELD_OUT = ("held out", "calibrated on a third")
_FABRIC = r"(?P<fabric>infiniband|roce|efa|slingshot|tcpxo?)"
_CALIBRATED = "nccl-tests, calibrated on a third"
# Times of colliding scatters depend on the data, which no module has.
_LESS_SCATTERS = ", less colliding scatters"
# Part -> its groups of benchmarks.accuracy; each `fabric` is a separate part.
_GROUPS = {
  "small_collectives": r"collectives: .*, below 64 KiB",
  "within_nodes": r"nccl-tests(, held out)?: one node, 64 KiB and more",
  "between_nodes": r"nccl-tests(, held out)?: several nodes, 64 KiB and more",
  "between_nodes.": rf"nccl-tests(, held out)?: several nodes, {_FABRIC}",
  "within_nodes.calibrated": rf"{_CALIBRATED}: one node",
  "between_nodes.calibrated": rf"{_CALIBRATED}: several nodes",
  "between_nodes.calibrated.": rf"{_CALIBRATED}: several nodes, {_FABRIC}",
  "few_channels": r"sweeps: one channel|few channels: .*",
  "short_settings": r"sweeps: another algorithm, short parts",
  "long_settings": r"sweeps: another algorithm, long parts",
  "contention": r".*: kernels beside collectives",
  "products": r".*: lone products",
  "other_kernels": r".*: lone other kernels",
  "steps": r"published: .*, steps"
  rf"|.*: step time from module and spec({_LESS_SCATTERS})?",
}
# Nothing is fitted to sweeps.
_NOT_FITTED = ("few_channels", "short_settings", "long_settings")


def spreads(
  found: Iterable[groups_lib.Group],
) -> dict[str, uncertainty.Spread]:
  """The spread of each part that has groups."""
  groups = {group.name: group for group in found}
  for name in [name for name in groups if name.endswith(_LESS_SCATTERS)]:
    groups.pop(name.removesuffix(_LESS_SCATTERS), None)
  shown = collections.defaultdict(list)
  for group in groups.values():
    for part, pattern in _GROUPS.items():
      match = re.fullmatch(pattern, group.name)
      if match is not None and group.comparisons:
        fabric = match.groupdict().get("fabric") or ""
        shown[part + fabric].append(group)
  return {part: _spread(part, shown[part]) for part in sorted(shown)}


def _spread(part: str, shown: Sequence[groups_lib.Group]) -> uncertainty.Spread:
  held_out = [g for g in shown if any(words in g.name for words in _HELD_OUT)]
  shown = held_out or shown
  numbers, *errors = zip(
    *(_BY_PART.get(part, _of_figures)(group) for group in shown), strict=True
  )
  logs, weights = map(np.concatenate, errors)
  signed = logs, weights
  if part in _BOTH_WAYS:
    signed = np.concatenate([logs, -logs]), np.concatenate([weights, weights])
  return uncertainty.Spread(
    groups=tuple(group.name for group in shown),
    n=sum(numbers),
    median=_quantile(np.abs(logs), weights, 0.5),
    p90=_quantile(np.abs(logs), weights, 0.9),
    low=min(_quantile(*signed, 0.05), 0.0),
    bias=_quantile(logs, weights, 0.5),
    high=max(_quantile(*signed, 0.95), 0.0),
    is_held_out=bool(held_out) or part in _NOT_FITTED,
  )


def _quantile(values: np.ndarray, weights: np.ndarray, share: float) -> float:
  """The weighted quantile: the value above this share of all weight."""
  order = np.argsort(values)
  below = (np.cumsum(weights[order]) - weights[order] / 2) / weights.sum()
  return float(f"{np.interp(share, below, values[order]):.3g}")


def document(found: Mapping[str, uncertainty.Spread]) -> dict[str, Any]:
  """The contents of errors.json."""
  parts = {part: dataclasses.asdict(found[part]) for part in found}
  return {**costs.read_fitted("errors"), "parts": parts}


def main() -> None:
  """Runs the command."""
  parser = table_lib.parser("benchmarks.errors", __doc__)
  parser.add_argument("--data", type=table_lib.folder, required=True)
  parser.add_argument("--write", action="store_true")
  arguments = parser.parse_args()
  found = spreads(accuracy.all_groups(arguments.data))
  table = table_lib.Table(
    name="errors",
    title="Spread of ln(measured / predicted), by part of the cost model",
    columns=table_lib.columns(
      part="",
      n="d",
      **dict.fromkeys(("median", "p90"), ".3f"),
      **dict.fromkeys(("low", "bias", "high"), "+.3f"),
      held_out="",
      groups="",
    ),
    rows=[
      {
        **dataclasses.asdict(spread),
        "part": part,
        "held_out": "yes" if spread.is_held_out else "no",
        "groups": "; ".join(spread.groups),
      }
      for part, spread in found.items()
    ],
  )
  table_lib.show([table], arguments.format, arguments.csv)
  missing = [
    part for part in _GROUPS if not part.endswith(".") and part not in found
  ]
  if missing:
    sys.exit(f"errors: {arguments.data} shows nothing of {', '.join(missing)}.")
  if arguments.write:
    data_lib.write_fitted("errors", document(found))


if __name__ == "__main__":
  main()
