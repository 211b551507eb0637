# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Reads HloModuleProtos from files, text, bytes and executables.

HLO text goes through jaxlib's own parser. Protos are decoded here, because
jaxlib's loader needs tens of gigabytes for modules with sparse instruction ids.
Only that loader runs XLA's verifier, so this module makes the checks that other
code relies on: a proto that decodes may still be truncated or changed.
"""

from __future__ import annotations

from collections.abc import Callable
import functools
import math
import os
import pathlib
import re
import resource
import tempfile
from typing import Any
import warnings

from google.protobuf import message as protobuf_message

from lagom_xla import errors
from lagom_xla.passes import hlo_pb2
from lagom_xla.validation import whole_files

# The last PrimitiveType in XLA's xla_data.proto, with room for a few more.
_LAST_TYPE = 40
# MLIR text contains the first, MLIR bytecode begins with the second.
_STABLEHLO_MARKS = (b" stablehlo.", b"ML\xefR")

# The module, the number of devices that it was partitioned for, and how many of
# these are replicas; None if the source does not say.
Read = tuple[hlo_pb2.HloModuleProto, int | None, int | None]


def read(source: Any) -> Read:
  """Reads a module; see `hlo.load`.

  Raises:
    HloError: the source is of an unknown kind, or damaged.
  """
  if hasattr(source, "runtime_executable"):
    return _from_compiled(source)
  if isinstance(source, pathlib.Path):
    return _from_path(source)
  if isinstance(source, str):
    if "\n" in source or source.startswith("HloModule"):
      return _from_text(source, "HLO text")
    return _from_path(pathlib.Path(source))
  if isinstance(source, bytes):
    return _from_bytes(source, f"{len(source)} bytes")
  raise errors.HloError(
    f"Cannot read an HLO module from a {type(source).__name__}: give a path,"
    " HLO text, a serialized HloModuleProto or a compiled jax function."
  )


def read_apart(path: pathlib.Path) -> Read:
  """Reads a user's file, whose text may make XLA abort.

  Another process parses the text first, because some of XLA's checks abort.

  Raises:
    HloError: XLA aborts, or as for `read`.
  """
  return _from_path(path, is_apart=True)


def _from_path(path: pathlib.Path, *, is_apart: bool = False) -> Read:
  try:
    data = whole_files.read_bytes(path)
  except OSError as error:
    raise errors.HloError(f"Cannot read {path}: {error.strerror}.") from error
  return _from_bytes(data, str(path), is_apart=is_apart)


def _from_bytes(data: bytes, name: str, *, is_apart: bool = False) -> Read:
  try:
    data = whole_files.unpacked(data)
  except whole_files.DamagedError as error:
    raise errors.HloError(f"{name} {error}.") from error
  if not data.strip():
    raise errors.HloError(f"{name} is empty.")
  data = _unwrapped(data, name)
  if b"HloModule " in data[:4096]:
    try:
      text = data.decode()
    except UnicodeDecodeError as error:
      raise errors.HloError(f"{name} is HLO text that is not UTF-8.") from error
    if is_apart:
      _check_survives(functools.partial(_from_text, text, name), name)
    return _from_text(text, name)
  if any(mark in data for mark in _STABLEHLO_MARKS):
    if is_apart:
      _check_survives(functools.partial(_from_stablehlo, data, name), name)
    return _from_stablehlo(data, name)
  for parse in (_module_of_hlo_proto, hlo_pb2.HloModuleProto.FromString):
    try:
      proto = parse(data)
    except protobuf_message.DecodeError:
      continue
    if proto.computations:
      _check_damage(proto, name)
      return proto, None, None
  raise errors.HloError(
    f"{name} is neither HLO text (it has no 'HloModule' header) nor a"
    " serialized HloProto or HloModuleProto; it may be truncated."
  )


# The lines around a module that XLA dumps to stdout (--xla_dump_to=-).
_DUMPED = re.compile(
  rb"^\*\*\* Begin (\S+) \*\*\*\r?\n(.*?)^\*\*\* End \1 \*\*\*",
  re.MULTILINE | re.DOTALL,
)


def _unwrapped(data: bytes, name: str) -> bytes:
  """Text without the additions of editors and of XLA's dumps."""
  data = whole_files.unmarked(data)
  dumped = {
    found[1].decode(errors="replace"): found[2]
    for found in _DUMPED.finditer(data)
    if b"HloModule " in found[2][:4096]
  }
  if len(dumped) > 1:
    names = list(dumped)
    such_as = next((n for n in names if "before_optimiz" in n), names[0])
    raise errors.HloError(
      f"{name} has {len(dumped)} modules that XLA dumped; keep the lines of"
      f" one, such as {such_as}."
    )
  return next(iter(dumped.values()), data)


def _from_stablehlo(data: bytes, name: str) -> Read:
  # A private module, as in _from_text.
  from jaxlib import _jax

  try:
    module = _jax.mlir.mlir_module_to_xla_computation(data)
  except Exception as error:
    raise errors.HloError(
      f"{name} is StableHLO that this jaxlib cannot read: {_in_a_line(error)}"
    ) from error
  counts = dict(re.findall(rb"mhlo\.num_(partitions|replicas) = (\d+)", data))
  replicas = int(counts.get(b"replicas", 1)) if counts else None
  devices = math.prod(map(int, counts.values())) if counts else None
  proto = hlo_pb2.HloModuleProto.FromString(
    module.as_serialized_hlo_module_proto()
  )
  return proto, devices, replicas


def _check_survives(parse: Callable[[], object], name: str) -> None:
  """Raises an HloError if parsing a file kills the process."""
  with tempfile.TemporaryFile() as said, warnings.catch_warnings():
    # JAX and Python warn that other threads may hold locks.
    warnings.simplefilter("ignore")
    child = os.fork()
    if not child:
      try:
        os.dup2(said.fileno(), 2)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        parse()
      finally:
        os._exit(0)
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
      said.seek(0)
      words = said.read().decode(errors="replace")
      failed = re.search(r"Check failed: .*(?:\nERROR: .*)?", words)
      reason = f": {' '.join(failed[0].split())[:300]}" if failed else ""
      raise errors.HloError(f"{name} is damaged: XLA aborts on it{reason}.")


def _in_a_line(error: Exception) -> str:
  return " ".join(str(error).split())[:500]


def _module_of_hlo_proto(data: bytes) -> hlo_pb2.HloModuleProto:
  return hlo_pb2.HloProto.FromString(data).hlo_module


_ALIASING_OF_START = re.compile(
  r"(-start\([^\n]*), output_to_operand_aliasing="
  r"\{(?:\{[^{}]*\}: \([^()]*\)(?:, )?)*\}"
)


def _from_text(text: str, name: str) -> Read:
  # The parser is in a private module of jaxlib, which has moved before.
  from jaxlib import _hlo

  # XLA writes it for collectives, too, but reads it for other kinds only.
  text = _ALIASING_OF_START.sub(r"\1", text)
  try:
    module = _hlo.hlo_module_from_text(text)
  except Exception as error:
    raise errors.HloError(
      f"{name} is not HLO text that this jaxlib can read: {_in_a_line(error)}"
    ) from error
  # Without an ENTRY, the parser uses the last computation as the entry.
  if not re.search(r"^\s*ENTRY\s", text, re.MULTILINE):
    raise errors.HloError(
      f"{name} has no ENTRY computation; it may be truncated."
    )
  header = text[text.index("HloModule ") :].split("\n", 1)[0]
  counts = dict(re.findall(r"\b(num_partitions|replica_count)=(\d+)", header))
  replicas = int(counts.get("replica_count", 1)) if counts else None
  proto = hlo_pb2.HloModuleProto.FromString(
    module.as_serialized_hlo_module_proto()
  )
  devices = math.prod(map(int, counts.values())) if counts else None
  return proto, devices, replicas


def _from_compiled(compiled: Any) -> Read:
  import jax

  (module,) = compiled.runtime_executable().hlo_modules()
  proto = hlo_pb2.HloModuleProto.FromString(
    module.as_serialized_hlo_module_proto()
  )
  shardings = jax.tree.leaves(
    (compiled.input_shardings, compiled.output_shardings)
  )
  num_devices = max((len(s.device_set) for s in shardings), default=1)
  return proto, num_devices, None


def _check_damage(proto: hlo_pb2.HloModuleProto, name: str) -> None:
  """Checks that a module's references resolve and its shapes are complete."""

  def check(is_there: bool, what: str) -> None:
    if not is_there:
      raise errors.HloError(f"{name}{what}; it may be truncated.")

  ids = {c.id for c in proto.computations}
  entry = proto.entry_computation_id
  check(entry in ids, f" has no entry computation (id {entry})")
  for computation in proto.computations:
    wanted = {computation.root_id}
    if scheduled := proto.schedule.sequences.get(computation.id):
      wanted.update(scheduled.instruction_ids)
    for instruction in computation.instructions:
      wanted.update(instruction.operand_ids)
    check(
      wanted <= {i.id for i in computation.instructions},
      f": computation {computation.name} refers to instructions that it lacks",
    )
    for instruction in computation.instructions:
      check(
        ids.issuperset(instruction.called_computation_ids),
        f": {instruction.name} calls a computation that the module lacks",
      )
      check(
        instruction.backend_config_payload.id < max(len(proto.payloads), 1),
        f": {instruction.name} has its backend_config in a table that the"
        " module lacks",
      )
      _check_shape(instruction.shape, f"{name}: {instruction.name}")


def _check_shape(shape: hlo_pb2.ShapeProto, where: str) -> None:
  """Checks that an element type exists and a layout orders all dimensions."""
  if not 0 <= shape.element_type <= _LAST_TYPE:
    raise errors.HloError(
      f"{where} has elements of type {shape.element_type}, which XLA does not"
      " know; the file is damaged."
    )
  for part in shape.tuple_shapes:
    _check_shape(part, where)
  order = shape.layout.minor_to_major
  if order and sorted(order) != list(range(len(shape.dimensions))):
    raise errors.HloError(
      f"{where} has {len(shape.dimensions)} dimensions and a layout of"
      f" {list(order)}; the file is damaged."
    )
