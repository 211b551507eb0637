# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Replica groups of collectives, as device ids.

They have four spellings:

    {{0,1},{2,3}}                                      a list
    [4,2]<=[2,4]T(1,0)                                 an iota, transposed
    mesh['a'=8,'b'=2] {'a'}                            axes of a device mesh
    mesh['a'=8,'b'=2], device_ids=([2,8]T(1,0)) {'a'}  axes of a permuted mesh

The ids are of devices, replicas or partitions, depending on the mode
(`_by_mode`). This module returns a tuple of groups, each a tuple of device ids:
positions in the module's device assignment, in the order in which XLA joins
their data.
"""

from __future__ import annotations

from collections.abc import Sequence
import functools
import itertools
import math
import re

import numpy as np

from lagom_xla.passes import dependencies
from lagom_xla.passes import hlo
from lagom_xla.passes import hlo_pb2

_SEND_RECV_PAIRS = "_xla_send_recv_source_target_pairs"

Groups = tuple[tuple[int, ...], ...]


def of(
  instruction: hlo.Instruction,
  num_devices: int | None,
  num_replicas: int | None = None,
) -> Groups:
  """The groups of a collective, as device ids.

  An instruction without groups joins all devices of the module; the result is
  () if their number is unknown. `num_replicas` is the module's, if known. Pass
  the collective itself, not an async-start around it.
  """
  groups = _written_groups(instruction)
  if not num_devices or instruction.HasField("mesh_axes_replica_group_list"):
    return groups
  if not groups:
    if num_replicas is None or instruction.channel_id:
      return (tuple(range(num_devices)),)
    groups = (tuple(range(num_replicas)),)
  return _by_mode(groups, _mode(instruction), num_devices, num_replicas)


# Only these have `use_global_device_ids`.
SAY_IDS = frozenset(
  f"{kind}{end}"
  for kind in ("all-gather", "all-reduce", "reduce-scatter")
  for end in ("", "-start")
)


def _mode(instruction: hlo.Instruction) -> str:
  """The meaning of a collective's ids."""
  if not instruction.channel_id:
    return "replicas"
  if instruction.opcode not in SAY_IDS:
    return "partitions"
  return "devices" if instruction.use_global_device_ids else "both"


@functools.lru_cache(maxsize=1024)
def _by_mode(
  groups: Groups, mode: str, num_devices: int, num_replicas: int | None
) -> Groups:
  """Turns groups of ids into groups of devices (CollectiveOpGroupMode).

  Without a channel, ids are replicas, and each partition communicates by
  itself. With one, ids are partitions, and each replica communicates by itself;
  or devices; or replicas with all of their partitions. Device r * P + p is
  partition p of replica r. Ids beyond the number of replicas (1 if unknown) are
  devices; so are those of partitions if that number is unknown.
  """
  most = max(map(max, groups))
  replicas = num_replicas or 1
  if mode == "devices" or (num_replicas is None and mode == "partitions"):
    return groups
  if mode != "partitions" and most >= replicas:
    return groups
  partitions = max(num_devices // replicas, 1)
  if mode == "partitions":
    return tuple(
      tuple(r * partitions + p for p in group)
      for r in range(replicas)
      for group in groups
    )
  by_partition = [
    [tuple(r * partitions + p for r in group) for p in range(partitions)]
    for group in groups
  ]
  if mode == "replicas":
    return tuple(itertools.chain(*by_partition))
  return tuple(tuple(itertools.chain(*parts)) for parts in by_partition)


def _written_groups(instruction: hlo.Instruction) -> Groups:
  """The groups that an instruction spells out; () if it has none."""
  if instruction.HasField("mesh_axes_replica_group_list"):
    mesh = instruction.mesh_axes_replica_group_list
    return _of_mesh(mesh.SerializeToString(deterministic=True))
  if instruction.HasField("iota_collective_device_list"):
    return _of_iota(instruction.iota_collective_device_list)
  groups = instruction.replica_groups
  if instruction.HasField("collective_device_list"):
    devices = instruction.collective_device_list
    if devices.HasField("iota_replica_group_list"):
      return _of_iota(devices.iota_replica_group_list)
    groups = devices.replica_groups
  if listed := tuple(tuple(g.replica_ids) for g in groups if g.replica_ids):
    return listed
  if pairs := pairs_of(instruction):
    return _connected_components(pairs)
  return ()


def pairs_of(
  instruction: hlo.Instruction,
  num_devices: int | None = None,
  num_replicas: int | None = None,
) -> tuple[tuple[int, int], ...]:
  """The (source, target) devices of a collective-permute, send or recv."""
  if instruction.source_target_pairs:
    pairs = tuple((p.source, p.target) for p in instruction.source_target_pairs)
    if not num_devices:
      return pairs
    return tuple(
      (source, target)
      for source, target in _by_mode(
        pairs, _mode(instruction), num_devices, num_replicas
      )
    )
  # XLA's frontend attribute for sends and receives (collective_permute_
  # decomposer.cc), in the form {{0,1},{1,2}}.
  attribute = instruction.frontend_attributes.map.get(_SEND_RECV_PAIRS, "")
  ids = [int(number) for number in re.findall(r"\d+", attribute)]
  return tuple(zip(ids[::2], ids[1::2], strict=True))


def _of_iota(iota: hlo_pb2.IotaReplicaGroupListProto) -> Groups:
  return _iota_groups(iota.SerializeToString(deterministic=True))


@functools.lru_cache(maxsize=1024)
def _iota_groups(serialized: bytes) -> Groups:
  iota = hlo_pb2.IotaReplicaGroupListProto.FromString(serialized)
  shape = iota.num_replica_groups, iota.num_devices_per_group
  devices = _iota(
    math.prod(shape), iota.iota_reshape_dims, iota.iota_transpose_perm
  )
  return _rows(devices.reshape(shape))


@functools.lru_cache(maxsize=1024)
def _of_mesh(serialized: bytes) -> Groups:
  """Groups of the mesh devices that differ only along the named axes."""
  proto = hlo_pb2.MeshAxesReplicaGroupListProto.FromString(serialized)
  sizes = [axis.size for axis in proto.mesh.axes]
  if proto.mesh.device_ids:
    devices = np.array(proto.mesh.device_ids, dtype=np.int64)
  else:
    transform = proto.mesh.iota_transform
    devices = _iota(
      math.prod(sizes), transform.reshape_dims, transform.transpose_perm
    )
  # Split each mesh axis at the named sub-axes, major to minor.
  named: list[tuple[int, int, int]] = []  # Axis, where a part begins and ends.
  for ref in proto.axes:
    sub, axis = ref.sub_axis_info, ref.mesh_axis_index
    is_part = ref.HasField("sub_axis_info")
    begin, size = (sub.pre_size, sub.size) if is_part else (1, sizes[axis])
    named.append((axis, begin, begin * size))
  split_shape: list[int] = []
  grouped: dict[int, int] = {}  # Dimension of the split mesh -> rank in axes.
  for axis, size in enumerate(sizes):
    own = {rank: (b, e) for rank, (a, b, e) in enumerate(named) if a == axis}
    bounds = sorted({1, size}.union(*own.values()))
    for low, high in itertools.pairwise(bounds):
      for rank, (begin, end) in own.items():
        if begin <= low < high <= end:
          grouped[len(split_shape)] = rank
      split_shape.append(high // low)
  inner = sorted(grouped, key=lambda dim: (grouped[dim], dim))
  outer = [dim for dim in range(len(split_shape)) if dim not in grouped]
  split = devices.reshape(split_shape).transpose(outer + inner)
  return _rows(split.reshape(-1, math.prod(split_shape[dim] for dim in inner)))


def _iota(
  num_devices: int, reshape_dims: Sequence[int], transpose_perm: Sequence[int]
) -> np.ndarray:
  devices = np.arange(num_devices)
  if not transpose_perm:
    return devices
  return devices.reshape(reshape_dims).transpose(transpose_perm).reshape(-1)


def _rows(devices: np.ndarray) -> Groups:
  return tuple(tuple(row) for row in devices.tolist())


@functools.lru_cache(maxsize=1024)
def _connected_components(pairs: tuple[tuple[int, int], ...]) -> Groups:
  """Groups of devices that (source, target) pairs connect, by any path."""
  connected: dependencies.DisjointSets[int] = dependencies.DisjointSets()
  for pair in pairs:
    connected.join(*pair)
  groups: dict[int, list[int]] = {}
  for device in sorted({device for pair in pairs for device in pair}):
    groups.setdefault(connected.find(device), []).append(device)
  return tuple(sorted(map(tuple, groups.values())))
