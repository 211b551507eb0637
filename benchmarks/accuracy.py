# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""The cost model's errors on figures that were measured elsewhere.

    python -m benchmarks.accuracy [--data FOLDER] [--format=text|json]
        [--plot=FILE.png]

Predicts each figure and prints the relative errors by group. Tables of figures
come with the benchmarks (benchmarks/data); rows of nccl-tests, modules and
traces of whole steps do not, and are read from the folder that --data names.
What is not there is left out, and named on stderr. Groups that say "held out"
are of fits that did not see the system they are judged on, those that say
"calibrated" of systems of which a third of the rows was seen, and "unseen" ones
of systems that the model was not made on. --plot draws what was predicted over
what was measured.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Mapping, Sequence
import json
import pathlib
import sys

from benchmarks import data as data_lib
from benchmarks import groups as groups_lib
from benchmarks import measured
from benchmarks import paper_facts
from benchmarks import table as table_lib
from benchmarks.collectives import calibrated
from benchmarks.collectives import channel_rows
from benchmarks.collectives import fit_networks
from benchmarks.collectives import fit_paths
from benchmarks.collectives import nccl_sweeps
from benchmarks.collectives import nccl_tests
from benchmarks.collectives import unseen
from benchmarks.kernels import lone_kernels
from benchmarks.steps import published
from benchmarks.steps import slowdowns
from benchmarks.steps import times as step_times
from benchmarks.steps import traced_step
from lagom_xla import errors

_PANELS = ("products", "collectives")


def draw(groups: Sequence[groups_lib.Group], file: pathlib.Path) -> None:
  """Writes the picture; groups are sorted into panels by their names."""
  import matplotlib.pyplot as plt

  figure, axes = plt.subplots(
    1, len(_PANELS), figsize=(11, 5.5), layout="constrained"
  )
  for axis, panel in zip(axes, _PANELS, strict=True):
    shown_us: list[float] = []
    for group in groups:
      if group.name.startswith(panel):
        measured_us = [c.measured for c in group.comparisons]
        predicted_us = [c.predicted for c in group.comparisons]
        label = group.name.removeprefix(f"{panel}: ")
        axis.scatter(measured_us, predicted_us, s=4, label=label)
        shown_us += measured_us
    limits_us = [min(shown_us), max(shown_us)]
    axis.plot(limits_us, limits_us, color="black", linewidth=0.8)
    axis.set(
      title=f"Lone {panel}",
      xscale="log",
      yscale="log",
      xlabel="measured, us",
      ylabel="predicted, us",
    )
    axis.legend(fontsize="x-small", markerscale=3)
  figure.savefig(file, dpi=110)


def main() -> None:
  """The command."""
  parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
  parser.add_argument("--data", type=table_lib.folder)
  parser.add_argument("--format", choices=("text", "json"), default="text")
  parser.add_argument("--plot", type=pathlib.Path)
  arguments = parser.parse_args()
  data_lib.compile_ahead_of_time()
  found = list(all_groups(arguments.data))
  if arguments.format == "json":
    print(json.dumps({"groups": [g.to_dict() for g in found]}))
  else:
    groups_lib.show("Relative errors of the cost model", found)
  if arguments.plot is not None:
    draw(found, arguments.plot)


def all_groups(data: pathlib.Path | None = None) -> Iterator[groups_lib.Group]:
  """Every group that can be compared here.

  Args:
    data: the folder with modules and traces; None leaves their groups out.
  """
  yield from measured.nccl_choices()
  yield from measured.collectives()
  yield from measured.products()
  yield from channel_rows.compare()
  yield from unseen.compare()
  yield from measured.unseen_products()
  if data is not None:
    for folder in traced_step.folders(data):
      trace = traced_step.TracedStep(folder)
      yield from lone_kernels.groups(trace)
      yield from slowdowns.groups(trace)
      yield from step_times.groups(trace)
  for name, compare in _STEPS.items():
    if data is None or not (data / name).exists():
      _leave_out(name, f"{data} has none" if data else "it needs --data FOLDER")
      continue
    try:
      yield from compare(data / name)
    except errors.CompileError as error:
      _leave_out(name, str(error))
  yield from paper_facts.groups()
  yield from nccl_sweeps.compare_autoccl()


def _nccl_tests(folder: pathlib.Path) -> Iterator[groups_lib.Group]:
  yield from nccl_tests.compare(folder)
  yield from fit_paths.compare(folder.parent)
  yield from fit_networks.compare(folder)
  yield from calibrated.compare(folder)
  yield from nccl_sweeps.compare(folder)


# File or folder of --data -> what compares it.
_STEPS: Mapping[str, Callable[[pathlib.Path], Iterator[groups_lib.Group]]] = {
  "nccl_tests": _nccl_tests,
  "contention": lone_kernels.groups_of_pytorch,
  "hlo": published.groups,
}


def _leave_out(name: str, reason: str) -> None:
  print(f"accuracy: {name} left out: {reason}", file=sys.stderr)


if __name__ == "__main__":
  main()
