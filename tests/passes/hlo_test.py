# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""A module reads as the same, from whatever source."""

from __future__ import annotations

from collections.abc import Callable, Sequence
import gzip
import json
import lzma
import pathlib
import re
from typing import Any

import jax
import jax.numpy as jnp
from jaxlib import _hlo
import pytest

from hlo_sources import COMPILED
from hlo_sources import HLO_PROTO
from hlo_sources import PROTO
from hlo_sources import TEXT
from hlo_sources import error_of
from hlo_sources import names
import hlo_text
from lagom_xla.passes import hlo


def _names_in_text(text: str) -> dict[str, list[str]]:
  """The names of instructions in the order in which XLA prints them."""
  names: dict[str, list[str]] = {}
  current: list[str] = []
  for line in text.splitlines():
    if opening := re.match(r"(?:ENTRY )?%?([\w.-]+) \(.*\{$", line):
      current = names.setdefault(opening[1], [])
    elif instruction := re.match(r"\s+(?:ROOT )?%?([\w.-]+) = ", line):
      current.append(instruction[1])
  return names


@pytest.mark.parametrize(
  "source",
  [
    pytest.param(COMPILED, id="compiled"),
    pytest.param(TEXT, id="text"),
    pytest.param(TEXT.encode(), id="text bytes"),
    pytest.param(PROTO, id="HloModuleProto"),
    pytest.param(HLO_PROTO, id="HloProto"),
    pytest.param(lzma.compress(TEXT.encode()), id="text.xz"),
    pytest.param(gzip.compress(TEXT.encode()), id="text.gz"),
    pytest.param(lzma.compress(PROTO), id="HloModuleProto.xz"),
    pytest.param(gzip.compress(HLO_PROTO), id="HloProto.gz"),
  ],
)
def test_every_source_gives_the_same_module(source: Any) -> None:
  module = hlo.load(source)
  assert module.name == "jit_step"
  assert module.is_scheduled
  assert names(module) == _names_in_text(TEXT)
  assert module.num_instructions == sum(map(len, names(module).values()))


@pytest.mark.parametrize("as_path", [str, pathlib.Path])
@pytest.mark.parametrize("content", [TEXT.encode(), PROTO])
def test_a_file_is_known_by_its_content_not_its_name(
  tmp_path: pathlib.Path, as_path: Callable[[Any], Any], content: bytes
) -> None:
  file = tmp_path / "step"
  file.write_bytes(lzma.compress(content))
  assert names(hlo.load(as_path(file))) == _names_in_text(TEXT)


def test_instructions_of_a_gpu_module_are_in_the_order_of_its_text(
  h100s: Sequence[jax.Device],
) -> None:
  rows = jax.sharding.NamedSharding(
    jax.sharding.Mesh(h100s, ("x",)), jax.sharding.PartitionSpec("x")
  )
  x = jax.ShapeDtypeStruct((64, 64), jnp.bfloat16, sharding=rows)
  compiled = jax.jit(lambda x: jnp.sin(x @ x.T) @ x).lower(x).compile()
  module = hlo.load(compiled)
  assert module.num_partitions == 8
  assert module.is_scheduled
  text = compiled.as_text()
  assert text is not None
  assert names(module) == _names_in_text(text)


def test_devices_are_partitions_times_replicas() -> None:
  body = "ROOT p = f32[] parameter(0)"
  assert hlo_text.load(body, header="").num_partitions is None
  assert hlo_text.load(body, header="num_partitions=8").num_partitions == 8
  both = hlo_text.load(body, header="replica_count=2, num_partitions=8")
  assert both.num_partitions == 16


def _printed(serialized: bytes) -> str:
  return _hlo.HloModule.from_serialized_hlo_module_proto(serialized).to_string()


def test_a_module_read_and_written_again_is_the_same_to_xla() -> None:
  executable: Any = COMPILED.runtime_executable()
  (original,) = executable.hlo_modules()
  again = hlo.load(COMPILED).proto.SerializeToString()
  assert _printed(again) == _printed(original.as_serialized_hlo_module_proto())


def test_fields_that_are_not_ours_survive(
  train_step_module: hlo.Module,
) -> None:
  # Our schema lacks most fields, such as layouts' tiles and the metadata's
  # stack frames. XLA's own loader and printer show whether they are still
  # there.
  edited = hlo.hlo_pb2.HloModuleProto()
  edited.CopyFrom(train_step_module.proto)
  edited.name = "edited"
  printed = [
    _printed(proto.SerializeToString())
    for proto in (train_step_module.proto, edited)
  ]
  assert "stack_frame_id" in printed[0]
  assert printed[1] == printed[0].replace(train_step_module.name, "edited", 1)


def test_lines_of_60_kb_and_index_comments_are_read() -> None:
  num_arrays = 3100
  types = ", ".join(
    f"/*index={i}*/f32[{i + 1}]" if i % 5 == 0 and i else f"f32[{i + 1}]"
    for i in range(num_arrays)
  )
  values = "\n".join(
    f"  v{i} = f32[{i + 1}] parameter({i})" for i in range(num_arrays)
  )
  names = ", ".join(f"v{i}" for i in range(num_arrays))
  tuple_line = f"  ROOT t = ({types}) tuple({names})"
  assert len(tuple_line) > 60_000
  root = hlo_text.load(f"{values}\n{tuple_line}").entry.root
  assert hlo.shape_bytes(root.shape) == 4 * sum(range(1, num_arrays + 1))


def test_backend_config_is_read_wherever_it_is_kept() -> None:
  proto = hlo.hlo_pb2.HloModuleProto.FromString(PROTO)
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
  assert "a table that the module lacks" in error_of(proto.SerializeToString())


@pytest.mark.parametrize(
  "written", ["{mhlo.layout = 3 : i64}", "opaque", "[1, 2]", "{", ""]
)
def test_a_custom_calls_own_config_is_not_a_backend_config(
  written: str,
) -> None:
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
def test_bytes_of_a_shape(shape: str, num_bytes: int) -> None:
  module = hlo_text.load(f"ROOT p = {shape} parameter(0)")
  assert hlo.shape_bytes(module.entry.root.shape) == num_bytes
