# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Clusters from a name, a JSON file, or the GPUs of a job.

A file may start from a known GPU and replace single figures:

  {"num_nodes": 4, "gpu": {"base": "h100", "hbm_gbps": 3000},
   "node": {"num_nics": 4}}

Known GPUs, clusters and machines are files. specs/ has a file in this format
for each GPU, with its usual node, and for each cluster. Its `sources` object
has the source of every figure. machines/ has cloud machines: a known GPU and
the machine's other figures, from one `source`. To add one, add a file there, or
add another name as an alias here.

Networks are sold in Gbit/s and memory in TB/s, but files have 1e9 bytes per
second. No other rule detects such a mistake, and it affects all predictions. So
figures that are likely in another unit cause a warning.
"""

from __future__ import annotations

import collections
from collections.abc import Iterator, Sequence
import dataclasses
import functools
import json
import pathlib
import re
from typing import TYPE_CHECKING, Any
import warnings

from lagom_xla import errors
from lagom_xla import validation
from lagom_xla.cluster import cluster as cluster_lib
from lagom_xla.cluster.cluster import Calibration
from lagom_xla.cluster.cluster import Cluster
from lagom_xla.cluster.cluster import Node

if TYPE_CHECKING:
  import jax

# Gbit/s instead of GB/s is eight times too large, and TB/s a thousand times too
# small. No two known GPUs' networks differ as much.
_MOST_TIMES = 7.5
_LEAST_TIMES = 1 / 500
# The ends of figures' names -> their unit, and how to get from others to it.
_UNITS = {
  "gbps": "GB/s: divide Gbit/s by 8, multiply TB/s by 1,000",
  "ghz": "GHz: divide MHz by 1,000",
  "bytes": "bytes: multiply GB by 1e9",
  "tflops": "1e12 operations per second: multiply PFLOP/s by 1,000",
}


def _unlikely_figures(
  given: object, base: object, name: str = ""
) -> Iterator[str]:
  """Warns of figures in a file that are far from the known GPU's."""
  if isinstance(given, dict) and isinstance(base, dict):
    for key in given:
      if key in base:
        where = f"{name}.{key}" if name else key
        yield from _unlikely_figures(given[key], base[key], where)
    return
  numbers = isinstance(given, (int, float)) and isinstance(base, (int, float))
  found = re.search(rf"({'|'.join(_UNITS)})(\.\w+)?$", name)
  if not (found and numbers):
    return
  most = _MOST_TIMES if found[1] == "gbps" else 1 / _LEAST_TIMES
  if not _LEAST_TIMES < given / base < most:
    yield (
      f"{name} is {given:,g}, but usually {base:,g} for this GPU. Is the unit"
      f" right? It is {_UNITS[found[1]]}."
    )


_ALIASES = {
  "a100": "a100_80",
  "a100_40gb": "a100_40",
  "a100_80gb": "a100_80",
  "h100_sxm": "h100",
  "h100nvl": "h100_nvl",
  "h100pcie": "h100_pcie",
  "h200_sxm": "h200",
  "rtx_a6000": "a6000",
}


@functools.cache
def gpu_names() -> tuple[str, ...]:
  """The names of known GPUs."""
  return tuple(n for n, it in _specs().items() if isinstance(it["gpu"], dict))


@functools.cache
def cluster_names() -> tuple[str, ...]:
  """The names of known clusters."""
  return tuple(n for n, it in _specs().items() if isinstance(it["gpu"], str))


def machine_names() -> tuple[str, ...]:
  """The names of known machines, as in 2xp5.48xlarge."""
  return tuple(_machines())


def _normal_name(name: str) -> str:
  """The name of its file: in lower case, with "_" and without aliases."""
  name = name.strip().lower().replace("-", "_")
  return _ALIASES.get(name, name)


@functools.cache
def _specs() -> dict[str, dict[str, Any]]:
  """The files in specs/, without sources; callers must not change it."""
  return _without("sources", "specs")


@functools.cache
def _machines() -> dict[str, dict[str, Any]]:
  """The files in machines/, without sources; callers must not change it."""
  return _without("source", "machines")


def _without(field: str, folder: str) -> dict[str, dict[str, Any]]:
  paths = sorted(pathlib.Path(__file__).with_name(folder).glob("*.json"))
  raw = {p.stem: json.loads(p.read_text(encoding="utf-8")) for p in paths}
  for figures in raw.values():
    del figures[field]
  return raw


# GPUs of the largest usual nodes, assumed for all GPU models.
_MOST_USUAL_GPUS = 8
# NODESxGPUSxGPU, NODESxMACHINE and GPUSxGPU.
_SHAPE = re.compile(r"(-?[0-9]{1,9})x(-?[0-9]{1,9})x(.+)")
_COUNTED = re.compile(r"(-?[0-9]{1,9})x(.+)")
_UNCALIBRATED = dataclasses.asdict(Calibration())


def parse(text: str) -> Cluster:
  """The cluster for a name from a user.

  Args:
    text: NODESxGPUSxGPU such as "16x8xh100"; NODESxMACHINE such as
      "2xp5.48xlarge"; GPUSxGPU such as "8xh100", which is one node; a named
      cluster such as "lagom_a" (the paper's, arXiv 2602.20656); or the path of
      a .json file. Case does not matter in names, and "-" may stand for "_".

  Raises:
    ClusterError: the text is none of these, or a file breaks a rule; the
      message has the value, the rule and the file.
  """
  if text.lower().endswith(".json"):
    return _read(pathlib.Path(text))
  name, names = _normal_name(text), cluster_names()
  if name in names:
    spec = _specs()[name]
    return from_dict({**spec, "name": name}, where=f"cluster {name}")
  raw = _named(text.strip().lower())
  if raw is None:
    raise errors.ClusterError(
      f"unknown cluster {text!r}: write NODESxGPUSxGPU (such as 1x8xh100),"
      f" NODESxMACHINE (such as 2xp5.48xlarge), a named cluster"
      f" ({', '.join(names)}) or the path of a .json file; known GPUs:"
      f" {', '.join(gpu_names())}; `lagom-xla clusters` lists machines"
    )
  return from_dict(raw, where=f"cluster {text!r}")


def _named(text: str) -> dict[str, Any] | None:
  """The cluster file for a name with counts; None for other names."""
  if match := _SHAPE.fullmatch(text):
    sizes = {"num_nodes": int(match[1]), "gpus_per_node": int(match[2])}
    return {**sizes, "gpu": match[3]}
  match = _COUNTED.fullmatch(text)
  if match is None:
    return None
  count, name = int(match[1]), _normal_name(match[2])
  if name in gpu_names():
    _check_is_one_node(text, count, name)
    return {"num_nodes": 1, "gpus_per_node": count, "gpu": name}
  if name in machine_names():
    machine = _machines()[name]
    name = f"{count}x{machine['name']}"
    return {**machine, "name": name, "num_nodes": count}
  return None


def _check_is_one_node(text: str, count: int, gpu: str) -> None:
  """Raises a ClusterError if no usual node has so many GPUs."""
  usual = max(int(_specs()[gpu]["gpus_per_node"]), _MOST_USUAL_GPUS)
  if count > usual:
    num_nodes, left = divmod(count, usual)
    several = f" {num_nodes}x{usual}x{gpu} for {num_nodes} nodes, or"
    raise errors.ClusterError(
      f"cluster {text!r} would be one node of {count} GPUs, but nodes have"
      f" {usual} at most: write{'' if left else several}"
      f" 1x{count}x{gpu} if you mean one node"
    )


def from_dict(raw: object, *, where: str) -> Cluster:
  """The cluster in a JSON object (the module's docstring has an example).

  With a known GPU as base, `gpus_per_node`, `node` and every missing figure
  default to those of its usual node. Network adapters belong to GPUs, so a node
  with fewer GPUs has fewer adapters, unless `num_nics` is given.

  Args:
    raw: the object, as json.loads returns it.
    where: its name in messages, such as its path.

  Raises:
    ClusterError: a field is missing, unknown, of the wrong type or out of
      range.

  Warns:
    RuntimeWarning: a figure is likely in another unit.
  """
  try:
    cluster = _from_dict(raw)
  except validation.InvalidError as e:
    raise errors.ClusterError(f"{where}: {e}") from e
  assert isinstance(raw, dict)  # Or it would have been refused.
  for warning in _unlikely_figures(*_base_of(raw)):
    warnings.warn(f"{where}: {warning}", RuntimeWarning, stacklevel=2)
  return cluster


def _read(path: pathlib.Path) -> Cluster:
  try:
    raw = validation.read_file(path)
  except validation.InvalidError as e:
    raise errors.ClusterError(f"{path}: {e}") from e
  if isinstance(raw, dict):
    raw = {"name": path.stem, **raw}
  return from_dict(raw, where=str(path))


def _from_dict(raw: object) -> Cluster:
  if not isinstance(raw, dict):
    raise validation.InvalidError(
      f"is {validation.show(raw)}; it must be an object"
    )
  given, base = _base_of(raw)
  defaults: dict[str, Any] = {"num_nodes": 1, "name": "unnamed"}
  # Without any factor there is no calibration.
  is_calibrated = isinstance(given.get("calibration"), dict)
  defaults["calibration"] = _UNCALIBRATED if is_calibrated else None
  defaults["processes_per_node"] = 1
  merged = _merge({**defaults, **base}, given)
  try:
    cluster = validation.read(Cluster, merged)
  except validation.MissingError as e:
    if base:
      raise
    raise validation.InvalidError(
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


def _base_of(raw: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
  """The figures of a file, and those of its known GPU, if it has one."""
  given = {key: value for key, value in raw.items() if key != "sources"}
  gpu = given.get("gpu")
  if isinstance(gpu, str):
    gpu = {"base": gpu}
  if not (isinstance(gpu, dict) and "base" in gpu):
    return given, {}
  given["gpu"] = {key: value for key, value in gpu.items() if key != "base"}
  return given, _specs()[_gpu_name(gpu["base"])]


def _merge(base: object, over: object) -> object:
  """`over` merged into `base`: objects recursively, other values replace."""
  if not (isinstance(base, dict) and isinstance(over, dict)):
    return over
  merged = {k: _merge(base.get(k), v) for k, v in over.items()}
  return {**base, **merged}


def _resize(
  node: Node, *, usual_num_gpus: int, num_gpus: int, keep_nics: bool
) -> Node:
  """A known GPU's usual node, resized to the number of GPUs."""
  if not keep_nics:
    num_nics = max(1, node.num_nics * num_gpus // usual_num_gpus)
    node = dataclasses.replace(node, num_nics=num_nics)
  if node.nvlink is not None and num_gpus > usual_num_gpus:
    # For example 1x72xgb200, in which the whole NVLink domain is one node.
    num_nodes = node.nvlink.nodes_per_domain * usual_num_gpus // num_gpus
    nvlink = dataclasses.replace(
      node.nvlink, nodes_per_domain=max(1, num_nodes)
    )
    node = dataclasses.replace(node, nvlink=nvlink)
  return node


def _gpu_name(name: object) -> str:
  normal = _normal_name(name) if isinstance(name, str) else ""
  if normal not in gpu_names():
    raise validation.InvalidError(
      f"unknown GPU {validation.show(name)}; known:"
      f" {', '.join(gpu_names())}; describe others in a .json file"
      " (`lagom-xla schema cluster`)"
    )
  return normal


def schema() -> dict[str, Any]:
  """The JSON schema of a cluster file.

  With a known GPU as base every field may be omitted, so none is required.
  """
  cluster = validation.schema(Cluster)
  gpu = cluster["$defs"]["Gpu"]
  figures = cluster["properties"]
  for part in (cluster, *cluster["$defs"].values()):
    del part["required"]
  del gpu["properties"]["matmul_peak_tflops"]["required"]
  gpu["properties"]["base"] = {
    "type": "string",
    "minLength": 1,
    "description": (
      "a known GPU, which supplies all figures that are not given, and those of"
      f" its usual node: {', '.join(gpu_names())}."
    ),
  }
  figures["gpu"] = {
    "anyOf": [{"$ref": "#/$defs/Gpu"}, {"type": "string", "minLength": 1}],
    "description": "the GPU; a string is short for its `base`.",
  }
  figures["sources"] = {
    "type": "object",
    "additionalProperties": {"type": "string"},
    "description": "source of each figure, by its name; for readers only.",
  }
  return cluster


def of_devices(devices: Sequence[jax.Device]) -> cluster_lib.Cluster:
  """The cluster of a job's GPUs, with the usual node of their GPU.

  A node is the GPUs of one process. Processes with one GPU each form a node if
  JAX assigns them to one slice, which is a host, or several hosts in one NVLink
  domain.

  Args:
    devices: all devices of the job, from `jax.devices()`.

  Raises:
    ClusterError: no known GPU has their name, they are of several kinds, or
      nodes differ in size.
  """
  kinds = sorted({device_name(device) for device in devices})
  known = {_specs()[name]["gpu"]["device_name"]: name for name in gpu_names()}
  if len(kinds) != 1 or kinds[0] not in known:
    raise errors.ClusterError(
      f"the devices are {' and '.join(map(repr, kinds)) or 'none'}; all must be"
      f" the same one of {', '.join(known)}, or name the cluster"
    )
  per_node = set(collections.Counter(_node_indices(devices)).values())
  if len(per_node) != 1:
    raise errors.ClusterError(
      f"nodes have {' or '.join(map(str, sorted(per_node)))} devices; all must"
      " have the same number"
    )
  (gpus_per_node,) = per_node
  num_nodes = len(devices) // gpus_per_node
  cluster = parse(f"{num_nodes}x{gpus_per_node}x{known[kinds[0]]}")
  num_processes = len({device.process_index for device in devices})
  return dataclasses.replace(
    cluster, processes_per_node=max(1, num_processes // num_nodes)
  )


def device_name(device: jax.Device) -> str:
  """CUDA's name of a device.

  Removes the suffix of the software GPUs in this project's tests.
  """
  return device.device_kind.removesuffix(" (software GPU)")


def _node_indices(devices: Sequence[jax.Device]) -> list[int]:
  processes = [device.process_index for device in devices]
  if len(set(processes)) < len(devices):
    return processes
  return [getattr(device, "slice_index", 0) for device in devices]
