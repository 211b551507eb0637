# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Output of `lagom-xla clusters --format=json`: the names for `--cluster`."""

from __future__ import annotations

import dataclasses

from lagom_xla import cluster as cluster_lib
from lagom_xla import validation


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Known:
  """A GPU, machine or cluster with a name.

  Attributes:
    name: the name for `--cluster`, with a number in place of NODES.
    gpu: CUDA's name of its GPU.
    gpus_per_node: GPUs per node.
    num_nics: network adapters per node.
    nic_gbps: rate of each adapter, in 1e9 bytes per second in one direction.
    fabric: the network between nodes.
  """

  __pydantic_config__ = validation.STRICT

  name: str
  gpu: str
  gpus_per_node: int
  num_nics: int
  nic_gbps: float
  fabric: str


# The output of `lagom-xla clusters --format=json`.
Clusters = tuple[Known, ...]


def known() -> tuple[Known, ...]:
  """All known names: GPUs, then machines, then clusters."""
  gpus = [
    cluster_lib.from_dict({"gpu": name}, where=name)
    for name in cluster_lib.gpu_names()
  ]
  machines = [cluster_lib.parse(f"1x{n}") for n in cluster_lib.machine_names()]
  named = [cluster_lib.parse(name) for name in cluster_lib.cluster_names()]
  return (
    *(_known(c, f"NODESx{c.gpus_per_node}x{c.gpu.name}") for c in gpus),
    *(_known(c, f"NODES{c.name[1:]}") for c in machines),
    *(_known(c, c.name) for c in named),
  )


def _known(cluster: cluster_lib.Cluster, name: str) -> Known:
  return validation.convert(
    Known,
    cluster.node,
    name=name,
    gpu=cluster.gpu.device_name,
    gpus_per_node=cluster.gpus_per_node,
  )
