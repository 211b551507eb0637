# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Figures of GPUs, of the nodes that hold them, and of clusters of nodes.

A cluster is plain data read from one JSON format. The files in specs/ are in
that format too: one per GPU with the node it usually sits in, and one per
cluster known by name. Each carries a `sources` object that tells, for every
figure, where it was read. A user's file may lean on any of them and replace
single figures:

  {"num_nodes": 4, "gpu": {"base": "h100", "hbm_gbps": 3000},
   "node": {"num_nics": 4}}

Rates end in _gbps and mean 1e9 bytes per second, in one direction.
"""

from __future__ import annotations

import collections
from collections.abc import Sequence
import dataclasses
import functools
import json
import pathlib
import re
from typing import TYPE_CHECKING, Any, Literal

from lagom_xla import errors
from lagom_xla import figures
from lagom_xla.cluster.gpu import Gpu

if TYPE_CHECKING:
  import jax

_SPECS = pathlib.Path(__file__).with_name("specs")
_SHAPE = re.compile(r"(-?[0-9]{1,9})x(-?[0-9]{1,9})x(.+)")
_ALIASES = {
  "a100": "a100_80",
  "a100_40gb": "a100_40",
  "a100_80gb": "a100_80",
  "rtx_a6000": "a6000",
}


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class NvLink:
  """The NVLinks of one GPU.

  Attributes:
    topology: "nvswitch" (any GPU to any at full rate), "cube_mesh" (DGX-1), or
      "pairs" (bridges between two GPUs).
    num_links: links per GPU.
    link_gbps: data sheet rate of one link.
    link_effective_gbps: what NCCL counts on for one link.
    nodes_per_domain: nodes that one NVLink domain covers; more than 1 only in
      racks such as NVL72.
  """

  topology: Literal["nvswitch", "cube_mesh", "pairs"]
  num_links: int
  link_gbps: float
  link_effective_gbps: float
  nodes_per_domain: int


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Node:
  """What joins the GPUs of a node to each other and to the network.

  Attributes:
    nvlink: None where GPUs meet over PCIe alone.
    pcie_gbps: rate of a GPU's PCIe link.
    pcie_effective_gbps: what NCCL counts on for that link.
    num_nics: network adapters of the node.
    nic_gbps: rate of each.
    cpu_vendor: NCCL's model has different constants for AMD.
  """

  nvlink: NvLink | None
  pcie_gbps: float
  pcie_effective_gbps: float
  num_nics: int
  nic_gbps: float
  cpu_vendor: Literal["intel", "amd", "arm"]


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Cluster:
  """Equal nodes of equal GPUs; global device ids are laid out node by node."""

  name: str
  num_nodes: int
  gpus_per_node: int
  gpu: Gpu
  node: Node

  @property
  def num_devices(self) -> int:
    """GPUs in the whole cluster."""
    return self.num_nodes * self.gpus_per_node

  def num_nodes_of(self, devices: Sequence[int]) -> int:
    """How many nodes these global device ids lie in.

    Raises:
      ClusterError: a device is not in the cluster.
    """
    return self._num_groups(devices, self.gpus_per_node)

  def num_nccl_nodes_of(self, devices: Sequence[int]) -> int:
    """How many nodes NCCL counts: NVLink domains where those span nodes.

    Raises:
      ClusterError: a device is not in the cluster.
    """
    nodes = self.node.nvlink.nodes_per_domain if self.node.nvlink else 1
    return self._num_groups(devices, self.gpus_per_node * nodes)

  def _num_groups(self, devices: Sequence[int], group_size: int) -> int:
    for device in devices:
      if not 0 <= device < self.num_devices:
        raise errors.ClusterError(
          f"device {device} is not in cluster {self.name}, whose devices are "
          f"0 to {self.num_devices - 1}"
        )
    return len({device // group_size for device in devices})

  def to_dict(self) -> dict[str, Any]:
    """The cluster as JSON data, whole, for `from_dict` to read back."""
    return json.loads(json.dumps(dataclasses.asdict(self)))


def gpu_names() -> tuple[str, ...]:
  """The GPUs that can be asked for by name."""
  return tuple(n for n in _spec_names() if isinstance(_spec(n)["gpu"], dict))


def cluster_names() -> tuple[str, ...]:
  """The clusters that can be asked for by name alone."""
  return tuple(n for n in _spec_names() if isinstance(_spec(n)["gpu"], str))


def parse(text: str) -> Cluster:
  """The cluster that a user asks for.

  Args:
    text: NODESxGPUSxGPU such as "16x8xh100"; a named cluster such as "lagom_a"
      (the paper's, arXiv 2602.20656); or the path of a .json file. Case does
      not matter in names, and "-" may stand for "_".

  Raises:
    ClusterError: it is none of these, or a file breaks a rule; the message
      names the value, the rule and the file.
  """
  if text.lower().endswith(".json"):
    return _read(pathlib.Path(text))
  name = _normal(text)
  if name in cluster_names():
    return from_dict({**_spec(name), "name": name}, where=f"cluster {name}")
  match = _SHAPE.fullmatch(text.strip().lower())
  if match is None:
    raise errors.ClusterError(
      f"cluster {text!r} is neither NODESxGPUSxGPU (such as 1x8xh100), nor a "
      f"named cluster ({', '.join(cluster_names())}), nor the path of a .json "
      f"file; known GPUs: {', '.join(gpu_names())}"
    )
  sizes = {"num_nodes": int(match[1]), "gpus_per_node": int(match[2])}
  return from_dict({**sizes, "gpu": match[3]}, where=f"cluster {text!r}")


def of_devices(devices: Sequence[jax.Device]) -> Cluster:
  """The cluster that a job's GPUs make up, with its GPU's usual node.

  A node is what one process holds. Processes that hold one GPU each stand for
  a node together if JAX counts them to one slice, which is a host, or several
  hosts in one NVLink domain.

  Args:
    devices: all of the job's, as `jax.devices()` returns them.

  Raises:
    ClusterError: no known GPU has their name, they are of several kinds, or
      nodes differ in size.
  """
  kinds = sorted({device.device_kind for device in devices})
  known = {_spec(name)["gpu"]["device_name"]: name for name in gpu_names()}
  if len(kinds) != 1 or kinds[0] not in known:
    raise errors.ClusterError(
      f"the devices are {' and '.join(map(repr, kinds)) or 'none'}; they must "
      f"all be one of {', '.join(known)}, or a cluster must be given"
    )
  per_node = set(collections.Counter(_node_indices(devices)).values())
  if len(per_node) != 1:
    raise errors.ClusterError(
      f"nodes have {' or '.join(map(str, sorted(per_node)))} of the devices; "
      "all must have as many"
    )
  (gpus_per_node,) = per_node
  num_nodes = len(devices) // gpus_per_node
  return parse(f"{num_nodes}x{gpus_per_node}x{known[kinds[0]]}")


def _node_indices(devices: Sequence[jax.Device]) -> list[int]:
  processes = [device.process_index for device in devices]
  if len(set(processes)) < len(devices):
    return processes
  return [getattr(device, "slice_index", 0) for device in devices]


def from_dict(raw: object, *, where: str) -> Cluster:
  """The cluster in a JSON object (the module's docstring shows the form).

  With a known GPU as base, `gpus_per_node`, `node` and every figure that is not
  given are those of the node it usually sits in. Adapters sit beside their
  GPUs, so a node with fewer GPUs has fewer of them, unless `num_nics` is given.

  Args:
    raw: the object, as json.loads returns it.
    where: what to call it in messages, such as its path.

  Raises:
    ClusterError: a field is missing, unknown, of the wrong type or out of
      range.
  """
  try:
    return _from_dict(raw)
  except figures.FigureError as e:
    raise errors.ClusterError(f"{where}: {e}") from e


def _read(path: pathlib.Path) -> Cluster:
  try:
    raw = figures.read(path)
  except figures.FigureError as e:
    raise errors.ClusterError(f"{path}: {e}") from e
  if isinstance(raw, dict):
    raw = {"name": path.stem, **raw}
  return from_dict(raw, where=str(path))


def _from_dict(raw: object) -> Cluster:
  if not isinstance(raw, dict):
    raise figures.FigureError(f"is {figures.show(raw)}; it must be an object")
  given = {key: value for key, value in raw.items() if key != "sources"}
  gpu = given.get("gpu")
  base = {}
  if isinstance(gpu, str):
    gpu = {"base": gpu}
  if isinstance(gpu, dict) and "base" in gpu:
    given["gpu"] = {key: value for key, value in gpu.items() if key != "base"}
    base = _spec(_gpu_name(gpu["base"]))
  merged = figures.merge({"num_nodes": 1, "name": "unnamed", **base}, given)
  try:
    cluster = figures.decode(Cluster, merged)
  except figures.FigureError as e:
    if base or "is missing" not in str(e):
      raise
    raise figures.FigureError(
      f'{e}; give it, or start from a known GPU: "gpu": {{"base": "h100"}}'
    ) from e
  if "name" not in given:
    name = f"{cluster.num_nodes}x{cluster.gpus_per_node}x{cluster.gpu.name}"
    cluster = dataclasses.replace(cluster, name=name)
  if not base:
    return cluster
  node = _resize(
    cluster.node,
    usual_num_gpus=base["gpus_per_node"],
    num_gpus=cluster.gpus_per_node,
    keep_nics="num_nics" in given.get("node", {}),
  )
  return dataclasses.replace(cluster, node=node)


def _resize(
  node: Node, *, usual_num_gpus: int, num_gpus: int, keep_nics: bool
) -> Node:
  """A known GPU's usual node, fitted to the number of GPUs asked for."""
  if not keep_nics:
    num_nics = max(1, node.num_nics * num_gpus // usual_num_gpus)
    node = dataclasses.replace(node, num_nics=num_nics)
  if node.nvlink is not None and num_gpus > usual_num_gpus:
    # As in 1x72xgb200, which calls the whole NVLink domain one node.
    num_nodes = node.nvlink.nodes_per_domain * usual_num_gpus // num_gpus
    nvlink = dataclasses.replace(
      node.nvlink, nodes_per_domain=max(1, num_nodes)
    )
    node = dataclasses.replace(node, nvlink=nvlink)
  return node


def _gpu_name(name: object) -> str:
  known = _normal(name) if isinstance(name, str) else ""
  if known not in gpu_names():
    raise figures.FigureError(
      f"unknown GPU {figures.show(name)}; known: {', '.join(gpu_names())}"
    )
  return known


def _normal(name: str) -> str:
  name = name.strip().lower().replace("-", "_")
  return _ALIASES.get(name, name)


def _spec_names() -> tuple[str, ...]:
  return tuple(sorted(path.stem for path in _SPECS.glob("*.json")))


@functools.cache
def _spec(name: str) -> dict[str, Any]:
  """A shipped file without its sources; callers must not change it."""
  raw = figures.read(_SPECS / f"{name}.json")
  assert isinstance(raw, dict)
  return {key: value for key, value in raw.items() if key != "sources"}
