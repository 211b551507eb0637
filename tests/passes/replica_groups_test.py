# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""The same devices, in the same groups, however XLA spells them.

Groups are compared with what the definition of each spelling says, computed
device by device.

They are also compared with the data that XLA's CPU backend really exchanges,
and with what a sharding asks for.
"""

from __future__ import annotations

from collections.abc import Sequence
import itertools
import math

import hypothesis
from hypothesis import strategies as st
import jax
from jax._src import compiler
from jax._src.interpreters import mlir
from jax._src.lib import _jax
from jax._src.lib import xla_client
from jax._src.lib.mlir import ir
from jax.sharding import Mesh
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec
import numpy as np
import pytest

import hlo_text
from lagom_xla.passes import collectives

_Groups = tuple[tuple[int, ...], ...]


def _groups_of(spelled: str, num_devices: int, *, kind: str = "") -> _Groups:
  """The groups of one all-reduce, or of a collective of another kind."""
  operation = kind or (
    "all-reduce(p), channel_id=1, use_global_device_ids=true, to_apply=add"
  )
  module = hlo_text.load(
    f"p = f32[8] parameter(0)\nROOT out = f32[8] {operation}{spelled}",
    header=f"num_partitions={num_devices}",
  )
  (collective,) = collectives.find(module)
  return collective.groups


def _replica_groups_of(spelled: str, num_devices: int) -> _Groups:
  return _groups_of(f", replica_groups={spelled}", num_devices)


# A part of a mesh axis: the axis, how many devices lie before it (major) in the
# axis, and its size. The whole axis is (axis, 1, its size).
Part = tuple[int, int, int]


def _listed(groups: _Groups) -> str:
  inner = ",".join("{" + ",".join(map(str, g)) + "}" for g in groups)
  return "{" + inner + "}"


def _by_definition(
  sizes: Sequence[int], parts: Sequence[Part], device_ids: Sequence[int]
) -> _Groups:
  """Puts each device of a mesh into the group of its other coordinates."""
  found: dict[tuple[int, ...], list[tuple[tuple[int, ...], int]]] = {}
  places = itertools.product(*map(range, sizes))
  for place, device in zip(places, device_ids, strict=True):
    inside = []
    outside = list(place)
    for axis, before, size in parts:
      after = sizes[axis] // (before * size)
      digit = place[axis] // after % size
      inside.append(digit)
      outside[axis] -= digit * after
    found.setdefault(tuple(outside), []).append((tuple(inside), device))
  return tuple(
    tuple(device for _, device in sorted(members))
    for _, members in sorted(found.items())
  )


@st.composite
def _meshes(draw: st.DrawFn) -> tuple[list[int], list[Part]]:
  """Sizes of a mesh's axes, and at most one part of each in any order."""
  splits = draw(
    st.lists(
      st.tuples(st.integers(1, 3), st.integers(1, 3), st.integers(1, 3)),
      min_size=1,
      max_size=3,
    )
  )
  sizes = [math.prod(split) for split in splits]
  axes = draw(st.permutations(range(len(sizes))))
  parts: list[Part] = []
  for axis in axes[: draw(st.integers(1, len(sizes)))]:
    before, size, _ = splits[axis]
    is_whole = size == 1 or draw(st.booleans())  # XLA has no part of size one.
    parts.append((axis, 1, sizes[axis]) if is_whole else (axis, before, size))
  # XLA has no such spelling of groups of one device.
  hypothesis.assume(math.prod(size for _, _, size in parts) > 1)
  return sizes, parts


def _mesh_text(
  sizes: Sequence[int], parts: Sequence[Part], device_ids: str = ""
) -> str:
  mesh = ",".join(f"'a{i}'={size}" for i, size in enumerate(sizes))
  ids = f", device_ids=({device_ids})" if device_ids else ""
  spelled = [
    f"'a{axis}'" if size == sizes[axis] else f"'a{axis}':({before}){size}"
    for axis, before, size in parts
  ]
  return f"mesh[{mesh}]{ids} {{{','.join(spelled)}}}"


def _iota_text(sizes: Sequence[int], order: Sequence[int]) -> str:
  transpose = f"T({','.join(map(str, order))})" if len(order) > 1 else ""
  return f"[{','.join(map(str, sizes))}]{transpose}"


@hypothesis.given(_meshes())
def test_every_spelling_of_a_meshs_groups_is_one(mesh):
  sizes, parts = mesh
  num_devices = math.prod(sizes)
  expected = _by_definition(sizes, parts, range(num_devices))
  spellings = [_listed(expected), _mesh_text(sizes, parts)]
  if all(size == sizes[axis] for axis, _, size in parts):
    axes = [axis for axis, _, _ in parts]
    order = [a for a in range(len(sizes)) if a not in axes] + axes
    shape = f"[{len(expected)},{len(expected[0])}]"
    spellings.append(f"{shape}<={_iota_text(sizes, order)}")
  for spelled in spellings:
    assert _replica_groups_of(spelled, num_devices) == expected


@hypothesis.settings(max_examples=30)
@hypothesis.given(_meshes(), st.data())
def test_device_ids_put_other_devices_into_a_meshs_places(mesh, data):
  sizes, parts = mesh
  num_devices = math.prod(sizes)
  order = data.draw(st.permutations(range(len(sizes))))
  as_iota = np.arange(num_devices).reshape(sizes).transpose(order).reshape(-1)
  listed = data.draw(st.permutations(range(num_devices)))
  # XLA prints only those that are not in order, and crashes on the others.
  hypothesis.assume(listed != sorted(listed))
  for device_ids, ids_text in (
    (listed, ",".join(map(str, listed))),
    (as_iota.tolist(), _iota_text(sizes, order)),
  ):
    expected = _by_definition(sizes, parts, device_ids)
    spelled = _mesh_text(sizes, parts, ids_text)
    assert _replica_groups_of(spelled, num_devices) == expected


def test_no_groups_are_all_devices():
  assert _replica_groups_of("{}", 6) == ((0, 1, 2, 3, 4, 5),)


@pytest.mark.parametrize(
  ("pairs", "groups"),
  [
    ("{{0,4},{5,1}}", ((0, 4), (1, 5))),
    ("{{2,2},{0,1}}", ((0, 1), (2,))),
    ("{{0,1},{2,3},{1,2}}", ((0, 1, 2, 3),)),
  ],
)
def test_a_permute_joins_the_devices_that_its_pairs_connect(pairs, groups):
  permute = f"collective-permute(p), source_target_pairs={pairs}"
  assert _groups_of("", 8, kind=permute) == groups


def _gathered_by_xla(spelled: str, group_size: int) -> list[tuple[int, ...]]:
  """The numbers that each of eight CPU devices gets when each sends its own."""
  module = hlo_text.load(
    f"""
  p = s32[8] parameter(0), sharding={{devices=[8]<=[8]}}
  mine = s32[1] custom-call(p), custom_call_target="SPMDFullToShardShape",
    sharding={{manual}}
  all = s32[{group_size}] all-gather(mine), channel_id=1, dimensions={{0}},
    use_global_device_ids=true, sharding={{manual}}, replica_groups={spelled}
  ROOT out = s32[{8 * group_size}] custom-call(all),
    custom_call_target="SPMDShardToFullShape", sharding={{devices=[8]<=[8]}}
""",
    header="num_partitions=8",
  )
  options = compiler.get_compile_options(
    num_replicas=1,
    num_partitions=8,
    device_assignment=np.arange(8).reshape(1, 8),
  )
  options.executable_build_options.use_spmd_partitioning = True
  options.executable_build_options.use_shardy_partitioner = False
  devices = jax.devices()
  proto = module.proto.SerializeToString()
  with mlir.make_ir_context():
    executable = devices[0].client.compile_and_load(
      ir.Module.parse(_jax.mlir.hlo_to_stablehlo(proto)),
      xla_client.DeviceList(tuple(devices)),
      options,
    )
  own = jax.device_put(
    np.arange(8, dtype=np.int32),
    NamedSharding(Mesh(np.array(devices), ("x",)), PartitionSpec("x")),
  )
  results = executable.execute_sharded([own])
  (shards,) = results.disassemble_into_single_device_arrays()
  return [tuple(np.asarray(shard).tolist()) for shard in shards]


@pytest.mark.parametrize(
  "spelled",
  [
    "{{0,5},{1,4},{7,2},{6,3}}",
    "[4,2]<=[2,4]T(1,0)",
    "[2,4]<=[2,2,2]T(1,0,2)",
    "mesh['a'=4,'b'=2] {'a'}",
    "mesh['a'=4,'b'=2] {'b'}",
    "mesh['a'=4,'b'=2] {'b','a'}",
    "mesh['a'=8] {'a':(2)2}",
    "mesh['a'=4,'b'=2] {'b','a':(2)2}",
    "mesh['a'=4,'b'=2] {'a':(1)2,'b'}",
  ],
)
def test_xla_exchanges_data_in_these_groups_and_this_order(spelled):
  groups = _replica_groups_of(spelled, 8)
  got = _gathered_by_xla(spelled, len(groups[0]))
  assert got == [
    next(group for group in groups if device in group) for device in range(8)
  ]
