# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""XSpaces of jax.profiler, one per process, read into a trace.

    traced = xspace.read(pathlib.Path("traces"))

`jax.profiler.ProfileData` parses them: it comes with jaxlib and follows its
format. Only streams count; lines such as "XLA Ops" or "Steps" are derived from
them by other tools. An event's name is its kernel's, not its instruction's.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
import dataclasses
import gzip
import lzma
import pathlib
import re
from typing import Any

from lagom_xla import errors
from lagom_xla.profiling import hlo_protos
from lagom_xla.profiling import trace as trace_lib
from lagom_xla.validation import source as source_lib

_PATTERNS = ("*.xplane.pb", "*.xplane.pb.gz", "*.xplane.pb.xz")
_XZ, _GZIP = b"\xfd7zXZ", b"\x1f\x8b"
_DEVICE = re.compile(r"^/device:(GPU:\d+)")
_STREAM = re.compile(r"^Stream #(\d+)")
_DIMENSIONS = re.compile(
  r"grid:(\d+),(\d+),(\d+)\s+block:(\d+),(\d+),(\d+)(?:.*?occ_pct:([\d.]+))?"
)
_ENVIRONMENT = "Task Environment"
_START = "profile_start_time"
_NUMBER = re.compile(r"(\d+)")


def read(path: pathlib.Path) -> trace_lib.Trace:
  """Reads the newest profile of a run.

  Args:
    path: an XSpace, or a folder that has some, as deep as it may be; of several
      profiles in one log folder the newest.

  Raises:
    TraceError: there is none, or it cannot be read.
  """
  files = _files(path)
  return of_bytes({_name(file): _bytes(file) for file in files})


def of_bytes(serialized: Mapping[str, bytes]) -> trace_lib.Trace:
  """The trace of profiles that are in memory.

  Args:
    serialized: the XSpace of each process, by its name.

  Raises:
    TraceError: one is no XSpace, or no GPU ran anything.
  """
  parsed = [_parse(name, data) for name, data in serialized.items()]
  starts = [p.start_us for p in parsed if p.start_us is not None]
  devices = [
    _device(index, device, launched, (p.start_us or min(starts)) - min(starts))
    if starts
    else _device(index, device, launched, 0.0)
    for index, p in enumerate(parsed)
    for device, launched in p.events.items()
  ]
  busy = tuple(d for d in devices if d.launches)
  if not busy:
    raise errors.TraceError(
      f"No GPU of {', '.join(serialized)} ran an instruction of a module:"
      " trace a few steps with jax.profiler.trace while they run on GPUs."
    )
  return trace_lib.Trace(
    processes=tuple(
      trace_lib.Process(
        name=p.name, has_clock=p.start_us is not None, modules=p.modules
      )
      for p in parsed
    ),
    devices=busy,
  )


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Parsed:
  name: str
  start_us: float | None
  events: Mapping[str, Sequence[tuple[int, Any]]]
  modules: Mapping[int, bytes]


def _files(path: pathlib.Path) -> list[pathlib.Path]:
  if path.is_file():
    return [path]
  found = [f for pattern in _PATTERNS for f in path.rglob(pattern)]
  if not found:
    raise errors.TraceError(
      f"{path} has no XSpace ({_PATTERNS[0]}): give the folder that"
      " jax.profiler.trace wrote."
    )
  # The profiler names the folder of a profile by the time that it was taken.
  newest = max(f.parent for f in found)
  return sorted(
    (f for f in found if f.parent == newest), key=lambda f: _natural(f.name)
  )


def _natural(name: str) -> list[tuple[int, str]]:
  """Sorts host-2 before host-10."""
  return [
    (int(part), "") if part.isdecimal() else (-1, part)
    for part in _NUMBER.split(name)
  ]


def _name(file: pathlib.Path) -> str:
  return file.name.partition(".xplane.pb")[0]


def _bytes(file: pathlib.Path) -> bytes:
  try:
    data = source_lib.read_bytes(file)
    if data.startswith(_XZ):
      return lzma.decompress(data)
    return gzip.decompress(data) if data.startswith(_GZIP) else data
  except (OSError, EOFError, lzma.LZMAError) as error:
    raise errors.TraceError(
      f"Cannot read {file}: {getattr(error, 'strerror', None) or error}."
    ) from error


def _parse(name: str, serialized: bytes) -> _Parsed:
  import jax  # JAX is slow to import, and commands describe themselves first.

  try:
    data = jax.profiler.ProfileData.from_serialized_xspace(serialized)
    planes = list(data.planes)
    modules = hlo_protos.by_program(serialized)
  except Exception as error:
    raise errors.TraceError(
      f"The profile of {name} is no XSpace, or was cut off:"
      f" {' '.join(str(error).split())[:200]}; trace again."
    ) from error
  start_us = None
  events: dict[str, list[tuple[int, Any]]] = {}
  for plane in planes:
    if plane.name == _ENVIRONMENT:
      start_ns = dict(plane.stats).get(_START)
      start_us = None if start_ns is None else start_ns / 1e3
    elif match := _DEVICE.match(plane.name):
      events[f"{name} {match[1]}"] = [
        (int(stream[1]), event)
        for line in plane.lines
        if (stream := _STREAM.match(line.name))
        for event in line.events
      ]
  return _Parsed(name=name, start_us=start_us, events=events, modules=modules)


def _device(
  process: int, name: str, events: Iterable[tuple[int, Any]], offset_us: float
) -> trace_lib.Device:
  launches = []
  num_unnamed, unnamed_us = 0, 0.0
  for stream, event in events:
    stats = dict(event.stats)
    if not stats.get("hlo_op"):
      num_unnamed += 1
      unnamed_us += event.duration_ns / 1e3
      continue
    launches.append(_launch(stream, event, stats, offset_us))
  return trace_lib.Device(
    name=name,
    process=process,
    launches=tuple(sorted(launches, key=lambda launch: launch.begin_us)),
    num_unnamed=num_unnamed,
    unnamed_us=unnamed_us,
  )


def _launch(
  stream: int, event: Any, stats: Mapping[str, Any], offset_us: float
) -> trace_lib.Launch:
  begin_us = offset_us + event.start_ns / 1e3
  details = _DIMENSIONS.search(str(stats.get("kernel_details", "")))
  program_id = stats.get("program_id")
  grid = block = occupancy_pct = None
  if details:
    x, y, z, *threads = (int(details[i]) for i in range(1, 7))
    grid, block = (x, y, z), (threads[0], threads[1], threads[2])
    occupancy_pct = float(details[7]) if details[7] else None
  return trace_lib.Launch(
    hlo_op=str(stats["hlo_op"]),
    program_id=None if program_id is None else int(program_id),
    stream=stream,
    begin_us=begin_us,
    end_us=begin_us + event.duration_ns / 1e3,
    grid=grid,
    block=block,
    occupancy_pct=occupancy_pct,
  )
