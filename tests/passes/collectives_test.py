# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Every form of a collective gives the record that its shapes say.

Bytes are counted by hand: f32 takes four, bf16 two.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
from jax import lax
import jax.numpy as jnp
from jax.sharding import Mesh
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec
import numpy as np
import pytest

import collective_text
import hlo_text
from lagom_xla.passes import collectives
from lagom_xla.passes import hlo

_REDUCE = collective_text.REDUCE
_SCATTER = collective_text.SCATTER
_NO_IDS = collective_text.NO_IDS
_PAIRS = collective_text.PAIRS
_GATHER = hlo_text.GATHER


@pytest.mark.parametrize(
  ("kind", "body", "counts"),
  [
    ("all-gather", f"f32[1024] all-gather(p), {_GATHER}", (1, 512, 4096)),
    ("all-reduce", f"f32[128] all-reduce(p), {_REDUCE}", (1, 512, 512)),
    ("reduce-scatter", f"f32[16] reduce-scatter(p), {_SCATTER}", (1, 512, 64)),
    (
      "all-to-all",
      f"f32[128] all-to-all(p), {_NO_IDS}, dimensions={{0}}",
      (1, 512, 512),
    ),
    (
      "collective-permute",
      f"f32[128] collective-permute(p), {_PAIRS}",
      (1, 512, 512),
    ),
    (
      "collective-broadcast",
      f"f32[128] collective-broadcast(p), {_NO_IDS}",
      (1, 512, 512),
    ),
  ],
)
def test_a_collective_printed_plain_is_sync(
  kind: str, body: str, counts: tuple[int, int, int]
) -> None:
  collective = collective_text.only(
    f"p = f32[128] parameter(0)\nROOT out = {body}"
  )
  assert collective_text.counts(collective) == (kind, *counts)
  assert (collective.form, collective.done_id) == ("sync", None)


def test_a_start_with_97_operands_is_one_collective() -> None:
  sizes = range(1, 98)
  parameters = "\n".join(f"p{i} = f32[{i}] parameter({i - 1})" for i in sizes)
  types = ", ".join(
    f"/*index={i}*/f32[{i}]" if i % 5 == 0 else f"f32[{i}]" for i in sizes
  )
  operands = ", ".join(f"p{i}" for i in sizes)
  collective = collective_text.only(f"""
    {parameters}
    begin = ({types}) all-reduce-start({operands}), {_REDUCE}
    busy = f32[1] negate(p1)
    ROOT end = ({types}) all-reduce-done(begin)
  """)
  num_bytes = 4 * sum(sizes)
  assert collective_text.counts(collective) == (
    "all-reduce",
    97,
    num_bytes,
    num_bytes,
  )


def test_names_and_channels_do_not_matter() -> None:
  found = collectives.find(
    hlo_text.load(f"""
      all-reduce.1 = f32[128] parameter(0)
      all-gather.7 = f32[128] all-reduce(all-reduce.1), {_REDUCE}
      fusion = f32[128] all-reduce(all-gather.7), {_REDUCE}
      ROOT all-gather-start = f32[128] negate(fusion)
    """)
  )
  assert [(c.name, c.kind) for c in found] == [
    ("all-gather.7", "all-reduce"),
    ("fusion", "all-reduce"),
  ]


def test_a_collective_group_is_its_members_with_one_start_and_done() -> None:
  found = collectives.find(
    hlo_text.load(
      """
        p = f32[128] parameter(0)
        begin = ((f32[128]), (f32[1024], f32[128])) async-start(p), calls=both
        busy = f32[128] negate(p)
        ROOT end = (f32[1024], f32[128]) async-done(begin)
      """,
      computations=f"""
        both {{
          q = f32[128] parameter(0)
          gather = f32[1024] all-gather(q), {_GATHER}
          reduce = f32[128] all-reduce(q), {_REDUCE}
          ROOT out = (f32[1024], f32[128]) tuple(gather, reduce)
        }}
      """,
    )
  )
  assert [(c.name, *collective_text.counts(c), c.form) for c in found] == [
    ("begin/gather", "all-gather", 1, 512, 4096, "async"),
    ("begin/reduce", "all-reduce", 1, 512, 512, "async"),
  ]
  assert len({(c.start_id, c.done_id) for c in found}) == 1


def test_an_async_fusion_is_no_collective() -> None:
  module = hlo_text.load(
    """
      p = f32[8,128] parameter(0)
      begin = ((f32[8,128]), f32[8,128]) fusion-start(p), kind=kLoop, calls=f
      busy = f32[8,128] negate(p)
      ROOT end = f32[8,128] fusion-done(begin)
    """,
    computations="""
      f {
        p = f32[8,128] parameter(0)
        ROOT c = f32[8,128] copy(p)
      }
    """,
  )
  assert collectives.find(module) == ()


def test_a_collective_inside_a_fusion_is_the_fusions() -> None:
  collective = collective_text.only(
    """
      p = f32[128] parameter(0)
      ROOT fused = f32[128] fusion(p), kind=kCustom, calls=f
    """,
    computations=f"""
      f {{
        q = f32[128] parameter(0)
        r = f32[128] all-reduce(q), {_REDUCE}
        ROOT out = f32[128] negate(r)
      }}
    """,
  )
  assert (collective.name, collective.form) == ("fused", "sync")
  assert collective_text.counts(collective) == ("all-reduce", 1, 512, 512)


def test_send_and_recv_have_the_pairs_of_their_attribute() -> None:
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
  assert [collective_text.counts(c) for c in found] == [
    ("recv", 0, 0, 512),
    ("send", 1, 512, 512),
  ]
  for collective in found:
    assert collective.form == "async"
    assert collective.pairs == ((0, 1), (1, 2), (4, 5))
    assert collective.groups == ((0, 1, 2), (4, 5))


def test_an_in_place_permute_moves_only_its_first_operand() -> None:
  collective = collective_text.only(f"""
    p = f32[8,128] parameter(0)
    q = f32[8,128] parameter(1)
    zero = s32[] constant(0)
    place = (s32[], s32[]) tuple(zero, zero)
    ROOT out = f32[8,128] collective-permute(p, q, place, place), {_PAIRS},
      slice_sizes={{{{8,128}}}}
  """)
  assert collective_text.counts(collective) == (
    "collective-permute",
    1,
    4096,
    4096,
  )


def test_collectives_of_loops_branches_and_calls_count_their_executions() -> (
  None
):
  found = collectives.find(
    hlo_text.load(
      """
        x = f32[128] parameter(0)
        which = s32[] parameter(1)
        loop = f32[128] while(x), condition=go_on, body=body,
          backend_config={"known_trip_count":{"n":"6"}}
        once = f32[128] call(loop), to_apply=reduce
        ROOT out = f32[128] conditional(which, once, x),
          branch_computations={reduce, reduce}
      """,
      computations=f"""
        reduce {{
          x = f32[128] parameter(0)
          ROOT r = f32[128] all-reduce(x), {_REDUCE}
        }}

        body {{
          x = f32[128] parameter(0)
          b = f32[128] all-to-all(x), {_NO_IDS}, dimensions={{0}}
          ROOT c = f32[128] call(b), to_apply=reduce
        }}

        go_on {{
          x = f32[128] parameter(0)
          ROOT yes = pred[] constant(true)
        }}
      """,
    )
  )
  executions = {c.name: c.executions for c in found}
  assert executions == {"b": 6, "r": 6 + 1 + 2}


def test_a_start_awaited_in_the_next_iteration_is_async_without_a_done() -> (
  None
):
  found = collectives.find(
    hlo_text.load(
      f"""
        p = f32[128] parameter(0)
        begin = (f32[128], f32[1024]) all-gather-start(p), {_GATHER}
        ROOT loop = (f32[128], f32[1024]) while(begin), condition=go_on,
          body=body, backend_config={{"known_trip_count":{{"n":"4"}}}}
      """,
      computations=f"""
        body {{
          carried = (f32[128], f32[1024]) parameter(0)
          end = f32[1024] all-gather-done(carried)
          part = f32[128] slice(end), slice={{[0:128]}}
          ROOT again = (f32[128], f32[1024]) all-gather-start(part), {_GATHER}
        }}

        go_on {{
          carried = (f32[128], f32[1024]) parameter(0)
          ROOT yes = pred[] constant(true)
        }}
      """,
    )
  )
  assert [(c.name, c.form, c.done_id, c.executions) for c in found] == [
    ("begin", "async", None, 1),
    ("again", "async", None, 4),
  ]


def test_num_devices_is_as_declared_else_as_the_groups_name() -> None:
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
  """Elements per step in an operand or result of so many bytes."""
  itemsize = {"bf16": 2, "f32": 4}[collective.element_type]
  return num_bytes * collective.executions // itemsize


def test_a_fsdp_step_gathers_and_scatters_each_parameter_once(
  fsdp_scan: hlo.Module, fsdp_unrolled: hlo.Module, sizes: dict[str, int]
) -> None:
  # Once, because the step keeps what it gathered for the backward pass.
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


def test_a_tp_step_reduces_activations(
  tp_scan: hlo.Module, sizes: dict[str, int]
) -> None:
  in_loops = [
    c for c in collectives.find(tp_scan) if c.executions == sizes["layers"]
  ]
  assert [c.kind for c in in_loops] == ["all-reduce"] * 2  # One per pass.
  activations = sizes["layers"] * sizes["rows"] * sizes["width"]
  for collective in in_loops:
    assert _elements(collective, collective.operand_bytes) == activations


def test_a_permute_of_a_ring_is_one_group_of_all(
  h100s: Sequence[jax.Device], scheduled: Any
) -> None:
  mesh = Mesh(h100s, ("x",))
  spec = PartitionSpec("x")

  @jax.shard_map(mesh=mesh, in_specs=spec, out_specs=spec)
  def rotate(x: jax.Array) -> jax.Array:
    ring = [(i, (i + 1) % 8) for i in range(8)]
    return jax.lax.ppermute(x, "x", ring) + x

  x = jax.ShapeDtypeStruct(
    (1024, 16), jnp.bfloat16, sharding=NamedSharding(mesh, spec)
  )
  (permute,) = collectives.find(scheduled(jax.jit(rotate).lower(x)))
  assert collective_text.counts(permute) == (
    "collective-permute",
    1,
    4096,
    4096,
  )
  assert permute.groups == (tuple(range(8)),)
  assert set(permute.pairs) == {(i, (i + 1) % 8) for i in range(8)}


def test_a_ragged_exchange_moves_the_smaller_of_its_two_buffers(
  h100s: Sequence[jax.Device], scheduled: Callable[..., hlo.Module]
) -> None:
  """Tokens go to buffers with room for those of all eight ranks, and back."""
  rows, width, ranks = 1024, 256, 8
  mesh = Mesh(np.array(h100s), ("x",))
  spec = PartitionSpec("x")

  def exchange(sent: jax.Array, sizes: jax.Array) -> jax.Array:
    def send(rows: jax.Array, room: int) -> jax.Array:
      buffer = jnp.zeros((room, width), jnp.bfloat16)
      return lax.ragged_all_to_all(
        rows, buffer, sizes, sizes, sizes, sizes, axis_name="x"
      )

    return send(jnp.tanh(send(sent, ranks * rows)), rows)

  def shape(*dimensions: int, dtype: Any) -> jax.ShapeDtypeStruct:
    sharding = NamedSharding(mesh, spec)
    return jax.ShapeDtypeStruct(dimensions, dtype, sharding=sharding)

  lowered = jax.jit(
    jax.shard_map(exchange, mesh=mesh, in_specs=(spec, spec), out_specs=spec)
  ).lower(
    shape(ranks * rows, width, dtype=jnp.bfloat16),
    shape(ranks * ranks, dtype=jnp.int32),
  )
  there, back = collectives.find(scheduled(lowered))
  assert there.kind == back.kind == "ragged-all-to-all"
  assert (there.operand_bytes, there.result_bytes) == (
    rows * width * 2,
    ranks * rows * width * 2,
  )
  assert (back.operand_bytes, back.result_bytes) == (
    there.result_bytes,
    there.operand_bytes,
  )
  for collective in (there, back):
    assert collective.nccl_bytes == rows * width * 2
    assert collective.array_bytes == (rows * width * 2,)
