# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Errors of the cost model on figures that others measured.

    python -m benchmarks.accuracy [--data FOLDER] [--plot=FILE.png]
        [--format=text|csv] [--csv=FOLDER]

Predicts each figure and prints the relative errors by group. Tables of figures
are in benchmarks/data. Rows of nccl-tests, and modules and traces of whole
steps, are read from the folder in --data; missing ones are reported on stderr
and skipped. In "held out" groups, the fit did not see the judged system. In
"calibrated" groups, it saw a third of the system's rows. "Unseen" groups are
systems that were unknown when the model was made. --plot draws predictions over
measurements.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
import functools
import pathlib
import re

from benchmarks import data as data_lib
from benchmarks import groups
from benchmarks import paper_facts
from benchmarks import table as table_lib
from benchmarks.collectives import calibrated
from benchmarks.collectives import channel_rows
from benchmarks.collectives import fit_networks
from benchmarks.collectives import fit_paths
from benchmarks.collectives import lone_collective
from benchmarks.collectives import nccl_sweeps
from benchmarks.collectives import nccl_tests
from benchmarks.collectives import unseen
from benchmarks.kernels import lone_kernels
from benchmarks.steps import published
from benchmarks.steps import slowdowns
from benchmarks.steps import times as step_times
from benchmarks.steps import traced_step
from lagom_xla import cluster as cluster_lib
from lagom_xla import errors
from lagom_xla.costs import gemm
from lagom_xla.costs import nccl

_NCCL_KINDS = {
  "AllReduce": "all-reduce",
  "AllGather": "all-gather",
  "ReduceScatter": "reduce-scatter",
  "Broadcast": "collective-broadcast",
  "Reduce": "reduce",
}
_NCCL_ALGORITHMS = {"NVLST": "nvlstree", "NVLS_TREE": "nvlstree"}
# "8xH100-SXM NVSwitch + 8x400Gb NIC"
_NODE = re.compile(
  r"(?P<gpus>\d+)x(?P<gpu>\w+)-SXM NVSwitch"
  r"(?: \+ (?P<nics>\d+)x(?P<gbits>\d+)Gb NIC)?"
)


def nccl_choices() -> Iterator[groups.Group]:
  """The choices and predictions of NCCL 2.32.3 itself."""
  table = data_lib.rows("nccl_2_32_3_choices")
  mismatches, times = [], []
  for row in table:
    num_nodes = int(row["n_nodes"])
    cluster = _cluster(row["node"], num_nodes)
    communicator = nccl.Communicator(
      num_ranks=int(row["n_ranks"]), num_nodes=num_nodes
    )
    kind, num_bytes = _NCCL_KINDS[row["collective"]], int(row["n_bytes"])
    key = (cluster, communicator, kind, num_bytes)
    chosen = nccl.default_setting(*key)
    algorithm = row["algorithm"].upper()
    wanted = (
      _NCCL_ALGORITHMS.get(algorithm, algorithm.lower()),
      row["protocol"].lower(),
      int(row["n_channels"]),
    )
    what = f"{row['node']}, {num_nodes} nodes, {kind} {num_bytes} B"
    if wanted != (chosen.algorithm, chosen.protocol, chosen.num_channels):
      mismatches.append(f"{what}: NCCL says {wanted}, the model {chosen}")
    predicted_us = nccl.predicted_time_us(*key, *wanted[:2])
    measured_us = float(row["predicted_time_us"])
    times.append(groups.Comparison(what, measured_us, predicted_us))
  yield groups.of_matches("NCCL's choices", mismatches, len(table))
  yield groups.of_comparisons("NCCL's own times", times)


@functools.cache
def _cluster(node: str, num_nodes: int) -> cluster_lib.Cluster:
  found = _NODE.fullmatch(node)
  if found is None:
    raise ValueError(f"{node!r} is not a node this benchmark can describe.")
  # The tables of NCCL are for nodes with Intel CPUs.
  figures: dict[str, object] = {"cpu_vendor": "intel"}
  if found["nics"]:
    figures["num_nics"] = int(found["nics"])
    figures["nic_gbps"] = int(found["gbits"]) / 8
  raw = {
    "gpu": found["gpu"].lower().replace("a100", "a100_80"),
    "num_nodes": num_nodes,
    "gpus_per_node": int(found["gpus"]),
    "node": figures,
  }
  return cluster_lib.from_dict(raw, where=node)


_SIZES = {True: "64 KiB and more", False: "below 64 KiB"}


def collectives() -> Iterator[groups.Group]:
  """Lone collectives by device, with separate groups for small ones."""
  yield from groups.by_name(
    "collectives: ",
    (
      (
        f"{row.device}, {_SIZES[row.is_large]}",
        row.comparison(
          f"{row.key.kind} of {row.key.num_bytes} B over {row.key.num_ranks}"
        ),
      )
      for row in lone_collective.read_table()
    ),
  )


# The table's names -> ours.
_PRODUCT_GPUS = {"sm_90": "h100", "sm_100_B200": "b200"}


def products() -> Iterator[groups.Group]:
  """Lone matrix products, by GPU and precision."""
  yield from groups.by_name("products: ", _products())


def _products() -> Iterator[tuple[str, groups.Comparison]]:
  for row in data_lib.rows("matmul_flops"):
    if row["device"] not in _PRODUCT_GPUS:
      continue
    gpu = _gpu(_PRODUCT_GPUS[row["device"]])
    shape = {name: int(row[name]) for name in ("batch", "m", "n", "k")}
    batch, m, n, k = shape.values()
    lhs, _, rest = row["dtypes"].partition("x")
    rhs, _, out = rest.partition("->")
    flops = 2.0 * batch * m * n * k
    yield (
      f"{row['device']}, {'fp8' if lhs.startswith('f8') else lhs}",
      groups.Comparison(
        f"{row['dtypes']} {shape}, us",
        flops / float(row["flops_per_second"]) * 1e6,
        gemm.tabulated_us(gpu, (batch, m, n, k), (lhs, rhs, out)),
      ),
    )


@functools.cache
def _gpu(name: str) -> cluster_lib.Gpu:
  return cluster_lib.parse(f"1x1x{name}").gpu


# GPUs with fitted lone products, or with the same chip at full power.
_NEAR = ("a100_80", "h100", "h200", "gh200", "b200", "gb200", "b300")


def unseen_products() -> Iterator[groups.Group]:
  """The fastest products that users found, on GPUs like the fits' or not.

  For each GPU, type and table, the shape with the highest rate among thousands
  that mamf-finder tries, one product at a time. Nothing was fitted to them.
  Since these are the best of varying times, the model should predict slightly
  longer ones.
  """
  yield from groups.by_name(
    "unseen products: ", map(_unseen, data_lib.rows("unseen/products"))
  )


def _unseen(row: dict[str, str]) -> tuple[str, groups.Comparison]:
  gpu, type_ = _gpu(row["gpu"]), row["type"]
  m, n, k = (int(row[side]) for side in "mnk")
  types = (type_, type_, "f16" if type_ == "f16" else "bf16")
  in_step = gemm.fitted(gpu, type_, type_).in_step
  return (
    "SXM and Superchips" if row["gpu"] in _NEAR else "V100 and cards",
    groups.Comparison(
      f"{row['gpu']}, {type_} {m}x{n}x{k}, us",
      2 * m * n * k / (1e6 * float(row["tflops"])),
      gemm.predict_us(gpu, (1, m, n, k), types) / in_step,
    ),
  )


_PANELS = ("products", "collectives")


def draw(found: Sequence[groups.Group], file: pathlib.Path) -> None:
  """Writes the plot, with a panel for each kind of group."""
  import matplotlib.pyplot as plt

  figure, axes = plt.subplots(
    1, len(_PANELS), figsize=(11, 5.5), layout="constrained"
  )
  for axis, panel in zip(axes, _PANELS, strict=True):
    shown_us: list[float] = []
    for group in found:
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
  """Runs the command."""
  parser = table_lib.parser("benchmarks.accuracy", __doc__)
  parser.add_argument("--data", type=table_lib.folder)
  parser.add_argument("--plot", type=pathlib.Path)
  arguments = parser.parse_args()
  found = list(all_groups(arguments.data))
  table = groups.table("Relative errors of the cost model", found)
  table_lib.show([table], arguments.format, arguments.csv)
  if arguments.plot is not None:
    draw(found, arguments.plot)


def all_groups(data: pathlib.Path | None = None) -> Iterator[groups.Group]:
  """Every group that can be compared here.

  Args:
    data: the folder with modules and traces; None skips their groups.
  """
  yield from nccl_choices()
  yield from collectives()
  yield from products()
  yield from channel_rows.compare()
  yield from unseen.compare()
  yield from unseen_products()
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


def _nccl_tests(folder: pathlib.Path) -> Iterator[groups.Group]:
  yield from nccl_tests.compare(folder)
  yield from fit_paths.compare(folder.parent)
  yield from fit_networks.compare(folder)
  yield from calibrated.compare(folder)
  yield from nccl_sweeps.compare(folder)


# File or folder in --data -> the function that compares it.
_STEPS: Mapping[str, Callable[[pathlib.Path], Iterator[groups.Group]]] = {
  "nccl_tests": _nccl_tests,
  "contention": lone_kernels.groups_of_pytorch,
  "hlo": published.groups,
}


def _leave_out(name: str, reason: str) -> None:
  table_lib.say(f"accuracy: {name} left out: {reason}")


if __name__ == "__main__":
  main()
