# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Groups of devices that collectives join.

XLA spells replica groups in four ways, and one module may hold all of them:

    {{0,1},{2,3}}                                      a list
    [4,2]<=[2,4]T(1,0)                                 an iota, transposed
    mesh['a'=8,'b'=2] {'a'}                            axes of a device mesh
    mesh['a'=8,'b'=2], device_ids=([2,8]T(1,0)) {'a'}  axes of a permuted mesh

All of them come out of here as the same thing: a tuple of groups, each a tuple
of device ids in the order in which XLA joins their data. An id is a place in
the module's device assignment: JAX puts the devices of a mesh there in the
mesh's order, so that a permuted mesh does not show in a module's groups.
"""

from __future__ import annotations

import functools
import itertools
import re

import numpy as np

from lagom_xla.passes import disjoint_sets
from lagom_xla.passes import hlo_pb2

_SEND_RECV_PAIRS = "_xla_send_recv_source_target_pairs"

Groups = tuple[tuple[int, ...], ...]


def of_instruction(
  instruction: hlo_pb2.HloInstructionProto, num_devices: int | None
) -> Groups:
  """The groups of a collective.

  Args:
    instruction: the collective itself (not the async-start around it).
    num_devices: devices of the module; an instruction without groups joins
      all of them.

  Returns:
    The groups; () where the instruction joins all devices and their number is
    not known.
  """
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
  listed = tuple(tuple(g.replica_ids) for g in groups if g.replica_ids)
  if listed:
    return listed
  pairs = pairs_of(instruction)
  if pairs:
    return connected_components(pairs)
  return (tuple(range(num_devices)),) if num_devices else ()


def pairs_of(
  instruction: hlo_pb2.HloInstructionProto,
) -> tuple[tuple[int, int], ...]:
  """The (source, target) devices of a collective-permute, send or recv."""
  if instruction.source_target_pairs:
    return tuple((p.source, p.target) for p in instruction.source_target_pairs)
  # XLA's frontend attribute for sends and receives (collective_permute_
  # decomposer.cc), in the form {{0,1},{1,2}}.
  attribute = instruction.frontend_attributes.map.get(_SEND_RECV_PAIRS, "")
  ids = [int(number) for number in re.findall(r"\d+", attribute)]
  return tuple(zip(ids[::2], ids[1::2], strict=True))


def _of_iota(iota: hlo_pb2.IotaReplicaGroupListProto) -> Groups:
  return _iota_groups(
    iota.num_replica_groups,
    iota.num_devices_per_group,
    tuple(iota.iota_reshape_dims),
    tuple(iota.iota_transpose_perm),
  )


@functools.lru_cache(maxsize=1024)
def _iota_groups(
  num_groups: int,
  num_devices_per_group: int,
  reshape_dims: tuple[int, ...],
  transpose_perm: tuple[int, ...],
) -> Groups:
  devices = _iota(num_groups * num_devices_per_group, reshape_dims)
  if transpose_perm:
    devices = devices.transpose(transpose_perm)
  return _rows(devices.reshape(num_groups, num_devices_per_group))


@functools.lru_cache(maxsize=1024)
def _of_mesh(serialized: bytes) -> Groups:
  """Groups of the mesh devices that differ only along the named axes."""
  proto = hlo_pb2.MeshAxesReplicaGroupListProto.FromString(serialized)
  sizes = [axis.size for axis in proto.mesh.axes]
  devices = _mesh_devices(proto.mesh, sizes)
  # Split each mesh axis at the sub-axes that are named, major to minor.
  split_shape: list[int] = []
  grouped: dict[int, int] = {}  # Dimension of the split mesh -> rank in axes.
  for axis, size in enumerate(sizes):
    cuts = {1, size}
    for ref in proto.axes:
      if ref.mesh_axis_index == axis and ref.HasField("sub_axis_info"):
        sub = ref.sub_axis_info
        cuts.update((sub.pre_size, sub.pre_size * sub.size))
    bounds = sorted(cuts)
    for low, high in itertools.pairwise(bounds):
      for rank, ref in enumerate(proto.axes):
        if ref.mesh_axis_index != axis:
          continue
        sub = ref.sub_axis_info
        whole = not ref.HasField("sub_axis_info")
        if whole or sub.pre_size <= low < high <= sub.pre_size * sub.size:
          grouped[len(split_shape)] = rank
      split_shape.append(high // low)
  split = devices.reshape(split_shape)
  inner = sorted(grouped, key=lambda dim: (grouped[dim], dim))
  outer = [dim for dim in range(split.ndim) if dim not in grouped]
  group_size = int(np.prod([split_shape[dim] for dim in inner], dtype=np.int64))
  return _rows(split.transpose(outer + inner).reshape(-1, group_size))


def _mesh_devices(mesh: hlo_pb2.MeshProto, sizes: list[int]) -> np.ndarray:
  num_devices = int(np.prod(sizes, dtype=np.int64))
  if mesh.device_ids:
    return np.array(mesh.device_ids, dtype=np.int64)
  if not mesh.HasField("iota_transform"):
    return np.arange(num_devices)
  transform = mesh.iota_transform
  devices = _iota(num_devices, tuple(transform.reshape_dims))
  return devices.transpose(tuple(transform.transpose_perm)).reshape(-1)


def _iota(num_devices: int, reshape_dims: tuple[int, ...]) -> np.ndarray:
  return np.arange(num_devices).reshape(reshape_dims or (num_devices,))


def _rows(devices: np.ndarray) -> Groups:
  return tuple(tuple(row) for row in devices.tolist())


@functools.lru_cache(maxsize=1024)
def connected_components(pairs: tuple[tuple[int, int], ...]) -> Groups:
  """Groups of the devices that (source, target) pairs connect, in any way."""
  connected: disjoint_sets.DisjointSets[int] = disjoint_sets.DisjointSets()
  for pair in pairs:
    connected.join(*pair)
  groups: dict[int, list[int]] = {}
  for device in sorted({device for pair in pairs for device in pair}):
    groups.setdefault(connected.find(device), []).append(device)
  return tuple(sorted(map(tuple, groups.values())))
