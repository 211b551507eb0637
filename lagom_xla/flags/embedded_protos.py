# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Protocol buffers as a shared library describes them.

Generated C++ code keeps the description of its .proto file, a serialized
FileDescriptorProto, in the library's read-only data, for reflection. It starts
with field 1, the file's name, so the name finds it; its end is where bytes stop
being a field of a FileDescriptorProto.
"""

from __future__ import annotations

import mmap
import pathlib

from google.protobuf import descriptor_pb2
from google.protobuf import descriptor_pool
from google.protobuf import message as message_lib

# google/protobuf/descriptor.proto: the fields of a FileDescriptorProto that are
# numbers; the others are text or messages, so they begin with their length.
_NUMBERS = frozenset([10, 11, 14])
_LENGTHS = frozenset([1, 2, 3, 4, 5, 6, 7, 8, 9, 12])

_Bytes = bytes | mmap.mmap


class NotEmbeddedError(LookupError):
  """A library does not describe a .proto file."""


def load(library: pathlib.Path, name: str) -> descriptor_pool.DescriptorPool:
  """The messages and enums of a .proto file and of every file it imports.

  Args:
    library: a shared library.
    name: the .proto file, as an import statement has it.

  Raises:
    NotEmbeddedError: the library does not describe it.
    OSError: the library cannot be read.
  """
  pool = descriptor_pool.DescriptorPool()
  with (
    library.open("rb") as file,
    mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data,
  ):
    _add(pool, data, name, set())
  return pool


def _add(
  pool: descriptor_pool.DescriptorPool,
  data: _Bytes,
  name: str,
  added: set[str],
) -> None:
  """Adds a file to a pool, after the files that it imports."""
  if name in added:
    return
  added.add(name)
  file = find(data, name)
  for imported in file.dependency:
    _add(pool, data, imported, added)
  pool.AddSerializedFile(file.SerializeToString())


def find(data: _Bytes, name: str) -> descriptor_pb2.FileDescriptorProto:
  """The description of a .proto file among other bytes.

  Raises:
    NotEmbeddedError: it is not there.
  """
  start = bytes([1 << 3 | 2, len(name)]) + name.encode()
  at = data.find(start)
  while at >= 0:
    try:
      file = descriptor_pb2.FileDescriptorProto.FromString(
        data[at : _end(data, at)]
      )
    except message_lib.DecodeError:
      file = descriptor_pb2.FileDescriptorProto()
    # Names also stand alone, as the imports of other files.
    if file.message_type or file.enum_type:
      return file
    at = data.find(start, at + 1)
  raise NotEmbeddedError(f"it does not describe {name}")


def _end(data: _Bytes, at: int) -> int:
  """Where the FileDescriptorProto that starts at `at` ends."""
  last = 0
  try:
    while True:
      tag, after = _varint(data, at)
      number, wire_type = tag >> 3, tag & 7
      # Fields are in order, and there is one name.
      if number < last or number == last == 1:
        return at
      if wire_type == 2 and number in _LENGTHS:
        length, after = _varint(data, after)
        after += length
      elif wire_type == 0 and number in _NUMBERS:
        _, after = _varint(data, after)
      else:
        return at
      if after > len(data):
        return at
      last, at = number, after
  except IndexError:
    return at


def _varint(data: _Bytes, at: int) -> tuple[int, int]:
  """A base-128 number, and where it ends."""
  value = shift = 0
  while True:
    byte = data[at]
    at += 1
    value |= (byte & 0x7F) << shift
    shift += 7
    if byte < 0x80:
      return value, at
