# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Clusters from what users write: a name, or a JSON file.

A file may start from a known GPU and replace single figures:

  {"num_nodes": 4, "gpu": {"base": "h100", "hbm_gbps": 3000},
   "node": {"num_nics": 4}}
"""

from __future__ import annotations

import dataclasses
import pathlib
import re
from typing import Any
import warnings

from lagom_xla import errors
from lagom_xla import validation
from lagom_xla.cluster import known
from lagom_xla.cluster import unlikely
from lagom_xla.cluster.calibration import Calibration
from lagom_xla.cluster.cluster import Cluster
from lagom_xla.cluster.cluster import Node

# NODESxGPUSxGPU, NODESxMACHINE and GPUSxGPU.
_SHAPE = re.compile(r"(-?[0-9]{1,9})x(-?[0-9]{1,9})x(.+)")
_COUNTED = re.compile(r"(-?[0-9]{1,9})x(.+)")
_UNCALIBRATED = dataclasses.asdict(Calibration())


def parse(text: str) -> Cluster:
  """The cluster that a user asks for.

  Args:
    text: NODESxGPUSxGPU such as "16x8xh100"; NODESxMACHINE such as
      "2xp5.48xlarge"; GPUSxGPU such as "8xh100", which is one node; a named
      cluster such as "lagom_a" (the paper's, arXiv 2602.20656); or the path of
      a .json file. Case does not matter in names, and "-" may stand for "_".

  Raises:
    ClusterError: it is none of these, or a file breaks a rule; the message
      names the value, the rule and the file.
  """
  if text.lower().endswith(".json"):
    return _read(pathlib.Path(text))
  name, names = known.normal(text), known.cluster_names()
  if name in names:
    spec = known.spec(name)
    return from_dict({**spec, "name": name}, where=f"cluster {name}")
  raw = _named(text.strip().lower())
  if raw is None:
    raise errors.ClusterError(
      f"cluster {text!r} is neither NODESxGPUSxGPU (such as 1x8xh100), nor"
      f" NODESxMACHINE (such as 2xp5.48xlarge), nor a named cluster"
      f" ({', '.join(names)}), nor the path of a .json file; known GPUs:"
      f" {', '.join(known.gpu_names())}; `lagom-xla clusters` lists machines"
    )
  return from_dict(raw, where=f"cluster {text!r}")


def _named(text: str) -> dict[str, Any] | None:
  """The cluster file that a name with counts stands for, if it is one."""
  if match := _SHAPE.fullmatch(text):
    sizes = {"num_nodes": int(match[1]), "gpus_per_node": int(match[2])}
    return {**sizes, "gpu": match[3]}
  match = _COUNTED.fullmatch(text)
  if match is None:
    return None
  count, name = int(match[1]), known.normal(match[2])
  if name in known.gpu_names():
    return {"num_nodes": 1, "gpus_per_node": count, "gpu": name}
  if name in known.machine_names():
    machine = known.machine(name)
    name = f"{count}x{machine['name']}"
    return {**machine, "name": name, "num_nodes": count}
  return None


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

  Warns:
    RuntimeWarning: a rate is likely in another unit (`unlikely.py`).
  """
  try:
    cluster = _from_dict(raw)
  except validation.InvalidError as e:
    raise errors.ClusterError(f"{where}: {e}") from e
  assert isinstance(raw, dict)  # Or it would have been refused.
  for warning in unlikely.rates(*_base_of(raw)):
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
  # Single figures may be given; without any, nothing was measured.
  is_calibrated = isinstance(given.get("calibration"), dict)
  defaults["calibration"] = _UNCALIBRATED if is_calibrated else None
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
  """What a file itself gives, and the known GPU's figures beneath it."""
  given = {key: value for key, value in raw.items() if key != "sources"}
  gpu = given.get("gpu")
  if isinstance(gpu, str):
    gpu = {"base": gpu}
  if not (isinstance(gpu, dict) and "base" in gpu):
    return given, {}
  given["gpu"] = {key: value for key, value in gpu.items() if key != "base"}
  return given, known.spec(_gpu_name(gpu["base"]))


def _merge(base: object, over: object) -> object:
  """`over` on top of `base`, object by object; any other value replaces."""
  if not (isinstance(base, dict) and isinstance(over, dict)):
    return over
  merged = {k: _merge(base.get(k), v) for k, v in over.items()}
  return {**base, **merged}


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
  normal = known.normal(name) if isinstance(name, str) else ""
  if normal not in known.gpu_names():
    raise validation.InvalidError(
      f"unknown GPU {validation.show(name)}; known:"
      f" {', '.join(known.gpu_names())}; a .json file describes others"
      " (`lagom-xla schema cluster`)"
    )
  return normal


def schema() -> dict[str, Any]:
  """The JSON schema of a cluster file.

  With a known GPU as base every field may be left out, so none is required.
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
      "the known GPU whose figures are taken where none is given, and those of"
      f" the node it usually sits in: {', '.join(known.gpu_names())}."
    ),
  }
  figures["gpu"] = {
    "anyOf": [{"$ref": "#/$defs/Gpu"}, {"type": "string", "minLength": 1}],
    "description": "one of the GPUs; a string is short for its `base`.",
  }
  figures["sources"] = {
    "type": "object",
    "additionalProperties": {"type": "string"},
    "description": "where each figure was read, by its name; nothing reads it.",
  }
  return cluster
