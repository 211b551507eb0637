# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Every form of a collective gives the record that its shapes say.

Bytes are counted by hand: f32 takes four, bf16 two.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
import dataclasses
import json
import re
from typing import Any

import jax
from jax import lax
import jax.numpy as jnp
from jax.sharding import Mesh
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec
import numpy as np
import pytest

import hlo_text
from lagom_xla.passes import collectives
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
  """Its kind, how many arrays it moves, and their bytes."""
  return (
    collective.kind,
    collective.num_operands,
    collective.operand_bytes,
    collective.result_bytes,
  )


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
  collective = _only(f"p = f32[128] parameter(0)\nROOT out = {body}")
  assert _counts(collective) == (kind, *counts)
  assert (collective.form, collective.done_id) == ("sync", None)


def test_a_start_with_97_operands_is_one_collective() -> None:
  sizes = range(1, 98)
  parameters = "\n".join(f"p{i} = f32[{i}] parameter({i - 1})" for i in sizes)
  types = ", ".join(
    f"/*index={i}*/f32[{i}]" if i % 5 == 0 else f"f32[{i}]" for i in sizes
  )
  operands = ", ".join(f"p{i}" for i in sizes)
  collective = _only(f"""
    {parameters}
    begin = ({types}) all-reduce-start({operands}), {_REDUCE}
    busy = f32[1] negate(p1)
    ROOT end = ({types}) all-reduce-done(begin)
  """)
  num_bytes = 4 * sum(sizes)
  assert _counts(collective) == (
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
  assert [(c.name, *_counts(c), c.form) for c in found] == [
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
  collective = _only(
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
  assert _counts(collective) == ("all-reduce", 1, 512, 512)


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
  assert [_counts(c) for c in found] == [
    ("recv", 0, 0, 512),
    ("send", 1, 512, 512),
  ]
  for collective in found:
    assert collective.form == "async"
    assert collective.pairs == ((0, 1), (1, 2), (4, 5))
    assert collective.groups == ((0, 1, 2), (4, 5))


def test_an_in_place_permute_moves_only_its_first_operand() -> None:
  collective = _only(f"""
    p = f32[8,128] parameter(0)
    q = f32[8,128] parameter(1)
    zero = s32[] constant(0)
    place = (s32[], s32[]) tuple(zero, zero)
    ROOT out = f32[8,128] collective-permute(p, q, place, place), {_PAIRS},
      slice_sizes={{{{8,128}}}}
  """)
  assert _counts(collective) == (
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
  assert _counts(permute) == (
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


@dataclasses.dataclass(frozen=True)
class _Form:
  """A way to write a collective, and what it comes to."""

  kind: str
  parameters: str  # Types of parameters p0, p1, ...
  start: str  # Type and operation, as in the text.
  done: str  # Type of the result.
  num_operands: int
  operand_bytes: int
  result_bytes: int
  computations: str = ""
  done_opcode: str = ""

  def body(self, between: str = "busy = f32[] negate(zero)") -> str:
    """The collective with an instruction between its start and its done."""
    opcode = re.search(r" ([a-z-]+)-start\(", self.start)
    assert opcode is not None
    parameters = [
      f"p{i} = {t} parameter({i})"
      for i, t in enumerate(self.parameters.split(";"))
    ]
    return "\n".join(
      [
        *parameters,
        "zero = f32[] constant(0)",
        f"begin = {self.start}",
        between,
        f"ROOT end = {self.done} {opcode[1]}-done(begin)",
      ]
    )


_FORMS = {
  "all-gather-start": _Form(
    "all-gather",
    "f32[128]",
    f"(f32[128], f32[1024]) all-gather-start(p0), {_GATHER}",
    "f32[1024]",
    1, 512, 4096,
  ),
  "all-gather-start of two": _Form(
    "all-gather",
    "f32[128];bf16[64]",
    "((f32[128], bf16[64]), (f32[1024], bf16[512]))"
    f" all-gather-start(p0, p1), {_GATHER}",
    "(f32[1024], bf16[512])",
    2, 512 + 128, 4096 + 1024,
  ),
  "all-reduce-start": _Form(
    "all-reduce",
    "f32[128]",
    f"f32[128] all-reduce-start(p0), {_REDUCE}",
    "f32[128]",
    1, 512, 512,
  ),
  "all-reduce-start of two": _Form(
    "all-reduce",
    "f32[128];f32[3,5]",
    f"(f32[128], f32[3,5]) all-reduce-start(p0, p1), {_REDUCE}",
    "(f32[128], f32[3,5])",
    2, 512 + 60, 512 + 60,
  ),
  "collective-permute-start": _Form(
    "collective-permute",
    "f32[128]",
    "(f32[128], f32[128], u32[], u32[])"
    f" collective-permute-start(p0), {_PAIRS}",
    "f32[128]",
    1, 512, 512,
  ),
  "collective-permute-start without contexts": _Form(
    "collective-permute",
    "f32[128]",
    f"(f32[128], f32[128]) collective-permute-start(p0), {_PAIRS}",
    "f32[128]",
    1, 512, 512,
  ),
  "collective-permute-start of four": _Form(
    "collective-permute",
    "f32[128]",
    "((f32[128], f32[128], f32[128], f32[128]),"
    " (f32[128], f32[128], f32[128], f32[128]))"
    f" collective-permute-start(p0, p0, p0, p0), {_PAIRS}",
    "(f32[128], f32[128], f32[128], f32[128])",
    4, 4 * 512, 4 * 512,
  ),
  "reduce-scatter-start": _Form(
    "reduce-scatter",
    "f32[1024]",
    f"((f32[1024]), f32[128]) reduce-scatter-start(p0), {_SCATTER}",
    "f32[128]",
    1, 4096, 512,
  ),
  "reduce-scatter-start of two": _Form(
    "reduce-scatter",
    "f32[1024];f32[8]",
    "((f32[1024], f32[8]), (f32[128], f32[1]))"
    f" reduce-scatter-start(p0, p1), {_SCATTER}",
    "(f32[128], f32[1])",
    2, 4096 + 32, 512 + 4,
  ),
  "all-to-all-start": _Form(
    "all-to-all",
    "bf16[8,128]",
    "((bf16[8,128]), bf16[8,128])"
    f" all-to-all-start(p0), {_NO_IDS}, dimensions={{0}}",
    "bf16[8,128]",
    1, 2048, 2048,
  ),
  "ragged-all-to-all-start": _Form(
    "ragged-all-to-all",
    "f32[16,128];f32[32,128];s32[8]",
    "((f32[16,128], f32[32,128], s32[8], s32[8], s32[8], s32[8]),"
    " f32[32,128])"
    f" ragged-all-to-all-start(p0, p1, p2, p2, p2, p2), {_NO_IDS}",
    "f32[32,128]",
    1, 8192, 16384,
  ),
  "collective-broadcast-start": _Form(
    "collective-broadcast",
    "f32[8,128]",
    "((f32[8,128]), f32[8,128])"
    f" collective-broadcast-start(p0), {_NO_IDS}",
    "f32[8,128]",
    1, 4096, 4096,
  ),
  "async-start of a reduce-scatter": _Form(
    "reduce-scatter",
    "f32[1024]",
    "((f32[1024]), f32[128]) async-start(p0), calls=wrapped",
    "f32[128]",
    1, 4096, 512,
    f"""
      wrapped {{
        q = f32[1024] parameter(0)
        ROOT operation = f32[128] reduce-scatter(q), {_SCATTER}
      }}
    """,
  ),
  "async-start of an all-to-all of eight": _Form(
    "all-to-all",
    "f32[16]",
    f"((f32[16]), ({', '.join(['f32[16]'] * 8)}))"
    " async-start(p0), calls=wrapped",
    f"({', '.join(['f32[16]'] * 8)})",
    8, 8 * 64, 8 * 64,
    f"""
      wrapped {{
        q = f32[16] parameter(0)
        ROOT operation = ({', '.join(['f32[16]'] * 8)})
          all-to-all({', '.join('q' * 8)}), {_NO_IDS}
      }}
    """,
  ),
  "async-start of an all-gather": _Form(
    "all-gather",
    "f32[128]",
    "((f32[128]), f32[1024]) async-start(p0), calls=wrapped",
    "f32[1024]",
    1, 512, 4096,
    f"""
      wrapped {{
        q = f32[128] parameter(0)
        ROOT operation = f32[1024] all-gather(q), {_GATHER}
      }}
    """,
  ),
}  # fmt: skip


@pytest.fixture(params=_FORMS.values(), ids=list(_FORMS))
def form(request: pytest.FixtureRequest) -> _Form:
  return request.param


def test_an_async_pair_is_one_collective_with_the_bytes_of_its_arrays(
  form: _Form,
) -> None:
  module = hlo_text.load(form.body(), computations=form.computations)
  (collective,) = collectives.find(module)
  assert _counts(collective) == (
    form.kind,
    form.num_operands,
    form.operand_bytes,
    form.result_bytes,
  )
  assert collective.name == "begin"
  assert collective.form == "async"
  assert collective.computation == "main"
  assert collective.executions == 1
  by_id = module.entry.by_id
  assert by_id[collective.start_id].name == "begin"
  assert collective.done_id is not None
  assert by_id[collective.done_id].name == "end"
  num_devices = 4 if form.kind == "collective-permute" else 8
  assert collective.groups == (tuple(range(num_devices)),)
  assert (collective.group_size, collective.num_groups) == (num_devices, 1)
  moved = min if form.kind == "ragged-all-to-all" else max
  assert collective.nccl_bytes == moved(form.operand_bytes, form.result_bytes)


@pytest.mark.parametrize(
  "between", ["", "q = f32[] bitcast(zero)", "q = (f32[]) tuple(zero)"]
)
def test_a_pair_with_only_no_ops_between_is_sync(
  form: _Form, between: str
) -> None:
  body = form.body(between)
  assert _only(body, computations=form.computations).form == "sync"


def test_is_sync_and_is_pipelined_are_read_from_the_start() -> None:
  def written(config: dict[str, bool]) -> collectives.Collective:
    text = json.dumps({"collective_backend_config": config})
    form = _FORMS["all-reduce-start"]
    start = f"{form.start}, backend_config={text}"
    return _only(dataclasses.replace(form, start=start).body())

  assert written({"is_sync": False}).form == "async"
  assert written({"is_sync": True}).form == "sync"
  assert not written({"is_sync": True}).is_pipelined
  assert written({"is_pipelined": True}).is_pipelined


def test_a_pair_with_an_update_between_ends_at_its_done() -> None:
  form = _FORMS["async-start of a reduce-scatter"]
  module = hlo_text.load(
    """
      p = f32[1024] parameter(0)
      begin = ((f32[1024]), f32[128]) async-start(p), calls=wrapped
      busy = f32[1024] negate(p)
      update = ((f32[1024]), f32[128]) async-update(begin)
      more = f32[1024] negate(busy)
      ROOT end = f32[128] async-done(update)
    """,
    computations=form.computations,
  )
  (collective,) = collectives.find(module)
  assert collective.done_id is not None
  assert module.entry.by_id[collective.done_id].name == "end"
