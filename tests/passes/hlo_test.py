# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""A module is the same from every source, or is refused.

Its loops, branches and calls are counted as they run.
"""

from __future__ import annotations

import gzip
import json
import lzma
import re
from typing import Any

import hypothesis
from hypothesis import strategies as st
import jax
import jax.numpy as jnp
from jaxlib import _hlo
import pytest

import hlo_text
from lagom_xla import errors
from lagom_xla.flags import options as xla_options
from lagom_xla.passes import collectives
from lagom_xla.passes import hlo
from lagom_xla.passes import overlap


def _cpu_compiled() -> jax.stages.Compiled:
  def step(weights: jax.Array, x: jax.Array) -> jax.Array:
    return jax.lax.scan(lambda h, w: (jnp.sin(h @ w), None), x, weights)[0]

  weights = jax.ShapeDtypeStruct((5, 8, 8), jnp.float32)
  x = jax.ShapeDtypeStruct((4, 8), jnp.float32)
  return jax.jit(step, donate_argnums=1).lower(weights, x).compile()


_COMPILED = _cpu_compiled()
_TEXT = _COMPILED.as_text() or ""
_PROTO = hlo.load(_COMPILED).proto.SerializeToString()
_HLO_PROTO = hlo.hlo_pb2.HloProto(
  hlo_module=hlo.load(_COMPILED).proto
).SerializeToString()


def _names(module: hlo.Module) -> dict[str, list[str]]:
  return {
    c.name: [i.name for i in c.instructions]
    for c in module.computations.values()
  }


def _error_of(source: Any) -> str:
  with pytest.raises(errors.HloError) as caught:
    hlo.load(source)
  return str(caught.value)


def _names_in_text(text: str) -> dict[str, list[str]]:
  """The names of instructions, in XLA's printed order."""
  found: dict[str, list[str]] = {}
  current: list[str] = []
  for line in text.splitlines():
    if opening := re.match(r"(?:ENTRY )?%?([\w.-]+) \(.*\{$", line):
      current = found.setdefault(opening[1], [])
    elif instruction := re.match(r"\s+(?:ROOT )?%?([\w.-]+) = ", line):
      current.append(instruction[1])
  return found


@pytest.mark.parametrize(
  "source",
  [
    pytest.param(_COMPILED, id="compiled"),
    pytest.param(_TEXT, id="text"),
    pytest.param(_TEXT.encode(), id="text bytes"),
    pytest.param(_PROTO, id="HloModuleProto"),
    pytest.param(_HLO_PROTO, id="HloProto"),
    pytest.param(lzma.compress(_TEXT.encode()), id="text.xz"),
    pytest.param(gzip.compress(_TEXT.encode()), id="text.gz"),
    pytest.param(lzma.compress(_PROTO), id="HloModuleProto.xz"),
    pytest.param(gzip.compress(_HLO_PROTO), id="HloProto.gz"),
  ],
)
def test_every_source_gives_the_same_module(source):
  module = hlo.load(source)
  assert module.name == "jit_step"
  assert module.is_scheduled
  assert _names(module) == _names_in_text(_TEXT)
  assert module.num_instructions == sum(map(len, _names(module).values()))


@pytest.mark.parametrize("content", [_TEXT.encode(), _PROTO])
def test_a_files_format_is_recognized_by_content_not_name(tmp_path, content):
  file = tmp_path / "step"
  file.write_bytes(lzma.compress(content))
  assert _names(hlo.load(file)) == _names_in_text(_TEXT)
  assert _names(hlo.load(str(file))) == _names_in_text(_TEXT)


def _printed(serialized: bytes) -> str:
  return _hlo.HloModule.from_serialized_hlo_module_proto(serialized).to_string()


def test_fields_outside_our_schema_survive_an_edit(train_step_module):
  # Our schema lacks most fields, such as layouts' tiles. XLA's own loader and
  # printer show whether the fields are still there.
  edited = train_step_module.copy()
  edited.proto.name = "edited"
  before, after = (
    _printed(module.proto.SerializeToString())
    for module in (train_step_module, edited)
  )
  assert "stack_frame_id" in before
  assert after == before.replace(train_step_module.name, "edited", 1)


def test_backend_config_is_read_from_each_place_where_xla_stores_it():
  proto = hlo.hlo_pb2.HloModuleProto.FromString(_PROTO)
  proto.payloads.extend([b'{"kept":"0"}', b'{"kept":"in the table"}'])
  entry = next(
    c for c in proto.computations if c.id == proto.entry_computation_id
  )
  inline, value, shared, none = entry.instructions[:4]
  for instruction in (inline, value, shared, none):
    instruction.ClearField("backend_config")
    instruction.ClearField("backend_config_payload")
  inline.backend_config = b'{"kept":"inline"}'
  value.backend_config_payload.value = b'{"kept":"as a value"}'
  shared.backend_config_payload.id = 1
  module = hlo.load(proto.SerializeToString())
  kept = [
    module.backend_config(module.entry.by_id[i.id]).get("kept")
    for i in (inline, value, shared, none)
  ]
  assert kept == ["inline", "as a value", "in the table", None]

  shared.backend_config_payload.id = 2
  assert "a table that the module lacks" in _error_of(proto.SerializeToString())


@pytest.mark.parametrize(
  "written", ["{mhlo.layout = 3 : i64}", "opaque", "[1, 2]", "{", ""]
)
def test_a_custom_calls_opaque_config_is_not_a_backend_config(written):
  module = hlo_text.load(f"""
    p = f32[4] parameter(0)
    ROOT c = f32[4] custom-call(p), custom_call_target="mine",
      backend_config={json.dumps(written)}
  """)
  assert module.backend_config(module.entry.root) == {}


@pytest.mark.parametrize(
  ("shape", "num_bytes"),
  [
    ("f32[]", 4),
    ("bf16[3,5]", 30),
    ("pred[7]", 7),
    ("s4[3]", 2),
    ("f8e4m3fn[10]", 10),
    ("c128[2]", 32),
    ("f32[0,5]", 0),
    ("(f32[2], (bf16[3], u8[1]))", 15),
    ("token[]", 0),
  ],
)
def test_the_bytes_of_a_shape_follow_its_types_and_dimensions(shape, num_bytes):
  module = hlo_text.load(f"ROOT p = {shape} parameter(0)")
  assert hlo.shape_bytes(module.entry.root.shape) == num_bytes


@pytest.mark.parametrize(
  ("source", "message"),
  [
    (b"import jax\n\nprint(jax)\n", "23 bytes is neither HLO text"),
    (
      "HloModule m\n\nENTRY e { ROOT p = f33[] parameter(0) }\n",
      "HLO text is not HLO text that this jaxlib can read: .*f33",
    ),
    (_TEXT[: len(_TEXT) // 2], "is not HLO text that this jaxlib can read"),
    (_TEXT[: _TEXT.index("ENTRY ")], "has no ENTRY computation; it may be"),
    (_TEXT.replace("jit_step", "jit_\xe9").encode("latin-1"), "not UTF-8"),
    (3, "from a int"),
  ],
)
def test_input_that_is_no_module_is_refused_with_the_reason(source, message):
  assert re.search(message, _error_of(source))


@hypothesis.given(st.integers(0, len(_TEXT) - 1))
def test_truncated_hlo_text_is_refused_or_a_complete_module(length):
  try:
    module = hlo.load(_TEXT[:length])
  except errors.HloError as error:
    assert "\n" not in str(error)
  else:  # Only the end, such as the last line break, was cut off.
    assert module.num_instructions == hlo.load(_TEXT).num_instructions


def test_empty_files_missing_files_and_directories_are_refused(tmp_path):
  empty = tmp_path / "empty.hlo"
  empty.touch()
  assert _error_of(empty) == f"{empty} is empty."
  missing = tmp_path / "missing.hlo"
  assert (
    _error_of(missing) == f"Cannot read {missing}: No such file or directory."
  )
  assert _error_of(tmp_path) == f"Cannot read {tmp_path}: Is a directory."


@pytest.mark.parametrize("whole", [_PROTO, _HLO_PROTO])
@hypothesis.given(data=st.data())
def test_a_truncated_proto_is_refused_or_a_usable_module(whole, data):
  length = data.draw(st.integers(0, len(whole) - 1))
  try:
    module = hlo.load(whole[:length])
  except errors.HloError as error:
    assert "truncated" in str(error) or "empty" in str(error)
  else:  # The cut fell between the fields that come after the computations.
    assert overlap.analyze(module).overlaps == ()


def test_a_module_that_calls_a_missing_computation_is_refused():
  module = hlo.load(_PROTO)
  (loop,) = (loop for c in module.computations.values() for loop in c.loops)
  loop.called_computation_ids[0] = 123456
  message = _error_of(module.proto.SerializeToString())
  assert "calls a computation that" in message


@pytest.mark.parametrize("order", [[1, 1], [0, 2], [0], [0, 1, 2], [-1, 0]])
def test_a_layout_that_does_not_fit_its_array_is_refused(order):
  proto = hlo.load(_PROTO).proto
  changed = next(
    i
    for c in proto.computations
    for i in c.instructions
    if len(i.shape.layout.minor_to_major) == 2
  )
  changed.shape.layout.minor_to_major[:] = order
  message = _error_of(proto.SerializeToString())
  assert f"{changed.name} has 2 dimensions and a layout of {order}" in message


def test_stablehlo_is_converted_to_the_equivalent_hlo():
  lowered = jax.jit(lambda x: x * 2).lower(1.0)
  text = lowered.as_text().encode()
  expected = hlo.load(lowered.as_text(dialect="hlo"))
  for source in (text, gzip.compress(text)):
    module = hlo.load(source)
    assert module.name == expected.name
    assert module.num_partitions == 1
    assert module.num_instructions == expected.num_instructions
  assert "is StableHLO that this jaxlib cannot read: " in _error_of(text[:-5])


_MODULE = "HloModule step\n\nENTRY main {\n  ROOT x = f32[2] parameter(0)\n}\n"


def _dumped(name: str) -> str:
  return f"*** Begin {name} ***\n{_MODULE}*** End {name} ***\n"


@pytest.mark.parametrize(
  "data",
  [
    _MODULE.encode("utf-8-sig"),
    _MODULE.encode("utf-16"),
    _MODULE.replace("\n", "\r\n").encode(),
    f"loading\n{_dumped('module_0001.jit_f.before_optimizations.txt')}".encode(),
    gzip.compress(_MODULE.encode("utf-8-sig")),
  ],
  ids=["utf8_mark", "utf16", "crlf", "dumped_to_stdout", "gzip"],
)
def test_text_is_read_in_any_encoding_or_from_a_dump_on_stdout(data):
  assert hlo.load(data).name == "step"


def test_several_modules_on_stdout_are_refused_with_a_choice_named():
  text = _dumped("m.thunk_sequence.txt") + _dumped("m.before_optimizations.txt")
  message = _error_of(text.encode())
  assert "has 2 modules" in message
  assert "such as m.before_optimizations.txt" in message


def test_text_in_which_a_collective_aliases_its_operand_is_read():
  started = f"f32[8] all-reduce-start(p), {hlo_text.ALL}, to_apply=add"
  body = f"""
    p = f32[8] parameter(0)
    start = {started}ALIASING, frontend_attributes={{a="b"}}
    ROOT done = f32[8] all-reduce-done(start)
  """
  aliasing = ", output_to_operand_aliasing={{1}: (0, {})}"
  module = hlo.load(hlo_text.text(body.replace("ALIASING", aliasing)))
  _, start, _ = module.entry.instructions
  assert start.opcode == "all-reduce-start" and start.use_global_device_ids
  assert start.frontend_attributes.map == {"a": "b"}


@pytest.mark.parametrize("compress", [gzip.compress, lzma.compress])
@hypothesis.given(data=st.data())
@hypothesis.settings(max_examples=30)
def test_a_truncated_or_corrupted_compressed_module_is_refused(compress, data):
  whole = compress(_PROTO)
  # gzip's header before byte 10 has a time stamp, which nobody reads.
  at = data.draw(st.integers(min_value=10, max_value=len(whole) - 1))
  changed = bytes([whole[at] ^ data.draw(st.integers(1, 255))])
  assert _error_of(whole[:at] + changed + whole[at + 1 :])
  assert _error_of(whole[:at])


def _executions(module: hlo.Module) -> dict[str, int]:
  return {
    module.computations[i].name: times for i, times in module.executions.items()
  }


def _loop(
  *,
  start: str = "0",
  bound: str = "12",
  step: str = "1",
  config: str = "",
  is_fused: bool = False,
) -> hlo.Module:
  """A counting loop in JAX's lowering, or fused by XLA."""
  add, less = "add(i, step)", "compare(i, bound), direction=LT"
  if is_fused:
    add, less = (
      f"fusion(i, {other}), kind=kLoop, calls={name}"
      for other, name in (("step", "counted"), ("bound", "compared"))
    )
  return hlo_text.load(
    f"""
      start = s32[] constant({start})
      x = f32[4] parameter(0)
      t = (s32[], f32[4]) tuple(start, x)
      ROOT loop = (s32[], f32[4]) while(t), condition=go_on, body=body{config}
    """,
    computations=f"""
      counted {{
        i = s32[] parameter(0)
        step = s32[] parameter(1)
        ROOT sum = s32[] add(i, step)
      }}

      compared {{
        i = s32[] parameter(0)
        bound = s32[] parameter(1)
        ROOT less = pred[] compare(i, bound), direction=LT
      }}

      body {{
        t = (s32[], f32[4]) parameter(0)
        i = s32[] get-tuple-element(t), index=0
        step = s32[] constant({step})
        next = s32[] {add}
        x = f32[4] get-tuple-element(t), index=1
        y = f32[4] sine(x)
        ROOT out = (s32[], f32[4]) tuple(next, y)
      }}

      go_on {{
        t = (s32[], f32[4]) parameter(0)
        i = s32[] get-tuple-element(t), index=0
        bound = s32[] constant({bound})
        ROOT less = pred[] {less}
      }}
    """,
  )


_WRITTEN = r', backend_config={"known_trip_count":{"n":"3"}}'


@pytest.mark.parametrize(
  ("loop", "body", "condition"),
  [
    ({}, 12, 13),
    ({"start": "5"}, 7, 8),
    ({"step": "5"}, 3, 4),
    ({"step": "5", "is_fused": True}, 3, 4),
    ({"start": "20"}, 0, 1),
    ({"start": "-2"}, 14, 15),
    # XLA's own trip count is used, and the condition never runs.
    ({"config": _WRITTEN}, 3, 0),
    # A loop that does not count up counts as one trip.
    ({"step": "0"}, 1, 2),
    ({"step": "-1"}, 1, 2),
  ],
)
def test_trips_of_a_counting_loop_are_found_without_xlas_analysis(
  loop, body, condition
):
  module = _loop(**loop)
  assert _executions(module) == {"main": 1, "body": body, "go_on": condition}
  is_unknown = loop.get("step") in ("0", "-1")
  assert module.loops_of_unknown_length == (("loop",) if is_unknown else ())


def test_a_data_dependent_loop_is_reported_and_counted_as_one_trip():
  def halve_below(x: jax.Array, limit: jax.Array) -> jax.Array:
    return jax.lax.while_loop(lambda v: v > limit, lambda v: v / 2, x)

  module = hlo.load(jax.jit(halve_below).lower(1.0, 1.0).compile())
  (loop,) = (loop for c in module.computations.values() for loop in c.loops)
  assert module.trip_count(loop) == 1
  assert module.loops_of_unknown_length == (loop.name,)


@pytest.mark.parametrize("compiled", [True, False])
def test_trips_of_nested_loops_are_multiplied(compiled):
  def step(x: jax.Array) -> jax.Array:
    def outer(_: int, y: jax.Array) -> jax.Array:
      inner = jnp.sin(y)
      return jax.lax.fori_loop(0, 7, lambda _, z: jnp.cos(z @ z), inner)

    return jax.lax.fori_loop(0, 11, outer, x)

  lowered = jax.jit(step).lower(jax.ShapeDtypeStruct((64, 64), jnp.float32))
  module = hlo.load(lowered.compile() if compiled else lowered.as_text("hlo"))
  runs_of_dot = [
    times
    for id_, times in module.executions.items()
    if "dot" in module.computations[id_].opcodes
  ]
  # In compiled modules XLA has counted the trips and runs no condition. The
  # product may be a call there, which runs as often.
  most = 11 * 7 if compiled else 11 * (7 + 1)
  assert max(module.executions.values()) == most
  assert module.loops_of_unknown_length == ()
  assert compiled or runs_of_dot == [11 * 7]


@pytest.mark.parametrize(
  "options",
  [
    {"xla_gpu_enable_while_loop_double_buffering": True},
    {"xla_gpu_enable_while_loop_unrolling": "WHILE_LOOP_UNROLLING_FULL_UNROLL"},
    {"xla_gpu_enable_pipelined_all_gather": True},
    {"xla_gpu_enable_triton_gemm": False},
  ],
  ids=lambda options: next(iter(options)),
)
def test_collective_bytes_are_the_same_after_xla_transforms_a_loop(
  fsdp_scan, fsdp_step, scheduled, options
):
  changed = scheduled(fsdp_step(), **xla_options.fit(options).options)
  assert _names(changed) != _names(fsdp_scan)
  assert _collective_bytes(changed) == _collective_bytes(fsdp_scan)


def _collective_bytes(module: hlo.Module) -> dict[str, int]:
  totals: dict[str, int] = {}
  for collective in collectives.find(module):
    num_bytes = collective.operand_bytes * collective.executions
    totals[collective.kind] = totals.get(collective.kind, 0) + num_bytes
  return totals
