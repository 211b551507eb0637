# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""XPlanes: a reader for the messages in jax.profiler's files.

Field numbers are those of tsl/profiler/protobuf/xplane.proto. They cannot
change without breaking all existing traces. `jax.profiler.ProfileData` is not
enough: it has neither a plane's event metadata (which holds the module) nor the
profiler's errors, and makes an object of every stat: 10 s and 1 GB for a file
of 50 MB. Here stats stay bytes, and equal stats are read once, because the
profiler writes a string's number in place of the string.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
import dataclasses
import functools
from typing import Any

from google.protobuf import descriptor_pb2
from google.protobuf import descriptor_pool
from google.protobuf import message_factory

Value = float | int | str | bytes

# Longest problem text to keep.
_MOST_BYTES = 400

_Field = descriptor_pb2.FieldDescriptorProto
_INT, _BYTES = _Field.TYPE_INT64, _Field.TYPE_BYTES
# Message -> its fields: name, number, type or message, is repeated.
_MESSAGES: Mapping[str, Sequence[tuple[str, int, Any, bool]]] = {
  "Stat": (
    ("metadata_id", 1, _INT, False),
    ("double", 2, _Field.TYPE_DOUBLE, False),
    ("uint64", 3, _Field.TYPE_UINT64, False),
    ("int64", 4, _INT, False),
    ("string", 5, _BYTES, False),
    ("bytes", 6, _BYTES, False),
    ("reference", 7, _INT, False),
  ),
  "Event": (
    ("metadata_id", 1, _INT, False),
    ("offset_ps", 2, _INT, False),
    ("duration_ps", 3, _INT, False),
    ("stats", 4, _BYTES, True),
  ),
  "Line": (
    ("name", 2, _BYTES, False),
    ("timestamp_ns", 3, _INT, False),
    ("events", 4, _BYTES, True),
  ),
  "Metadata": (
    ("id", 1, _INT, False),
    ("name", 2, _BYTES, False),
    ("stats", 5, _BYTES, True),
  ),
  "Entry": (("value", 2, "Metadata", False),),
  "Plane": (
    ("name", 2, _BYTES, False),
    ("lines", 3, _BYTES, True),
    ("event_metadata", 4, "Entry", True),
    ("stat_metadata", 5, "Entry", True),
    ("stats", 6, _BYTES, True),
  ),
  "Space": (
    ("planes", 1, _BYTES, True),
    ("errors", 2, _BYTES, True),
    ("warnings", 3, _BYTES, True),
  ),
  "Start": (("offset_ps", 2, _INT, False),),
  "Starts": (("events", 4, "Start", True),),
}


@functools.cache
def _messages() -> Mapping[str, Any]:
  file = descriptor_pb2.FileDescriptorProto(
    name="lagom_xla/profiling/xplane", package="lagom_xla", syntax="proto3"
  )
  for name, fields in _MESSAGES.items():
    message = file.message_type.add(name=name)
    if name == "Stat":
      message.oneof_decl.add(name="value")
    for field_name, number, kind, repeated in fields:
      field = message.field.add(name=field_name, number=number)
      field.label = _Field.LABEL_REPEATED if repeated else _Field.LABEL_OPTIONAL
      if isinstance(kind, str):
        field.type, field.type_name = (
          _Field.TYPE_MESSAGE,
          f".lagom_xla.{kind}",
        )
      else:
        field.type = kind
      if name == "Stat" and field_name != "metadata_id":
        field.oneof_index = 0
  pool = descriptor_pool.DescriptorPool()
  pool.Add(file)
  return {
    name: message_factory.GetMessageClass(
      pool.FindMessageTypeByName(f"lagom_xla.{name}")
    )
    for name in _MESSAGES
  }


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Plane:
  """A plane: the events of one device, or of a host's threads.

  Attributes:
    name: the plane's name, such as "/device:GPU:0".
    stats: stats of the plane itself.
    lines: serialized lines, for `line`.
    event_names: names of events, by metadata ID.
    event_stats: serialized stats of event metadata, by metadata ID.
    stat_names: names of stats, and strings that stats refer to, by metadata ID.
  """

  name: str
  stats: Mapping[str, Value]
  lines: Sequence[bytes]
  event_names: Mapping[int, str]
  event_stats: Mapping[int, Sequence[bytes]]
  stat_names: Mapping[int, str]


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Line:
  """A line: the events of one stream or thread.

  Attributes:
    name: the line's name.
    begin_ns: origin of its events' times.
    events: serialized events, for `events`.
  """

  name: str
  begin_ns: int
  events: Sequence[bytes]


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Space:
  """The profile of one process.

  Attributes:
    planes: planes of its devices, its host, and the profile itself.
    problems: problems that the profiler reported, such as dropped events.
  """

  planes: Sequence[Plane]
  problems: Sequence[str]


class Stats:
  """Reads the stats with given names from a plane's events."""

  def __init__(self, names: Mapping[int, str], wanted: Iterable[str]):
    self._names = names
    self._wanted = frozenset(wanted)
    # The first two bytes suffice to skip most other stats.
    self._unwanted = {
      bytes([1 << 3, number])
      for number, name in names.items()
      if 0 < number < 1 << 7 and name not in self._wanted
    }
    self._known: dict[bytes, tuple[str, Value]] = {}

  def read(self, stats: Iterable[bytes]) -> dict[str, Value]:
    """The wanted stats, by name."""
    found = {}
    for serialized in stats:
      if serialized[:2] in self._unwanted:
        continue
      named = self._known.get(serialized)
      if named is None:
        named = _stat(serialized, self._names)
        if named[0] not in self._wanted:
          continue
        self._known[serialized] = named
      found[named[0]] = named[1]
    return found


def space(serialized: bytes) -> Space:
  """Reads an XSpace; raises google.protobuf.message.DecodeError if invalid."""
  found = _messages()["Space"].FromString(serialized)
  return Space(
    planes=[_plane(plane) for plane in found.planes],
    problems=[_line(text) for text in (*found.errors, *found.warnings)],
  )


def line(serialized: bytes) -> Line:
  """A line of a plane."""
  found = _messages()["Line"].FromString(serialized)
  return Line(
    name=_text(found.name), begin_ns=found.timestamp_ns, events=found.events
  )


def starts_ps(serialized: bytes) -> Iterator[int]:
  """Start times of a line's events, relative to the line's origin."""
  for event_ in _messages()["Starts"].FromString(serialized).events:
    yield event_.offset_ps


def events(line_: Line) -> Iterator[Any]:
  """Events, with `metadata_id`, `offset_ps`, `duration_ps` and `stats`."""
  return map(_messages()["Event"].FromString, line_.events)


def _plane(serialized: bytes) -> Plane:
  found = _messages()["Plane"].FromString(serialized)
  events = [entry.value for entry in found.event_metadata]
  stat_names = {
    entry.value.id: _text(entry.value.name) for entry in found.stat_metadata
  }
  return Plane(
    name=_text(found.name),
    stats=dict(_stat(stat, stat_names) for stat in found.stats),
    lines=found.lines,
    event_names={event.id: _text(event.name) for event in events},
    event_stats={event.id: event.stats for event in events if event.stats},
    stat_names=stat_names,
  )


def _stat(serialized: bytes, names: Mapping[int, str]) -> tuple[str, Value]:
  stat = _messages()["Stat"].FromString(serialized)
  kind = stat.WhichOneof("value")
  name = names.get(stat.metadata_id, "")
  if kind is None:
    return name, 0
  value = getattr(stat, kind)
  if kind == "reference":
    return name, names.get(value, "")
  return name, _text(value) if kind == "string" else value


def _line(serialized: bytes) -> str:
  """A text as one short printable line."""
  line_ = " ".join(_text(serialized[:_MOST_BYTES]).split())
  return "".join(character for character in line_ if character.isprintable())


def _text(serialized: bytes) -> str:
  return serialized.decode("utf-8", errors="replace")
