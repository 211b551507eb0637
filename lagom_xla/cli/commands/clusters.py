# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""lagom-xla clusters and calibrate: known clusters, and your own."""

from __future__ import annotations

import argparse
import pathlib
import sys
from typing import TYPE_CHECKING

from lagom_xla.cli import options
from lagom_xla.cli import output

if TYPE_CHECKING:
  import rich.console

  from lagom_xla.calibrate import calibration as calibration_lib

_EXAMPLES = """\
--cluster takes NODESxGPUSxGPU for a GPU in its usual node, NODESxMACHINE for a
cloud machine, GPUSxGPU for a single node, the name of a cluster, or a JSON file
with your own figures.

examples:
  lagom-xla clusters
  lagom-xla tune train.py:train_step --cluster=16x8xh100
  lagom-xla tune train.py:train_step --cluster=4xp5.48xlarge"""


def add(commands) -> None:
  """Adds the command."""
  command = options.add_command(
    commands,
    "clusters",
    _run,
    "Lists the names of GPUs, machines and clusters for --cluster.",
    _EXAMPLES,
  )
  options.add_format(command)


def _run(arguments: argparse.Namespace) -> None:
  from lagom_xla.report import clusters

  known = clusters.known()
  if arguments.format == "json":
    output.write_json(known)
    return
  import rich.table

  table = rich.table.Table(box=None, pad_edge=False)
  for heading in ("--cluster", "GPU", "per node", "network", "fabric"):
    table.add_column(heading, overflow="fold")
  table.columns[0].no_wrap = True  # Users type it as one word.
  for row in known:
    network = f"{row.num_nics} x {row.nic_gbps * 8:g} Gbit/s"
    gpus = str(row.gpus_per_node)
    table.add_row(row.name, row.gpu, gpus, network, row.fabric)
  output.console().print(table)


_CALIBRATE_EXAMPLES = """\
LOG is the output of nccl-tests: all_reduce_perf, all_gather_perf,
reduce_scatter_perf, alltoall_perf, sendrecv_perf or broadcast_perf, any
version, one run or several, with or without NCCL_DEBUG=INFO. docs/calibrate.md
says what to run.

examples:
  mpirun -np 16 -N 8 all_reduce_perf -b 64K -e 4G -f 2 | tee all_reduce.log
  lagom-xla calibrate --cluster=2x8xh100 *.log --out=mycluster.json
  lagom-xla tune train.py:train_step --cluster=mycluster.json"""
# Most rows shown; the rest are counted.
_MOST_DOUBTS = 20


def add_calibrate(commands) -> None:
  """Adds the command."""
  command = options.add_command(
    commands,
    "calibrate",
    _run_calibrate,
    "Fits a cluster's latencies and rates to your nccl-tests logs, and writes a"
    " cluster file.",
    _CALIBRATE_EXAMPLES,
  )
  command.add_argument("logs", metavar="LOG", nargs="+", help="see below")
  options.add_cluster(command)
  command.add_argument(
    "--out",
    default="cluster.json",
    metavar="FILE.json",
    help="the cluster file (default: %(default)s); an older one is replaced",
  )
  options.add_format(command)


def _run_calibrate(arguments: argparse.Namespace) -> None:
  from lagom_xla import cluster as cluster_lib
  from lagom_xla.calibrate import calibration as calibration_lib

  path = pathlib.Path(arguments.out)
  calibration_lib.check(path)
  cluster = cluster_lib.parse(arguments.cluster)
  logs = [pathlib.Path(log) for log in arguments.logs]
  measured = calibration_lib.read(cluster, logs)
  for line in measured.problems:
    print(f"lagom-xla: {line}", file=sys.stderr)
  result = calibration_lib.calibrate(cluster, measured)
  for line in result.notes:
    output.say(line)
  calibration_lib.write(path, result.cluster, result.sources)
  from lagom_xla.report import calibration

  output.write_result(
    arguments,
    lambda: calibration.of_result(result, measured, path),
    lambda console: _show(console, result, path),
    [path],
  )


def _show(
  console: rich.console.Console,
  result: calibration_lib.Result,
  path: pathlib.Path,
) -> None:
  import rich.table

  from lagom_xla.costs import in_words

  for name, factors in (
    ("Within a node", result.calibration.within_node),
    ("Between nodes", result.calibration.between_nodes),
  ):
    console.print(
      f"{name}: latency x {factors.latency_factor:.3g}, rate x"
      f" {factors.rate_factor:.3g}",
      highlight=False,
    )
    for moved, rate_factor in factors.rate_factors.items():
      console.print(
        f"  {moved}: latency x {factors.latency_factors[moved]:.3g} again, rate"
        f" x {rate_factor:.3g} again",
        highlight=False,
      )
    for reduced, rate_factor in factors.type_factors.items():
      console.print(
        f"  reductions of {reduced}: rate x {rate_factor:.3g} again",
        highlight=False,
      )
  table = rich.table.Table(
    rich.table.Column("collective", no_wrap=True),
    "ranks",
    "nodes",
    "rows",
    box=None,
    pad_edge=False,
  )
  for heading in ("before", "after", "held out"):
    table.add_column(f"{heading}: median, p90", justify="right")
  for fit in result.fits:
    counts = (fit.num_ranks, fit.num_nodes, fit.num_rows)
    known = (fit.before, fit.after, fit.held_out)
    table.add_row(
      f"{fit.kind} {fit.element_type}".rstrip(),
      *map(str, counts),
      *(f"{off.median:.1%}, {off.p90:.1%}" for off in known),
    )
  console.print(table)
  doubted = [sample for sample in result.samples if sample.doubt]
  for sample in doubted[:_MOST_DOUBTS]:
    console.print(f"Distrusted: {sample.where} {sample.doubt}", soft_wrap=True)
  num_more = len(doubted) - _MOST_DOUBTS
  if num_more > 0:
    console.print(f"... and {in_words.count(num_more, 'more row')}")
  console.print(f"Wrote {path}, for --cluster={path}", soft_wrap=True)
