# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""XLA's options are the installed jaxlib's, as its library describes them."""

from __future__ import annotations

from google.protobuf import descriptor_pb2
from hypothesis import given
from hypothesis import strategies as st
import pytest

from jaxlib_options import BUFFERS
from jaxlib_options import GATHER
from jaxlib_options import UNROLLING
from jaxlib_options import compile_with
from jaxlib_options import option
from lagom_xla import errors
from lagom_xla.flags import debug_options
from lagom_xla.flags import options as xla_options


def _scalars() -> list[debug_options.Option]:
  return [o for o in debug_options.options().values() if o.is_scalar]


def test_an_option_has_a_type_and_a_default():
  assert len(debug_options.options()) > 300
  gather = option(GATHER)
  assert (gather.type, gather.default) == ("int", 30 * 2**20 + 7)
  assert gather.int_range == (-(2**63), 2**63 - 1)
  assert option("xla_gpu_enable_triton_gemm").default is True


def test_an_enum_has_the_names_of_its_values():
  unrolling = option(UNROLLING)
  assert unrolling.default == "WHILE_LOOP_UNROLLING_AUTO_UNROLL"
  assert "WHILE_LOOP_UNROLLING_FULL_UNROLL" in unrolling.enum_values
  assert unrolling.default in unrolling.enum_values


def test_a_list_of_enums_is_one_text():
  buffers = option(BUFFERS)
  assert buffers.is_repeated
  assert isinstance(buffers.default, str)
  assert set(buffers.default.split(",")) <= set(buffers.enum_values)


def test_an_option_of_no_version_is_not_found():
  assert debug_options.find("xla_gpu_make_it_fast") is None


def test_compiling_takes_every_default():
  compile_with({o.name: o.default for o in _scalars()})


def test_a_jaxlib_that_hides_its_options_says_so_once(monkeypatch):
  monkeypatch.setattr(debug_options, "_FILE", "xla/hidden.proto")
  debug_options._pool.cache_clear()
  debug_options.options.cache_clear()
  try:
    with pytest.raises(errors.OptionsError, match="does not show which"):
      debug_options.find(GATHER)
    flags = xla_options.flags({GATHER: 3})
  finally:
    monkeypatch.undo()
    debug_options._pool.cache_clear()
  assert list(map(str, flags.flags)) == [f"--{GATHER}=3"]
  assert len(flags.messages) == 1 and "does not show" in flags.messages[0]


def _file(
  name: str, *, imported: str = ""
) -> descriptor_pb2.FileDescriptorProto:
  file = descriptor_pb2.FileDescriptorProto(name=name, syntax="proto3")
  message = file.message_type.add(name="M" + name[0])
  message.field.add(name="x", number=1, type=5, label=1)
  file.dependency.extend([imported] if imported else [])
  return file


@given(st.binary(max_size=40), st.binary(max_size=40))
def test_a_description_is_found_among_other_bytes(before, after):
  file = _file("a.proto")
  # A linker puts zeros between objects.
  data = before + file.SerializeToString() + b"\0" + after
  assert debug_options.find_proto(data, "a.proto") == file


def test_the_name_of_a_file_is_not_its_description(tmp_path):
  first, second = _file("a.proto", imported="b.proto"), _file("b.proto")
  library = tmp_path / "library.so"
  # The name stands in the import before it stands in the file itself.
  library.write_bytes(
    b"\x0a\x07b.proto\0"
    + first.SerializeToString()
    + b"\0"
    + second.SerializeToString()
    + b"\0"
  )
  pool = debug_options.load_protos(library, "a.proto")
  assert pool.FindMessageTypeByName("Mb").fields_by_name["x"].number == 1


@pytest.mark.parametrize("keep", [0, 10])
def test_a_description_that_is_cut_off_is_not_found(keep):
  data = _file("a.proto").SerializeToString()[:keep]
  with pytest.raises(debug_options.NotEmbeddedError, match=r"a\.proto"):
    debug_options.find_proto(data, "a.proto")
