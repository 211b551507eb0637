# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""XLA's options, as described by jaxlib and in any clear spelling."""

from __future__ import annotations

from collections.abc import Mapping
import functools
import struct
from typing import Any

from google.protobuf import descriptor_pb2
from hypothesis import given
from hypothesis import strategies as st
import jax
import pytest

from jaxlib_options import BUFFERS
from jaxlib_options import GATHER
from jaxlib_options import IS_NEW
from jaxlib_options import NEW
from jaxlib_options import OLD
from jaxlib_options import UNROLLING
from jaxlib_options import option
from lagom_xla import errors
from lagom_xla.flags import debug_options
from lagom_xla.flags import notes
from lagom_xla.flags import options as xla_options
from lagom_xla.flags import probe


def _compile_with(options: Mapping[str, Any]) -> jax.stages.Compiled:
  """Compiles for this machine's CPU with XLA options."""
  return _lowered().compile(compiler_options=dict(options))


@functools.cache
def _lowered() -> jax.stages.Lowered:
  return jax.jit(lambda x: x + 1).lower(1.0)


def test_an_option_has_a_type_and_a_default():
  assert len(debug_options.options()) > 300
  gather = option(GATHER)
  assert (gather.type, gather.default) == ("int", 30 * 2**20 + 7)
  assert gather.int_range == (-(2**63), 2**63 - 1)
  assert option("xla_gpu_enable_triton_gemm").default is True


def test_enum_options_and_lists_of_enums_have_value_names():
  unrolling, buffers = option(UNROLLING), option(BUFFERS)
  assert "WHILE_LOOP_UNROLLING_FULL_UNROLL" in unrolling.enum_values
  assert unrolling.default == "WHILE_LOOP_UNROLLING_AUTO_UNROLL"
  assert buffers.is_repeated and isinstance(buffers.default, str)
  assert set(buffers.default.split(",")) <= set(buffers.enum_values)


def test_xla_compiles_with_every_default_given_explicitly():
  options = debug_options.options().values()
  scalars = {o.name: o.default for o in options if o.is_scalar}
  unset = [n for n, v in scalars.items() if v == debug_options.UNSET]
  assert set(unset) <= set(notes.DECIDED)
  _compile_with({n: v for n, v in scalars.items() if n not in unset})


def test_unreadable_options_of_jaxlib_are_reported_once(monkeypatch):
  monkeypatch.setattr(debug_options, "_FILE", "xla/hidden.proto")
  debug_options._pool.cache_clear()
  debug_options.options.cache_clear()
  try:
    with pytest.raises(
      errors.OptionsError, match="Cannot read the XLA options"
    ):
      debug_options.find(GATHER)
    flags = xla_options.flags({GATHER: 3})
  finally:
    monkeypatch.undo()
    debug_options._pool.cache_clear()
  assert list(map(str, flags.flags)) == [f"--{GATHER}=3"]
  assert (
    len(flags.messages) == 1
    and "Cannot read the XLA options" in flags.messages[0]
  )


def _file(
  name: str, *, imported: str = ""
) -> descriptor_pb2.FileDescriptorProto:
  file = descriptor_pb2.FileDescriptorProto(name=name, syntax="proto3")
  message = file.message_type.add(name="M" + name[0])
  message.field.add(name="x", number=1, type=5, label=1)
  file.dependency.extend([imported] if imported else [])
  return file


@given(st.binary(max_size=40), st.binary(max_size=40))
def test_an_embedded_descriptor_is_found_among_other_bytes(before, after):
  file = _file("a.proto")
  # A linker puts zeros between objects.
  data = before + file.SerializeToString() + b"\0" + after
  assert debug_options.find_proto(data, "a.proto") == file


def test_a_file_name_in_an_import_is_not_taken_for_its_descriptor(tmp_path):
  first, second = _file("a.proto", imported="b.proto"), _file("b.proto")
  library = tmp_path / "library.so"
  # The name stands in the import before it stands in the file itself.
  parts = (first.SerializeToString(), second.SerializeToString(), b"")
  library.write_bytes(b"\0".join((b"\x0a\x07b.proto", *parts)))
  pool = debug_options.load_protos(library, "a.proto")
  assert pool.FindMessageTypeByName("Mb").fields_by_name["x"].number == 1


@pytest.mark.parametrize("keep", [0, 10])
def test_a_truncated_descriptor_is_not_found(keep):
  data = _file("a.proto").SerializeToString()[:keep]
  with pytest.raises(debug_options.NotEmbeddedError, match=r"a\.proto"):
    debug_options.find_proto(data, "a.proto")


def test_an_option_is_translated_to_its_name_in_this_version():
  if IS_NEW:
    expected = (NEW, "COLLECTIVE_PIPELINING_MODE_ON")
    assert xla_options.translate(OLD, True) == expected
  else:
    expected = (OLD, True)
  for name, value in ((NEW, "on"), (OLD, "true"), expected):
    assert xla_options.translate(name, value) == expected
  other, value = (OLD, "true") if IS_NEW else (NEW, "on")
  with pytest.raises(
    jax.errors.JaxRuntimeError, match="No such compile option"
  ):
    _compile_with({other: value})
  fitted = xla_options.fit({other: value})
  assert fitted.options == dict([expected])
  _compile_with(fitted.options)
  (message,) = fitted.messages
  assert other in message and next(iter(fitted.options)) in message


def test_options_that_this_version_lacks_are_left_out_with_a_message():
  fitted = xla_options.fit(
    {GATHER: "1", "xla_gpu_graph_level": 0, "xla_gpu_autotune_level": "x"}
  )
  assert fitted.options == {GATHER: 1}
  first, second = fitted.messages
  assert first.startswith("xla_gpu_graph_level is not an option of jaxlib ")
  assert second.startswith('xla_gpu_autotune_level cannot be "x"')
  assert all(
    message.endswith("It was left out.") for message in (first, second)
  )


def test_a_misspelled_option_is_recognized():
  message = xla_options.translate("xla_gpu_enable_triton_gem", True)
  assert isinstance(message, str)
  assert message.endswith("Did you mean xla_gpu_enable_triton_gemm?")


@pytest.mark.parametrize(
  ("name", "value"),
  [
    ("xla_gpu_enable_triton_gemm", False),
    (UNROLLING, "full_unroll"),
    ("xla_gpu_all_gather_mode", "COLLECTIVES_PEER_MEMORY"),
    ("xla_gpu_detect_nan", "DETECTION_MODE_FAIL"),
    ("xla_gpu_auto_spmd_partitioning_memory_budget_ratio", 1.3),
    ("xla_dump_to", "a b'c\"d\\e"),
    ("xla_disable_hlo_passes", "a,b"),
    (NEW, "on"),
    (OLD, True),
  ],
)
def test_a_flag_sets_the_same_value_as_the_compiler_option(name, value):
  ((fitted, expected),) = xla_options.fit({name: value}).options.items()
  found = debug_options.under(xla_options.xla_flags({name: value}))[fitted]
  if isinstance(expected, float):
    (expected,) = struct.unpack("f", struct.pack("f", expected))
  assert found == expected != option(fitted).default


def test_options_that_are_fatal_as_flags_are_left_out():
  flags = xla_options.flags({GATHER: 5, "xla_enable_dumping": False, "no": 1})
  assert list(map(str, flags.flags)) == [f"--{GATHER}=5"]
  assert any("xla_enable_dumping was left out" in m for m in flags.messages)
  (answer,) = probe.ask(["--xla_enable_dumping=false"])
  assert answer.unknown


@pytest.mark.parametrize(
  ("name", "value", "converted"),
  [
    ("xla_gpu_enable_triton_gemm", "true", True),
    ("xla_gpu_enable_triton_gemm", "OFF", False),
    ("xla_gpu_enable_triton_gemm", 1, True),
    (GATHER, "123", 123),
    (GATHER, 1e9, 10**9),
    (UNROLLING, "full_unroll", "WHILE_LOOP_UNROLLING_FULL_UNROLL"),
    (UNROLLING, "No_Unroll", "WHILE_LOOP_UNROLLING_NO_UNROLL"),
    (BUFFERS, "", ""),
    (BUFFERS, "fusion,CUBLAS", "FUSION,CUBLAS"),
    ("xla_disable_hlo_passes", "a,b", "a,b"),
    ("xla_dump_to", "some where", "some where"),
    ("xla_gpu_auto_spmd_partitioning_memory_budget_ratio", 2, 2.0),
  ],
)
def test_an_unambiguous_value_is_converted_and_compiles(name, value, converted):
  found = xla_options.convert(option(name), value)
  assert (found, type(found)) == (converted, type(converted))
  if name != "xla_dump_to":  # That would write dumps.
    _compile_with({name: found})


@pytest.mark.parametrize(
  ("name", "value", "rule"),
  [
    ("xla_gpu_enable_triton_gemm", "maybe", "true or false"),
    ("xla_gpu_autotune_level", True, "a whole number from -2147483648"),
    ("xla_gpu_autotune_level", 2**31, "to 2147483647"),
    ("xla_gpu_autotune_level", 2.5, "a whole number"),
    (UNROLLING, "twice", "one of WHILE_LOOP_UNROLLING_NO_UNROLL"),
    (UNROLLING, 99, "one of"),
    (BUFFERS, "FUSION,NOTHING", "a list, A,B, of: one of"),
    (BUFFERS, "+FUSION,CUBLAS", "a list"),
    ("xla_dump_to", 3, "text"),
    ("xla_gpu_auto_spmd_partitioning_memory_budget_ratio", "x", "a number"),
  ],
)
def test_an_invalid_value_is_refused_with_the_rule(name, value, rule):
  with pytest.raises(xla_options.ValueRuleError) as error:
    xla_options.convert(option(name), value)
  assert f"{name} cannot be " in str(error.value)
  assert rule in str(error.value)


@given(st.data())
def test_a_converted_value_converts_to_itself(data):
  option = data.draw(st.sampled_from(list(debug_options.options().values())))
  strategies: Mapping[str, st.SearchStrategy[Any]] = {
    "bool": st.booleans(),
    "int": st.integers(*(option.int_range or (0, 0))),
    "float": st.floats(allow_nan=False, width=32),
    "enum": st.sampled_from(option.enum_values or ("",)),
    "string": st.text("ab/", max_size=3),
    "message": st.just("a=b"),
  }
  once = xla_options.convert(option, data.draw(strategies[option.type]))
  assert xla_options.convert(option, once) == once


def test_every_default_converts_to_itself_unless_xla_decides():
  decided = debug_options.UNSET
  known = debug_options.options().values()
  written = [one for one in known if one.default != decided]
  assert written
  for one in written:
    assert xla_options.convert(one, one.default) == one.default
