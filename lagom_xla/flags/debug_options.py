# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""The options of the installed XLA: names, types, enum values and defaults.

XLA's options are the fields of a protocol buffer, DebugOptions. jaxlib's shared
library has its descriptor: names, types, enum values. Defaults come from the
CompileOptions that jaxlib makes. There is no list of options here, as it would
be that of another version.

For reflection, generated C++ code keeps the serialized FileDescriptorProto of
its .proto file in the library's read-only data. It starts with field 1, the
file's name, and ends with the syntax or edition.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
import contextlib
import dataclasses
import functools
import importlib.metadata
import importlib.util
import mmap
import pathlib
import re
from typing import Any, Literal

from google.protobuf import descriptor as descriptor_lib
from google.protobuf import descriptor_pb2
from google.protobuf import descriptor_pool
from google.protobuf import message as message_lib
from google.protobuf import message_factory

from lagom_xla import errors
from lagom_xla.flags import notes
from lagom_xla.flags import probe

# The last fields of a FileDescriptorProto: its syntax, and the edition if any.
_END = re.compile(rb"b\x06proto3|b\x08editionsp[\x80-\xff]*[\0-\x7f]")

_Bytes = bytes | mmap.mmap


class NotEmbeddedError(LookupError):
  """A library does not describe a .proto file."""


def load_protos(
  library: pathlib.Path, name: str
) -> descriptor_pool.DescriptorPool:
  """The messages and enums of a .proto file and of its imports."""
  pool = descriptor_pool.DescriptorPool()
  added: set[str] = set()

  def add(data: _Bytes, name: str) -> None:
    if name not in added:
      added.add(name)
      file = find_proto(data, name)
      for imported in file.dependency:
        add(data, imported)
      pool.AddSerializedFile(file.SerializeToString())

  with (
    library.open("rb") as opened,
    mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ) as data,
  ):
    add(data, name)
  return pool


def find_proto(data: _Bytes, name: str) -> descriptor_pb2.FileDescriptorProto:
  """The descriptor of a .proto file among other bytes.

  Raises:
    NotEmbeddedError: there is none.
  """
  start = bytes([1 << 3 | 2, len(name)]) + name.encode()
  at = data.find(start)
  while at >= 0 and (end := _END.search(data, at)) is not None:
    with contextlib.suppress(message_lib.DecodeError):
      file = descriptor_pb2.FileDescriptorProto.FromString(data[at : end.end()])
      # The name also appears alone, in imports of other files.
      if file.message_type or file.enum_type:
        return file
    at = data.find(start, at + 1)
  raise NotEmbeddedError(f"it does not describe {name}")


Type = Literal["bool", "int", "float", "string", "enum", "message"]
Value = bool | int | float | str
# The value of an option that XLA decides on (notes.DECIDED) while it is unset.
# Before JAX 0.12 its default cannot be told from "false", which acts like it.
UNSET = "unset"

_FILE = "xla/pjrt/proto/compile_options.proto"
_COMPILE_OPTIONS = "xla.CompileOptionsProto"

_Field = descriptor_lib.FieldDescriptor
_INT_RANGES = {
  _Field.CPPTYPE_INT32: (-(2**31), 2**31 - 1),
  _Field.CPPTYPE_INT64: (-(2**63), 2**63 - 1),
  _Field.CPPTYPE_UINT32: (0, 2**32 - 1),
  _Field.CPPTYPE_UINT64: (0, 2**64 - 1),
}
_TYPES: Mapping[int, Type] = {
  _Field.CPPTYPE_BOOL: "bool",
  _Field.CPPTYPE_FLOAT: "float",
  _Field.CPPTYPE_DOUBLE: "float",
  _Field.CPPTYPE_STRING: "string",
  _Field.CPPTYPE_ENUM: "enum",
  _Field.CPPTYPE_MESSAGE: "message",
}


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Option:
  """One XLA option.

  Attributes:
    name: as compiler_options and XLA_FLAGS have it.
    type: of one value; "message" is a structure or a map.
    is_repeated: whether it holds several values, written as "A,B".
    default: as compiler_options takes it; for a message, its text; UNSET if XLA
      decides.
    enum_values: names of an enum's values, in the order of the enum.
    int_range: least and greatest value of an int.
  """

  name: str
  type: Type
  is_repeated: bool
  default: Value
  enum_values: tuple[str, ...] = ()
  int_range: tuple[int, int] | None = None

  @property
  def is_scalar(self) -> bool:
    """Whether it holds one value of a plain type."""
    return not self.is_repeated and self.type != "message"


def find(name: str) -> Option | None:
  """The option of this name; None if the installed jaxlib lacks it."""
  return options().get(name)


@functools.cache
def options() -> Mapping[str, Option]:
  """Every option of the installed jaxlib, by name.

  Raises:
    OptionsError: they cannot be read.
  """
  try:
    defaults = under("")
  except errors.ProbeError as error:
    raise _hidden(str(error)) from error
  return {f.name: _option(f, defaults[f.name]) for f in _fields()}


@functools.cache
def under(xla_flags: str) -> Mapping[str, Value]:
  """The value of each option in a process with an XLA_FLAGS, none fatal.

  Raises:
    OptionsError, ProbeError: jaxlib cannot be asked.
  """
  (answer,) = probe.ask([xla_flags])
  return of_debug(answer.compile_options)


def without_defaults(values: Mapping[str, Value]) -> dict[str, Value]:
  """The values that differ from the defaults of the installed jaxlib."""
  known = options()
  return {
    name: value
    for name, value in values.items()
    if name in known and value != known[name].default
  }


def of_debug(serialized: bytes) -> Mapping[str, Value]:
  """The value of each option in a serialized CompileOptionsProto."""
  debug_options = _message(serialized).executable_build_options.debug_options
  return {f.name: _value(debug_options, f) for f in _fields()}


# Fields that say which program to compile, for which devices, with which
# profile.
_OF_PROGRAM = frozenset(
  """
  alias_passthrough_params allow_in_place_mlir_modification
  compile_portable_executable device_memory_size device_ordinal fdo_profile
  num_partitions num_replicas parameter_is_tupled_arguments process_count
  process_index run_backend_only serialized_multi_slice_config slice_size
  use_auto_spmd_partitioning use_spmd_partitioning
  """.split()
)


def of_build(serialized: bytes) -> Mapping[str, Value]:
  """Fields of a serialized CompileOptionsProto besides XLA's options.

  Only JAX's settings reach them, such as the optimization level.
  """
  message = _message(serialized)
  return {
    field.name: _value(part, field)
    for part in (message, message.executable_build_options)
    for field in part.DESCRIPTOR.fields
    if field.cpp_type != _Field.CPPTYPE_MESSAGE
    and not field.is_repeated
    and field.name not in _OF_PROGRAM
  }


def _message(serialized: bytes) -> Any:
  cls = message_factory.GetMessageClass(
    _pool().FindMessageTypeByName(_COMPILE_OPTIONS)
  )
  return cls.FromString(serialized)


def jaxlib_version() -> str:
  """The version of the installed jaxlib."""
  return importlib.metadata.version("jaxlib")


def _hidden(reason: str) -> errors.OptionsError:
  return errors.OptionsError(
    f"Cannot read the XLA options of jaxlib {jaxlib_version()}: {reason}."
    " Check options by hand, or use another jaxlib."
  )


@functools.cache
def _pool() -> descriptor_pool.DescriptorPool:
  """The protocol buffers that jaxlib's library, its largest file, describes."""
  spec = importlib.util.find_spec("jaxlib")
  folders = (spec.submodule_search_locations if spec else None) or ()
  files = [
    path
    for folder in folders
    for path in pathlib.Path(folder).iterdir()
    if path.suffix in (".so", ".dylib", ".dll", ".pyd")
  ]
  if not files:
    raise _hidden("it has no library that describes them")
  library = max(files, key=lambda path: path.stat().st_size)
  try:
    return load_protos(library, _FILE)
  except (NotEmbeddedError, OSError, TypeError) as error:
    raise _hidden(f"{library.name}: {error}") from error


def _fields() -> Sequence[descriptor_lib.FieldDescriptor]:
  return _pool().FindMessageTypeByName("xla.DebugOptions").fields


def _option(field: descriptor_lib.FieldDescriptor, default: Value) -> Option:
  enum = field.enum_type
  return Option(
    name=field.name,
    type="int" if field.cpp_type in _INT_RANGES else _TYPES[field.cpp_type],
    is_repeated=field.is_repeated and not _is_map(field),
    default=default,
    enum_values=tuple(v.name for v in enum.values) if enum else (),
    int_range=_INT_RANGES.get(field.cpp_type),
  )


def _value(
  message: message_lib.Message, field: descriptor_lib.FieldDescriptor
) -> Value:
  """The value of a field, as compiler_options would take it."""
  if field.name in notes.DECIDED and not message.HasField(field.name):
    return UNSET
  value = getattr(message, field.name)
  if _is_map(field):
    return ",".join(f"{k}={v}" for k, v in sorted(value.items()))
  if field.is_repeated:
    return ",".join(str(_item(field, item)) for item in value)
  return _item(field, value)


def _item(field: descriptor_lib.FieldDescriptor, item: Any) -> Value:
  if field.enum_type:
    known = field.enum_type.values_by_number.get(item)
    return known.name if known else str(item)
  if field.cpp_type == _Field.CPPTYPE_MESSAGE:
    return " ".join(str(item).split())
  return item


def _is_map(field: descriptor_lib.FieldDescriptor) -> bool:
  return bool(field.message_type and field.message_type.GetOptions().map_entry)
