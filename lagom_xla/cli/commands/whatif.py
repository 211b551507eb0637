# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""lagom-xla whatif: a step on other clusters, node counts and networks."""

from __future__ import annotations

import argparse
import pathlib
from typing import TYPE_CHECKING

from lagom_xla import errors
from lagom_xla.cli import options
from lagom_xla.cli import output
from lagom_xla.cli import stopping

if TYPE_CHECKING:
  from lagom_xla import cluster as cluster_lib
  from lagom_xla.compile import target as target_lib
  from lagom_xla.whatif import comparison as comparison_lib

_EXAMPLES = f"""\
{options.TARGET_HELP}
Your function is called once for each number of GPUs and returns the step for
it, for example with a larger batch. An HLO module has a fixed number of GPUs:
you can compare GPUs and networks, but not node counts.

examples:
  lagom-xla whatif train.py:train_step --cluster=4x8xh100,4x8xh200,2xp5.48xlarge
  lagom-xla whatif train.py:train_step --cluster=4x8xh100 \\
      --network-gbps=100,200,400 --tokens-per-step=262144
  lagom-xla whatif train.py:train_step --cluster=8x8xh100 --nodes=2,4,8,16
  lagom-xla whatif train.py:train_step --cluster=8x8xh100 --report=page.html"""


def add(commands) -> None:
  """Adds the command."""
  command = options.add_command(
    commands,
    "whatif",
    _run,
    "Predicts a step on several clusters, node counts and networks, to show"
    " the effect of a faster network or fewer nodes.",
    _EXAMPLES,
  )
  command.add_argument("target", metavar="TARGET", help="see below")
  command.add_argument(
    "--cluster",
    required=True,
    action="append",
    metavar="CLUSTERS",
    help="comma-separated clusters; may be repeated; `lagom-xla clusters` lists"
    " them",
  )
  options.add_processes(command)
  options.add_arg(command)
  command.add_argument(
    "--network-gbps",
    type=_rates,
    default=(),
    metavar="GBPS",
    help="comma-separated network rates, in Gbit/s per GPU of a node"
    " (default: each cluster's own)",
  )
  command.add_argument(
    "--nodes",
    type=_counts,
    metavar="COUNTS",
    help="comma-separated node counts to also compile for (default: none; with"
    " --report, powers of two from 1 to 1024)",
  )
  per_step = command.add_mutually_exclusive_group()
  for unit in ("tokens", "examples"):
    per_step.add_argument(
      f"--{unit}-per-step",
      type=_amount,
      metavar="N",
      help=f"{unit} per step on the first cluster; elsewhere they grow like the"
      " program's matmuls",
    )
  command.add_argument(
    "--search",
    choices=("none", "quick", "full"),
    default="quick",
    help="what to search for a plan: nothing; NCCL settings of today's"
    " schedule; or also XLA's options, which takes as long as tune for each"
    " cluster of --cluster (default: %(default)s)",
  )
  command.add_argument(
    "--report",
    metavar="FILE",
    help="write an HTML page with curves by nodes and by network",
  )
  options.add_format(command)
  options.add_compiling(command)
  options.add_time_budget(command)


def _run(arguments: argparse.Namespace) -> None:
  arguments.cluster = ",".join(arguments.cluster)
  options.check_pictures(arguments)
  comparison, stopped = _compare(arguments)
  stopping.end_time_budget()
  from lagom_xla.whatif import shown

  files = []
  if arguments.report:
    shown.write(comparison, pathlib.Path(arguments.report))
    files.append(arguments.report)
  output.write_result(
    arguments,
    lambda: comparison,
    lambda console: shown.show(console, comparison, files),
    files,
  )
  if stopped is not None:
    output.say(
      f"stopped by {stopped.reason}: clusters that are not shown were not"
      " reached. The next run reuses finished compiles."
    )
    stopping.end(stopped.exit_status)


def _compare(
  arguments: argparse.Namespace,
) -> tuple[comparison_lib.Comparison, errors.Stopped | None]:
  from lagom_xla.compile import source
  from lagom_xla.whatif import cases as cases_lib

  clusters, rates = arguments.cluster, arguments.network_gbps
  # First checks that do not import JAX, which is slow.
  per_node = arguments.processes_per_node
  rows = cases_lib.in_processes(cases_lib.named(clusters, rates), per_node)
  source.check(arguments.target)

  with options.at_work(arguments, lines=True) as (bar, workers):
    from lagom_xla.cli import elsewhere
    from lagom_xla.cli import naming
    from lagom_xla.compile import load as load_lib
    from lagom_xla.flags import environment
    from lagom_xla.whatif import comparing

    environment.check()
    is_python = load_lib.is_python(arguments.target)
    counts = arguments.nodes or ()
    if counts and not is_python:
      raise errors.TargetError(
        f"{arguments.target} is an HLO module for a fixed number of GPUs. For"
        " --nodes, pass the Python function that builds the step, such as"
        " train.py:train_step."
      )
    if arguments.nodes is None and arguments.report and is_python:
      counts = cases_lib.NODE_COUNTS
    points = cases_lib.in_processes(
      cases_lib.sized(clusters, counts, rates), per_node
    )
    bar.expect(len({cluster.name for cluster in (*rows, *points)}))
    lowered = elsewhere.loader(arguments.target, options.keywords(arguments))

    def load(cluster: cluster_lib.Cluster) -> target_lib.Target:
      bar.say(f"lowering {arguments.target} for {cluster.name}")
      target = options.watched(lambda: lowered(cluster))
      return target if workers is None else target.with_workers(workers)

    unit = "tokens" if arguments.tokens_per_step else None
    unit = "examples" if arguments.examples_per_step else unit
    with bar.told_of_compiles(naming.Names(), for_clusters=True):
      return comparing.compare(
        rows,
        points,
        load=load,
        target=arguments.target,
        search=arguments.search,
        unit=unit,
        per_step=arguments.tokens_per_step or arguments.examples_per_step,
        num_ahead=0 if workers is None else workers.max_workers,
        progress=bar.advance,
      )


def _rates(text: str) -> tuple[float, ...]:
  return tuple(_amount(part) for part in text.split(","))


def _counts(text: str) -> tuple[int, ...]:
  counts = [part.strip() for part in text.split(",")]
  if not all(part.isdecimal() and int(part) for part in counts):
    raise argparse.ArgumentTypeError(
      f"{text!r} is not a list of node counts such as 1,4,16"
    )
  return tuple(sorted(set(map(int, counts))))


def _amount(text: str) -> float:
  try:
    amount = float(text)
  except ValueError:
    amount = 0.0
  if not 0 < amount < 1e18:
    raise argparse.ArgumentTypeError(f"{text!r} is not a number above 0")
  return amount
