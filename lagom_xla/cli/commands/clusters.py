# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""lagom-xla clusters: the GPUs, machines and clusters known by name."""

from __future__ import annotations

import argparse

from lagom_xla.cli import options
from lagom_xla.cli import output

_EXAMPLES = """\
--cluster takes NODESxGPUSxGPU for a GPU in the node it usually sits in,
NODESxMACHINE for a machine as clouds rent it out, GPUSxGPU for a single node,
the name of a cluster, or a JSON file with your own figures.

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
    "Lists the GPUs, machines and clusters that --cluster knows by name.",
    _EXAMPLES,
  )
  options.add_format(command)


def _run(arguments: argparse.Namespace) -> None:
  from lagom_xla.report.printed import clusters

  known = clusters.known()
  if arguments.format == "json":
    from lagom_xla import validation

    output.write_json([validation.write(row) for row in known])
    return
  import rich.table

  table = rich.table.Table(box=None, pad_edge=False)
  for heading in ("--cluster", "GPU", "per node", "network", "fabric"):
    table.add_column(heading, overflow="fold")
  table.columns[0].no_wrap = True  # What is typed is one word.
  for row in known:
    network = f"{row.num_nics} x {row.nic_gbps * 8:g} Gbit/s"
    gpus = str(row.gpus_per_node)
    table.add_row(row.name, row.gpu, gpus, network, row.fabric)
  output.console().print(table)
