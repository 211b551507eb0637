# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Every form of a collective gives the record that follows from its shapes.

Bytes are counted by hand: f32 takes four, bf16 two. For all of XLA's spellings,
groups of devices follow the definition device by device, and equal the
exchanges of XLA's CPU backend.
"""

from __future__ import annotations

from collections.abc import Sequence
import itertools
import json
import math
from typing import Any

import hypothesis
from hypothesis import strategies as st
import jax
from jax import lax
import jax.numpy as jnp
from jax.sharding import Mesh
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec
import numpy as np
import pytest

import compiles
import hlo_text
from lagom_xla.compile import devices as devices_lib
from lagom_xla.passes import collectives
from lagom_xla.passes import dependencies
from lagom_xla.passes import hlo

_ALL = hlo_text.ALL
_REDUCE = f"{_ALL}, to_apply=add"
_SCATTER = f"{_REDUCE}, dimensions={{0}}"
_NO_IDS = "channel_id=1, replica_groups=[1,8]<=[8]"
_PAIRS = "channel_id=1, source_target_pairs={{0,1},{1,2},{2,3},{3,0}}"


def _only(body: str, **kwargs: Any) -> collectives.Collective:
  """The one collective of a computation."""
  (collective,) = collectives.find(hlo_text.load(body, **kwargs))
  return collective


def _counts(collective: collectives.Collective) -> tuple[Any, ...]:
  """A collective's kind, number of arrays, and bytes."""
  return (
    collective.kind,
    collective.num_operands,
    collective.operand_bytes,
    collective.result_bytes,
  )


_GATHER = hlo_text.GATHER


@pytest.mark.parametrize(
  ("operation", "counts"),
  [
    (f"f32[1024] all-gather(p), {_GATHER}", (1, 512, 4096)),
    (f"f32[128] all-reduce(p), {_REDUCE}", (1, 512, 512)),
    (f"f32[16] reduce-scatter(p), {_SCATTER}", (1, 512, 64)),
    (f"f32[128] all-to-all(p), {_NO_IDS}, dimensions={{0}}", (1, 512, 512)),
    (f"f32[128] collective-permute(p), {_PAIRS}", (1, 512, 512)),
    (f"f32[128] collective-broadcast(p), {_NO_IDS}", (1, 512, 512)),
  ],
)
def test_a_collective_without_start_and_done_is_synchronous(operation, counts):
  collective = _only(f"p = f32[128] parameter(0)\nROOT out = {operation}")
  kind = operation.split()[1].partition("(")[0]
  assert _counts(collective) == (kind, *counts)
  assert (collective.form, collective.done_id) == ("sync", None)


@pytest.mark.parametrize(
  ("body", "inside", "expected"),
  [
    pytest.param(
      f"""
        all-reduce.1 = f32[128] parameter(0)
        all-gather.7 = f32[128] all-reduce(all-reduce.1), {_REDUCE}
        fusion = f32[128] all-reduce(all-gather.7), {_REDUCE}
        ROOT all-gather-start = f32[128] negate(fusion)
      """,
      "",
      [
        ("all-gather.7", "sync", "all-reduce", 1, 512, 512),
        ("fusion", "sync", "all-reduce", 1, 512, 512),
      ],
      id="names do not matter",
    ),
    pytest.param(
      """
        p = f32[128] parameter(0)
        begin = ((f32[128]), (f32[1024], f32[128])) async-start(p), calls=f
        busy = f32[128] negate(p)
        ROOT end = (f32[1024], f32[128]) async-done(begin)
      """,
      f"""
        gather = f32[1024] all-gather(q), {_GATHER}
        reduce = f32[128] all-reduce(q), {_REDUCE}
        ROOT out = (f32[1024], f32[128]) tuple(gather, reduce)
      """,
      [
        ("begin/gather", "async", "all-gather", 1, 512, 4096),
        ("begin/reduce", "async", "all-reduce", 1, 512, 512),
      ],
      id="a group is its members",
    ),
    pytest.param(
      """
        p = f32[128] parameter(0)
        ROOT fused = f32[128] fusion(p), kind=kCustom, calls=f
      """,
      f"""
        r = f32[128] all-reduce(q), {_REDUCE}
        ROOT out = f32[128] negate(r)
      """,
      [("fused", "sync", "all-reduce", 1, 512, 512)],
      id="inside a fusion",
    ),
    pytest.param(
      f"""
        p = f32[8,128] parameter(0)
        q = f32[8,128] parameter(1)
        zero = s32[] constant(0)
        place = (s32[], s32[]) tuple(zero, zero)
        ROOT out = f32[8,128] collective-permute(p, q, place, place), {_PAIRS},
          slice_sizes={{{{8,128}}}}
      """,
      "",
      [("out", "sync", "collective-permute", 1, 4096, 4096)],
      id="in place it moves its first operand",
    ),
  ],
)
def test_collectives_are_recognized_by_opcode_in_any_wrapper(
  body, inside, expected
):
  computations = f"f {{\n q = f32[128] parameter(0)\n{inside} }}"
  module = hlo_text.load(body, computations=computations if inside else "")
  found = collectives.find(module)
  assert [(c.name, c.form, *_counts(c)) for c in found] == expected
  if len(found) > 1 and inside:
    assert len({(c.start_id, c.done_id) for c in found}) == 1


def test_send_and_recv_take_their_pairs_from_a_frontend_attribute():
  pairs = "_xla_send_recv_source_target_pairs={{0,1},{1,2},{4,5}}"
  found = collectives.find(
    hlo_text.load(f"""
      p = f32[128] parameter(0)
      ready = token[] after-all()
      r = (f32[128], u32[], token[]) recv(ready), channel_id=2,
        frontend_attributes={{{pairs}}}
      s = (f32[128], u32[], token[]) send(p, ready), channel_id=2,
        frontend_attributes={{{pairs}}}
      busy = f32[128] negate(p)
      received = (f32[128], token[]) recv-done(r), channel_id=2
      sent = token[] send-done(s), channel_id=2
      ROOT out = f32[128] get-tuple-element(received), index=0
    """)
  )
  assert [_counts(c) for c in found] == [
    ("recv", 0, 0, 512),
    ("send", 1, 512, 512),
  ]
  for collective in found:
    assert collective.form == "async"
    assert collective.pairs == ((0, 1), (1, 2), (4, 5))
    assert collective.groups == ((0, 1, 2), (4, 5))


def test_collectives_of_loops_branches_and_calls_count_their_executions():
  module = hlo_text.load(
    f"""
      x = f32[128] parameter(0)
      which = s32[] parameter(1)
      loop = f32[128] while(x), condition=go_on, body=body, {hlo_text.trips(6)}
      once = f32[128] call(loop), to_apply=reduce
      ROOT out = f32[128] conditional(which, once, x),
        branch_computations={{reduce, reduce}}
    """,
    computations=f"""
      reduce {{
        x = f32[128] parameter(0)
        ROOT r = f32[128] all-reduce(x), {_REDUCE} }}
      body {{
        x = f32[128] parameter(0)
        b = f32[128] all-to-all(x), {_NO_IDS}, dimensions={{0}}
        ROOT c = f32[128] call(b), to_apply=reduce }}
      go_on {{
        x = f32[128] parameter(0)
        ROOT yes = pred[] constant(true) }}
    """,
  )
  executions = {c.name: c.executions for c in collectives.find(module)}
  assert executions == {"b": 6, "r": 6 + 1 + 2}


def test_num_devices_is_the_declared_one_or_inferred_from_groups():
  reduce = (
    "p = f32[128] parameter(0)\nROOT r = f32[128] all-reduce(p), to_apply=add"
  )
  whole = hlo_text.load(reduce, header=f"{hlo_text.HEADER}, replica_count=2")
  assert collectives.num_devices(whole) == 16

  def from_proto(body: str) -> int | None:
    proto = hlo_text.load(body).proto.SerializeToString()
    return collectives.num_devices(hlo.load(proto))

  assert from_proto(reduce) is None
  assert from_proto(f"{reduce}, replica_groups=[4,8]<=[32]") == 32
  permute = f"ROOT r = f32[128] collective-permute(p), {_PAIRS}"
  assert from_proto(f"p = f32[128] parameter(0)\n{permute}") == 4


def _elements(collective: collectives.Collective, num_bytes: int) -> int:
  """Elements per step in an operand or result of this many bytes."""
  itemsize = {"bf16": 2, "f32": 4}[collective.element_type]
  return num_bytes * collective.executions // itemsize


def test_an_fsdp_step_gathers_and_scatters_each_parameter_once(
  fsdp_scan, fsdp_unrolled, sizes
):
  # Once, because the step keeps gathered parameters for the backward pass.
  in_layers = 2 * sizes["layers"] * sizes["width"] * sizes["hidden"]
  num_parameters = in_layers + sizes["width"] * sizes["classes"]
  for module in (fsdp_scan, fsdp_unrolled):
    gathered = scattered = 0
    for collective in collectives.find(module):
      assert collective.groups == (tuple(range(8)),)
      if collective.kind == "all-gather":
        assert collective.result_bytes == 8 * collective.operand_bytes
        gathered += _elements(collective, collective.result_bytes)
      if collective.kind == "reduce-scatter":
        assert collective.operand_bytes == 8 * collective.result_bytes
        scattered += _elements(collective, collective.operand_bytes)
    assert (gathered, scattered) == (num_parameters, num_parameters)


def test_a_ragged_all_to_all_moves_the_smaller_of_its_two_buffers(
  h100s, scheduled
):
  """Tokens go to buffers with room for those of all eight ranks, and back."""
  rows, width, ranks = 1024, 256, 8
  mesh = Mesh(np.array(h100s), ("x",))
  spec = PartitionSpec("x")

  @jax.shard_map(mesh=mesh, in_specs=(spec, spec), out_specs=spec)
  def exchange(sent: jax.Array, sizes: jax.Array) -> jax.Array:
    for room in (ranks * rows, rows):
      buffer = jnp.zeros((room, width), jnp.bfloat16)
      sent = lax.ragged_all_to_all(
        jnp.tanh(sent), buffer, sizes, sizes, sizes, sizes, axis_name="x"
      )
    return sent

  def shape(*dimensions: int, dtype: Any) -> jax.ShapeDtypeStruct:
    sharding = NamedSharding(mesh, spec)
    return jax.ShapeDtypeStruct(dimensions, dtype, sharding=sharding)

  lowered = jax.jit(exchange).lower(
    shape(ranks * rows, width, dtype=jnp.bfloat16),
    shape(ranks * ranks, dtype=jnp.int32),
  )
  found = collectives.find(scheduled(lowered))
  small_bytes, large_bytes = rows * width * 2, ranks * rows * width * 2
  assert [(c.kind, c.operand_bytes, c.result_bytes) for c in found] == [
    ("ragged-all-to-all", small_bytes, large_bytes),
    ("ragged-all-to-all", large_bytes, small_bytes),
  ]
  for collective in found:
    assert collective.nccl_bytes == small_bytes
    assert collective.array_bytes == (small_bytes,)


def _tuple(types: Sequence[str]) -> str:
  return types[0] if len(types) == 1 else f"({', '.join(types)})"


def _pair(
  form: str,
  config: str = "",
  between: str = "busy = f32[] negate(zero)",
  awaited: str = "begin",
) -> hlo.Module:
  """A form's start and done, with an instruction in between."""
  kind, _, how = form.partition(" ")
  arrays, results, _, attributes = _FORMS[form]
  given, taken = arrays.split(), results.split()
  opcode, computations = f"{kind}-start", ""
  shape = f"(({', '.join(given)}), {_tuple(taken)})"
  if how == "wrapped":
    operands = ", ".join(f"q{i}" for i in range(len(given)))
    parameters = (f"q{i} = {t} parameter({i})" for i, t in enumerate(given))
    computations = "\n".join(
      [
        "wrapped {",
        *parameters,
        f"ROOT r = {_tuple(taken)} {kind}({operands}), {attributes} }}",
      ]
    )
    opcode, attributes = "async-start", "calls=wrapped"
  elif kind == "all-reduce":
    shape = _tuple(taken)
  elif kind == "all-gather":
    shape = f"({_tuple(given)}, {_tuple(taken)})"
  elif kind == "collective-permute":
    contexts = ["u32[]"] * 2 if how == "with contexts" else []
    shape = _tuple([_tuple(given), _tuple(taken), *contexts])
  parameters = (f"p{i} = {t} parameter({i})" for i, t in enumerate(given))
  operands = ", ".join(f"p{i}" for i in range(len(given)))
  done = opcode.replace("-start", "-done")
  body = [
    *parameters,
    "zero = f32[] constant(0)",
    f"begin = {shape} {opcode}({operands}), {attributes}{config}",
    between,
    f"ROOT end = {_tuple(taken)} {done}({awaited})",
  ]
  return hlo_text.load("\n".join(body), computations=computations)


# Operands and results; how many arrays count, and their bytes; attributes.
_FORMS = {
  "all-gather": ("f32[128]", "f32[1024]", (1, 512, 4096), _GATHER),
  "all-gather of two": (
    "f32[128] bf16[64]", "f32[1024] bf16[512]", (2, 640, 5120), _GATHER,
  ),
  "all-gather wrapped": ("f32[128]", "f32[1024]", (1, 512, 4096), _GATHER),
  "all-reduce": ("f32[128]", "f32[128]", (1, 512, 512), _REDUCE),
  "all-reduce of two": (
    "f32[128] f32[3,5]", "f32[128] f32[3,5]", (2, 572, 572), _REDUCE,
  ),
  "collective-permute": ("f32[128]", "f32[128]", (1, 512, 512), _PAIRS),
  "collective-permute with contexts": (
    "f32[128]", "f32[128]", (1, 512, 512), _PAIRS,
  ),
  "collective-permute of four": (
    "f32[128] " * 4, "f32[128] " * 4, (4, 2048, 2048), _PAIRS,
  ),
  "reduce-scatter": ("f32[1024]", "f32[128]", (1, 4096, 512), _SCATTER),
  "reduce-scatter of two": (
    "f32[1024] f32[8]", "f32[128] f32[1]", (2, 4128, 516), _SCATTER,
  ),
  "reduce-scatter wrapped": ("f32[1024]", "f32[128]", (1, 4096, 512), _SCATTER),
  "all-to-all": (
    "bf16[8,128]", "bf16[8,128]", (1, 2048, 2048),
    f"{_NO_IDS}, dimensions={{0}}",
  ),
  "all-to-all wrapped": (
    "f32[16] " * 8, "f32[16] " * 8, (8, 512, 512), _NO_IDS,
  ),
  # The rows, their destination, and offsets and sizes.
  "ragged-all-to-all": (
    "f32[16,128] f32[32,128]" + " s32[8]" * 4, "f32[32,128]", (1, 8192, 16384),
    _NO_IDS,
  ),
  "collective-broadcast": (
    "f32[8,128]", "f32[8,128]", (1, 4096, 4096), _NO_IDS,
  ),
}  # fmt: skip


@pytest.mark.parametrize("form", _FORMS)
def test_a_start_and_its_done_are_one_collective_with_its_arrays_bytes(form):
  module = _pair(form)
  (collective,) = collectives.find(module)
  kind, (*_, counts, _) = form.split()[0], _FORMS[form]
  assert _counts(collective) == (kind, *counts)
  assert (collective.name, collective.form) == ("begin", "async")
  assert (collective.computation, collective.executions) == ("main", 1)
  ends = collective.start_id, collective.done_id
  assert [module.entry.by_id[i or 0].name for i in ends] == ["begin", "end"]
  num_devices = 4 if kind == "collective-permute" else 8
  assert collective.groups == (tuple(range(num_devices)),)
  assert (collective.group_size, collective.num_groups) == (num_devices, 1)
  moved = min if kind == "ragged-all-to-all" else max
  assert collective.nccl_bytes == moved(counts[1:])
  for between in ("", "q = f32[] bitcast(zero)"):
    (alone,) = collectives.find(_pair(form, between=between))
    assert alone.form == "sync"
  # A tuple is not one of XLA's no-ops.
  (beside,) = collectives.find(_pair(form, between="q = (f32[]) tuple(zero)"))
  assert beside.form == "async"


def test_async_pairs_that_overlap_only_collectives_are_synchronous():
  mesh = Mesh(
    np.array(devices_lib.devices(compiles.H100S)).reshape(2, 4), ("a", "b")
  )
  split = PartitionSpec(("a", "b"))

  @jax.shard_map(
    mesh=mesh,
    in_specs=(split, split),
    out_specs=(PartitionSpec("a"), PartitionSpec("b")),
    check_vma=False,
  )
  def gathered(x: jax.Array, y: jax.Array) -> tuple[jax.Array, jax.Array]:
    whole = lax.all_gather(x, "b", tiled=True)
    return whole, lax.all_gather(y, "a", tiled=True)

  sharding = NamedSharding(mesh, split)
  x = jax.ShapeDtypeStruct((4096,), jnp.float32, sharding=sharding)
  target = compiles.target(jax.jit(gathered).lower(x, x))
  config = compiles.in_flight(2)
  scheduled = target.schedule(config)
  starts = [i for i in scheduled.entry.instructions if dependencies.is_start(i)]
  at = scheduled.entry.position
  dones = dependencies.awaiting_of(scheduled.entry)
  assert at[starts[1].id] < at[dones[starts[0].id].id]  # Both are in flight.
  for module in (scheduled, target.compile(config).module):
    assert [c.form for c in collectives.find(module)] == ["sync", "sync"]


def test_is_sync_and_is_pipelined_are_read_from_the_start():
  def written(config: dict[str, bool]) -> collectives.Collective:
    text = json.dumps({"collective_backend_config": config})
    module = _pair("all-reduce", f", backend_config={text}")
    return collectives.find(module)[0]

  assert written({"is_sync": False}).form == "async"
  assert written({"is_sync": True}).form == "sync"
  assert not written({"is_sync": True}).is_pipelined
  assert written({"is_pipelined": True}).is_pipelined


def test_an_async_pair_with_an_update_ends_at_its_done():
  body = "update = ((f32[1024]), f32[128]) async-update(begin)"
  module = _pair("reduce-scatter wrapped", between=body, awaited="update")
  (collective,) = collectives.find(module)
  assert collective.done_id is not None
  assert module.entry.by_id[collective.done_id].name == "end"


_Groups = tuple[tuple[int, ...], ...]


def _replica_groups_of(spelled: str, num_devices: int) -> _Groups:
  """The groups of an all-reduce."""
  return _only(
    f"""
      p = f32[8] parameter(0)
      ROOT out = f32[8] all-reduce(p), channel_id=1, to_apply=add,
        use_global_device_ids=true, replica_groups={spelled}
    """,
    header=f"num_partitions={num_devices}",
  ).groups


# A part of a mesh axis: the axis, its pre-size (the devices major to it in the
# axis), and its size. The whole axis is (axis, 1, its size).
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
  # XLA cannot spell groups of one device this way.
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
def test_all_spellings_of_a_meshs_groups_give_the_same_groups(mesh):
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
def test_device_ids_of_a_mesh_determine_the_devices_in_its_groups(mesh, data):
  sizes, parts = mesh
  num_devices = math.prod(sizes)
  order = data.draw(st.permutations(range(len(sizes))))
  as_iota = np.arange(num_devices).reshape(sizes).transpose(order).reshape(-1)
  listed = data.draw(st.permutations(range(num_devices)))
  # XLA prints only unordered device ids, and crashes on ordered ones.
  hypothesis.assume(listed != sorted(listed))
  for device_ids, ids_text in (
    (listed, ",".join(map(str, listed))),
    (as_iota.tolist(), _iota_text(sizes, order)),
  ):
    expected = _by_definition(sizes, parts, device_ids)
    spelled = _mesh_text(sizes, parts, ids_text)
    assert _replica_groups_of(spelled, num_devices) == expected


def test_empty_replica_groups_mean_all_devices():
  assert _replica_groups_of("{}", 6) == ((0, 1, 2, 3, 4, 5),)


@pytest.mark.parametrize(
  ("pairs", "groups"),
  [
    ("{{0,4},{5,1}}", ((0, 4), (1, 5))),
    ("{{2,2},{0,1}}", ((0, 1), (2,))),
    ("{{0,1},{2,3},{1,2}}", ((0, 1, 2, 3),)),
  ],
)
def test_a_permutes_groups_are_the_devices_that_its_pairs_connect(
  pairs, groups
):
  permute = f"collective-permute(p), source_target_pairs={pairs}"
  body = f"p = f32[8] parameter(0)\nROOT out = f32[8] {permute}"
  assert _only(body).groups == groups


def _gathered_by_xla(spelled: str, group_size: int) -> list[tuple[int, ...]]:
  """The numbers that each of eight CPU devices gathers; each sends its own."""
  module = hlo_text.load(
    f"""
      mine = s32[1] parameter(0)
      ROOT all = s32[{group_size}] all-gather(mine), channel_id=1,
        dimensions={{0}}, use_global_device_ids=true, replica_groups={spelled}
    """,
    header="num_partitions=8",
  )
  got = hlo_text.run(module, np.arange(8, dtype=np.int32))
  return list(map(tuple, got.reshape(8, group_size).tolist()))


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
def test_parsed_groups_equal_the_groups_and_order_that_xla_runs(spelled):
  groups = _replica_groups_of(spelled, 8)
  got = _gathered_by_xla(spelled, len(groups[0]))
  assert got == [
    next(group for group in groups if device in group) for device in range(8)
  ]


# Two replicas of four partitions: device r * 4 + p is partition p of replica r.
@pytest.mark.parametrize(
  ("collective", "groups"),
  [
    ("all-reduce(p), to_apply=add", [(0, 4), (1, 5), (2, 6), (3, 7)]),
    (
      "all-reduce(p), to_apply=add, channel_id=1, replica_groups={{0},{1}}",
      [(0, 1, 2, 3), (4, 5, 6, 7)],
    ),
    (
      "all-reduce(p), to_apply=add, channel_id=1, replica_groups={{0,1}}",
      [(0, 4, 1, 5, 2, 6, 3, 7)],
    ),
    (
      "all-reduce(p), to_apply=add, channel_id=1, use_global_device_ids=true,"
      " replica_groups={{0,5},{1,2},{3,4},{6,7}}",
      [(0, 5), (1, 2), (3, 4), (6, 7)],
    ),
    (
      "all-to-all(p), dimensions={0}, channel_id=1,"
      " replica_groups={{0,3},{1,2}}",
      [(0, 3), (1, 2), (4, 7), (5, 6)],
    ),
    (
      "collective-permute(p), channel_id=1, source_target_pairs={{0,1},{2,3}}",
      [(0, 1), (2, 3), (4, 5), (6, 7)],
    ),
  ],
)
def test_group_ids_count_replicas_partitions_both_or_devices(
  collective, groups
):
  text = hlo_text.text(
    f"p = f32[8] parameter(0)\nROOT out = f32[8] {collective}",
    header="replica_count=2, num_partitions=4",
  )
  (found,) = collectives.find(hlo.load(text))
  assert list(found.groups) == groups
