# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""HLO modules that a trace carries, read from its XSpace.

The profiler keeps the module of each program as metadata of an event, and
`jax.profiler.ProfileData` shows no metadata. protobuf's own reader of unknown
fields gets there with the few field numbers below (tsl/profiler/protobuf,
xplane.proto), which cannot change without breaking every trace there is.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
import re

from google.protobuf import empty_pb2
from google.protobuf import unknown_fields

_PLANE = b"/host:metadata"
_XSPACE_PLANES = 1
_PLANE_NAME = 2
_PLANE_EVENT_METADATA = 4
_MAP_VALUE = 2
_METADATA_NAME = 2
_METADATA_STATS = 5
_STAT_BYTES = 6
_PROGRAM = re.compile(rb"\((\d+)\)$")


def by_program(serialized: bytes) -> Mapping[int, bytes]:
  """HloProtos by program id.

  Args:
    serialized: an XSpace.
  """
  return {
    int(number[1]): proto
    for plane in _fields(serialized, _XSPACE_PLANES)
    if _PLANE in _fields(plane, _PLANE_NAME)
    for entry in _fields(plane, _PLANE_EVENT_METADATA)
    for metadata in _fields(entry, _MAP_VALUE)
    for name in _fields(metadata, _METADATA_NAME)
    if (number := _PROGRAM.search(name))
    for stat in _fields(metadata, _METADATA_STATS)
    for proto in _fields(stat, _STAT_BYTES)
  }


def _fields(serialized: bytes, number: int) -> list[bytes]:
  return [*_with_number(serialized, number)]


def _with_number(serialized: bytes, number: int) -> Iterator[bytes]:
  message = empty_pb2.Empty.FromString(serialized)
  for field in unknown_fields.UnknownFieldSet(message):
    if field.field_number == number and isinstance(field.data, bytes):
      yield field.data
