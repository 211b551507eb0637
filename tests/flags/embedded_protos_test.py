# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Descriptions of protos are found among the other bytes of a library."""

from __future__ import annotations

import pathlib

from google.protobuf import descriptor_pb2
from hypothesis import given
from hypothesis import strategies as st
import pytest

from lagom_xla.flags import debug_options


def _file(
  name: str, *, imported: str = ""
) -> descriptor_pb2.FileDescriptorProto:
  file = descriptor_pb2.FileDescriptorProto(name=name, syntax="proto3")
  message = file.message_type.add(name="M" + name[0])
  message.field.add(name="x", number=1, type=5, label=1)
  file.dependency.extend([imported] if imported else [])
  return file


@given(st.binary(max_size=40), st.binary(max_size=40))
def test_a_description_is_found_among_other_bytes(before: bytes, after: bytes):
  file = _file("a.proto")
  # A linker puts zeros between objects.
  data = before + file.SerializeToString() + b"\0" + after
  assert debug_options.find_proto(data, "a.proto") == file


def test_the_name_of_a_file_is_not_its_description(tmp_path: pathlib.Path):
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
def test_a_description_that_is_cut_off_is_not_found(keep: int):
  data = _file("a.proto").SerializeToString()[:keep]
  with pytest.raises(debug_options.NotEmbeddedError, match=r"a\.proto"):
    debug_options.find_proto(data, "a.proto")
