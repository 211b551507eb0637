# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""lagom-xla clusters: the GPUs, machines and clusters known by name."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from lagom_xla.cli import command as command_lib
from lagom_xla.cli import output

if TYPE_CHECKING:
  from lagom_xla import cluster as cluster_lib

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
  command = command_lib.add(
    commands,
    "clusters",
    _run,
    "Lists the GPUs, machines and clusters that --cluster knows by name.",
    _EXAMPLES,
  )
  command_lib.add_format(command)


def _run(arguments: argparse.Namespace) -> None:
  from lagom_xla import cluster as cluster_lib

  gpus = [
    cluster_lib.from_dict({"gpu": name}, where=name)
    for name in cluster_lib.gpu_names()
  ]
  machines = [cluster_lib.parse(f"1x{n}") for n in cluster_lib.machine_names()]
  named = [cluster_lib.parse(name) for name in cluster_lib.cluster_names()]
  rows = [
    *(_row(c, f"NODESx{c.gpus_per_node}x{c.gpu.name}") for c in gpus),
    *(_row(c, f"NODES{c.name[1:]}") for c in machines),
    *(_row(c, c.name) for c in named),
  ]
  if arguments.format == "json":
    output.write_json(rows)
    return
  import rich.table

  table = rich.table.Table(box=None, pad_edge=False)
  for heading in ("--cluster", "GPU", "per node", "network", "fabric"):
    table.add_column(heading, overflow="fold")
  table.columns[0].no_wrap = True  # What is typed is one word.
  for row in rows:
    network = f"{row['num_nics']} x {row['nic_gbps'] * 8:g} Gbit/s"
    gpus = str(row["gpus_per_node"])
    table.add_row(row["name"], row["gpu"], gpus, network, row["fabric"])
  output.console().print(table)


def _row(cluster: cluster_lib.Cluster, name: str) -> dict[str, Any]:
  node = cluster.node
  return {
    "name": name,
    "gpu": cluster.gpu.device_name,
    "gpus_per_node": cluster.gpus_per_node,
    "num_nics": node.num_nics,
    "nic_gbps": node.nic_gbps,
    "fabric": node.fabric,
  }
