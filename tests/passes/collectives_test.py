# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Every form of a collective gives the record that its shapes say.

Bytes are counted by hand: f32 takes four, bf16 two.
"""

from __future__ import annotations

from collections.abc import Sequence
import json
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
def test_a_collective_printed_plain_is_sync(operation, counts):
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
def test_collectives_are_told_apart_by_what_they_do(body, inside, expected):
  computations = f"f {{\n q = f32[128] parameter(0)\n{inside} }}"
  module = hlo_text.load(body, computations=computations if inside else "")
  found = collectives.find(module)
  assert [(c.name, c.form, *_counts(c)) for c in found] == expected
  if len(found) > 1 and inside:
    assert len({(c.start_id, c.done_id) for c in found}) == 1


def test_send_and_recv_have_the_pairs_of_their_attribute():
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


def test_num_devices_is_as_declared_else_as_the_groups_name():
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
  fsdp_scan, fsdp_unrolled, sizes
):
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


def test_a_ragged_exchange_moves_the_smaller_of_its_two_buffers(
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


# Arrays given and taken; how many count, and their bytes; attributes.
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
  # Of rows, where they go, and offsets and sizes.
  "ragged-all-to-all": (
    "f32[16,128] f32[32,128]" + " s32[8]" * 4, "f32[32,128]", (1, 8192, 16384),
    _NO_IDS,
  ),
  "collective-broadcast": (
    "f32[8,128]", "f32[8,128]", (1, 4096, 4096), _NO_IDS,
  ),
}  # fmt: skip


@pytest.mark.parametrize("form", _FORMS)
def test_an_async_pair_is_one_collective_with_the_bytes_of_its_arrays(form):
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
  for between in ("", "q = f32[] bitcast(zero)", "q = (f32[]) tuple(zero)"):
    (alone,) = collectives.find(_pair(form, between=between))
    assert alone.form == "sync"


def test_is_sync_and_is_pipelined_are_read_from_the_start():
  def written(config: dict[str, bool]) -> collectives.Collective:
    text = json.dumps({"collective_backend_config": config})
    module = _pair("all-reduce", f", backend_config={text}")
    return collectives.find(module)[0]

  assert written({"is_sync": False}).form == "async"
  assert written({"is_sync": True}).form == "sync"
  assert not written({"is_sync": True}).is_pipelined
  assert written({"is_pipelined": True}).is_pipelined


def test_a_pair_with_an_update_between_ends_at_its_done():
  body = "update = ((f32[1024]), f32[128]) async-update(begin)"
  module = _pair("reduce-scatter wrapped", between=body, awaited="update")
  (collective,) = collectives.find(module)
  assert collective.done_id is not None
  assert module.entry.by_id[collective.done_id].name == "end"
