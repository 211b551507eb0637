# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Reads the XSpaces of jax.profiler, one per process, into a trace.

    traced = xspace.read(pathlib.Path("traces"))

Each process names its folder after the second in which its trace ended, and its
file after its host (plugins/profile/2026_02_01_10_00_03/host0.xplane.pb). So
one run may span several folders. Processes of one host need separate log
folders, or they overwrite each other's files. The newest run has all files
traced at the same time as the newest file, by the clocks of their hosts.

For a GPU only streams count; lines such as "XLA Ops" or "Steps" are derived
from them by other tools. An event has its kernel's name, not its instruction's.

If no GPU launched anything, the host's threads have the events of XLA:CPU, with
the device and the execution of the module. A large matrix product hands its
work to other threads; its event ends when that work begins. An event
"end: NAME" follows the work, but late, because waiting instructions run first
on the same thread (`steps` has a better end).

The plane "/host:metadata" has the modules, in one event per program, named
after the module and the program's number. Launches of XLA:CPU lack that number,
so modules are also found by name. If two programs share a name, either may be
the one that ran.
"""

from __future__ import annotations

import collections
from collections.abc import Iterator, Mapping, Sequence
import contextlib
import dataclasses
import functools
import gzip
import lzma
import pathlib
import re
from typing import Any
import zlib

from google.protobuf import message
import numpy as np

from lagom_xla import errors
from lagom_xla.profiling import trace as trace_lib
from lagom_xla.profiling import xplane
from lagom_xla.validation import whole_files

_DEVICE = re.compile(r"^/device:(GPU:\d+)")
_STREAM = re.compile(r"^Stream #\d+")
_GRID = re.compile(r"grid:(\d+),(\d+),(\d+)")
_GPU_STATS = ("hlo_op", "program_id", "kernel_details")


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class _Stream:
  """A stream of a GPU, with the start times and stats of its events."""

  device: str  # Such as "GPU:0".
  line: xplane.Line
  begins_ns: np.ndarray  # By the process's clock.
  stats: xplane.Stats


def _gpu_streams(space: xplane.Space) -> Iterator[_Stream]:
  """The streams of all GPUs of a process."""
  for plane in space.planes:
    if match := _DEVICE.match(plane.name):
      stats = xplane.Stats(plane.stat_names, _GPU_STATS)
      for serialized in plane.lines:
        line = xplane.line(serialized)
        if _STREAM.match(line.name):
          starts = xplane.starts_ps(serialized)
          begins_ps = np.fromiter(starts, np.int64, len(line.events))
          yield _Stream(
            device=match[1],
            line=line,
            begins_ns=line.begin_ns + begins_ps // 1000,
            stats=stats,
          )


def _gpu(
  name: str,
  process: int,
  streams: Sequence[_Stream],
  offset_us: float,
  until_ns: int | None,
) -> trace_lib.Device:
  """A GPU with the launches of its streams.

  `offset_us` is added to times. Omits launches that start at `until_ns` or
  later by the process's clock; None for all launches.
  """
  launches = []
  num_unnamed, unnamed_us = 0, 0.0
  for stream in streams:
    for index, event in enumerate(xplane.events(stream.line)):
      if until_ns is not None and stream.begins_ns[index] >= until_ns:
        continue
      stats = stream.stats.read(event.stats)
      if stats.get("hlo_op"):
        launches.append(_gpu_launch(stream, event, stats, offset_us))
      else:
        num_unnamed += 1
        unnamed_us += event.duration_ps / 1e6
  return trace_lib.Device(
    name=name,
    process=process,
    launches=tuple(sorted(launches, key=lambda launch: launch.begin_us)),
    num_unnamed=num_unnamed,
    unnamed_us=unnamed_us,
  )


def _gpu_launch(
  stream: _Stream,
  event: Any,
  stats: Mapping[str, xplane.Value],
  offset_us: float,
) -> trace_lib.Launch:
  begin_us = offset_us + stream.line.begin_ns / 1e3 + event.offset_ps / 1e6
  program_id = stats.get("program_id")
  return trace_lib.Launch(
    hlo_op=str(stats["hlo_op"]),
    program_id=None if program_id is None else int(program_id),
    begin_us=begin_us,
    end_us=begin_us + event.duration_ps / 1e6,
    grid=_grid(str(stats.get("kernel_details", ""))),
  )


@functools.lru_cache(maxsize=1 << 16)
def _grid(details: str) -> tuple[int, int, int] | None:
  """The grid of a kernel, if its details have it."""
  found = _GRID.search(details)
  return (int(found[1]), int(found[2]), int(found[3])) if found else None


_HOST_PLANE = "/host:CPU"
_END = "end: "
_CPU_STATS = ("hlo_op", "hlo_module", "run_id", "device_ordinal")


def _cpu_launches(
  space: xplane.Space, offset_us: float
) -> Mapping[int, list[trace_lib.Launch]]:
  """The launches of each device of a process, by global device number."""
  found: dict[int, list[trace_lib.Launch]] = collections.defaultdict(list)
  for plane in space.planes:
    if plane.name == _HOST_PLANE:
      for number, launch in _cpu_device_launches(plane, offset_us):
        found[number].append(launch)
  return {
    number: sorted(found[number], key=lambda launch: launch.begin_us)
    for number in sorted(found)
  }


def _cpu_device_launches(
  plane: xplane.Plane, offset_us: float
) -> Iterator[tuple[int, trace_lib.Launch]]:
  stats = xplane.Stats(plane.stat_names, _CPU_STATS)
  # The IDs of the work that an event starts, and of the work that it follows.
  starts = xplane.Stats(plane.stat_names, ("_p",))
  follows = xplane.Stats(plane.stat_names, ("_c",))
  ends = {n for n, name in plane.event_names.items() if name.startswith(_END)}
  others: set[int] = set()
  ended_us: dict[xplane.Value, float] = {}
  ran: list[tuple[int, xplane.Value | None, trace_lib.Launch]] = []
  for serialized in plane.lines:
    line = xplane.line(serialized)
    line_us = offset_us + line.begin_ns / 1e3
    for event in xplane.events(line):
      if event.metadata_id in others:
        continue
      begin_us = line_us + event.offset_ps / 1e6
      if event.metadata_id in ends:
        if cause := follows.read(event.stats).get("_c"):
          ended_us[cause] = begin_us
        continue
      known = stats.read(event.stats)
      if "hlo_op" not in known:
        others.add(event.metadata_id)
        continue
      effect = starts.read(event.stats).get("_p")
      ran.append(
        (
          int(known.get("device_ordinal", 0)),
          effect,
          _cpu_launch(event, known, begin_us),
        )
      )
  for number, effect, launch in ran:
    until_us = None if effect is None else ended_us.get(effect)
    if until_us is not None and until_us > launch.end_us:
      launch = dataclasses.replace(launch, until_us=until_us)
    yield number, launch


def _cpu_launch(
  event: Any, stats: Mapping[str, xplane.Value], begin_us: float
) -> trace_lib.Launch:
  execution = stats.get("run_id")
  return trace_lib.Launch(
    hlo_op=str(stats["hlo_op"]),
    # The name, because all programs have the number 0.
    program_id=str(stats.get("hlo_module", "")),
    begin_us=begin_us,
    end_us=begin_us + event.duration_ps / 1e6,
    execution=None if execution is None else int(execution),
  )


_PATTERNS = ("*.xplane.pb", "*.xplane.pb.gz", "*.xplane.pb.xz")
_XZ, _GZIP = b"\xfd7zXZ", b"\x1f\x8b"
_ENVIRONMENT = "Task Environment"
# jax.profiler's folders between a log folder and the files.
_LAYOUT = ("plugins", "profile")
_TIME = re.compile(r"\d{4}(_\d\d)+")
_NUMBER = re.compile(r"(\d+)")


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Session:
  """The profiler session of one process.

  Attributes:
    name: name of its file, after its log folder's if there are several.
    space: its planes.
    begin_ns: start of the session, since 1970; None if unknown.
    end_ns: end of the session; None if unknown.
  """

  name: str
  space: xplane.Space
  begin_ns: int | None
  end_ns: int | None

  def overlaps(self, other: Session) -> bool:
    """Whether both ran at the same time; False if unknown."""
    if None in (self.begin_ns, self.end_ns, other.begin_ns, other.end_ns):
      return False
    assert self.begin_ns is not None and self.end_ns is not None
    assert other.begin_ns is not None and other.end_ns is not None
    return self.begin_ns <= other.end_ns and other.begin_ns <= self.end_ns


def newest_sessions(path: pathlib.Path) -> tuple[list[Session], int, list[str]]:
  """The sessions of the newest run in a folder, or of one file, by name.

  Also returns the number of files of other runs, and why older files could not
  be read.

  Raises:
    TraceError: There is no profile, or a file of the newest run cannot be read.
  """
  if path.is_file():
    return [_read_session(path, _stem(path.name))], 0, []
  if not path.exists():
    raise errors.TraceError(
      f"There is no {path}: pass the folder that jax.profiler.trace wrote."
    )
  files = [f for pattern in _PATTERNS for f in path.rglob(pattern)]
  if not files:
    raise errors.TraceError(
      f"{path} has no trace ({_PATTERNS[0]}): pass the folder that"
      " jax.profiler.trace wrote."
    )
  # Several log folders may have folders with the same time.
  times = sorted({f.parent.name for f in files}, reverse=True)
  sessions: list[Session] = []
  unread: list[str] = []
  for time in times:
    of_time = []
    for file in files:
      if file.parent.name != time:
        continue
      try:
        of_time.append(_read_session(file, _session_name(file, path)))
      except errors.TraceError as error:
        if not sessions:
          raise
        unread.append(str(error))  # Presumably of another run.
    if sessions:
      of_time = [s for s in of_time if any(map(s.overlaps, sessions))]
    # Older sessions ended even earlier.
    if not of_time and _TIME.fullmatch(time):
      break
    sessions += of_time
  sessions.sort(key=lambda session: _natural_order(session.name))
  return sessions, len(files) - len(sessions) - len(unread), unread


def _session(
  name: str, serialized: bytes, file: pathlib.Path | None = None
) -> Session:
  """A session from bytes; `file` is for error messages."""
  where = f"of {name}" if file is None else f"of {name}, {file},"
  try:
    space = xplane.space(serialized)
  except message.DecodeError as error:
    raise errors.TraceError(
      f"The profile {where} is not an XSpace or was cut off: trace again, and"
      " let the process end the trace."
    ) from error
  if not space.planes:
    raise errors.TraceError(
      f"The profile {where} is empty: the process ended before"
      " jax.profiler.stop_trace, or another profiler was using the GPU."
    )
  stats = next((p.stats for p in space.planes if p.name == _ENVIRONMENT), {})
  return Session(
    name=name,
    space=space,
    begin_ns=_ns(stats, "profile_start_time"),
    end_ns=_ns(stats, "profile_stop_time"),
  )


def _natural_order(name: str) -> list[tuple[int, str]]:
  """A key that sorts host-2 before host-10."""
  return [
    (int(part), "") if part.isdecimal() else (-1, part)
    for part in _NUMBER.split(name)
  ]


def _ns(stats: Mapping[str, xplane.Value], name: str) -> int | None:
  value = stats.get(name)
  return value if isinstance(value, int) else None


def _session_name(file: pathlib.Path, folder: pathlib.Path) -> str:
  """The host's name, after the distinctive part of its log folder."""
  *above, name = file.relative_to(folder).parts
  logs = [p for p in above if p not in _LAYOUT and not _TIME.fullmatch(p)]
  return "/".join([*logs, _stem(name)])


def _stem(name: str) -> str:
  return name.partition(".xplane.pb")[0]


def _read_session(file: pathlib.Path, name: str) -> Session:
  try:
    data = whole_files.read_bytes(file)
    if data.startswith(_XZ):
      data = lzma.decompress(data)
    elif data.startswith(_GZIP):
      data = gzip.decompress(data)
  except (OSError, EOFError, lzma.LZMAError, zlib.error) as error:
    raise errors.TraceError(
      f"Cannot read {file}: {getattr(error, 'strerror', None) or error}."
    ) from error
  return _session(name, data, file)


_MODULES_PLANE = "/host:metadata"
_PROGRAM = re.compile(r"(.*)\((\d+)\)$")


def _modules_by_program(
  plane: xplane.Plane,
) -> Mapping[trace_lib.Program, Sequence[bytes]]:
  """The HloProtos in "/host:metadata", by program number and module name."""
  found = collections.defaultdict[trace_lib.Program, list[bytes]](list)
  reader = xplane.Stats(plane.stat_names, plane.stat_names.values())
  for number, stats in plane.event_stats.items():
    program = _PROGRAM.match(plane.event_names[number])
    values = reader.read(stats).values()
    proto = next((value for value in values if isinstance(value, bytes)), None)
    if program and proto is not None:
      found[program[1]].append(proto)
      found[int(program[2])].append(proto)
  return found


# Most launches to read. More would take minutes and gain little.
MOST_LAUNCHES = 1_000_000


def read(path: pathlib.Path) -> trace_lib.Trace:
  """Reads an XSpace, or the newest run anywhere in a folder.

  Raises:
    TraceError: There is none, or it cannot be read.
  """
  sessions, num_others, unread = newest_sessions(path)
  found = _of_sessions(sessions)
  return dataclasses.replace(
    found, num_other_files=num_others, unread=tuple(unread)
  )


def of_bytes(serialized: Mapping[str, bytes]) -> trace_lib.Trace:
  """The trace of processes whose XSpaces are in memory, by process name.

  Raises:
    TraceError: One is not an XSpace, or no device ran anything.
  """
  return _of_sessions([_session(*item) for item in serialized.items()])


def _of_sessions(sessions: Sequence[Session]) -> trace_lib.Trace:
  begins_ns = [s.begin_ns for s in sessions if s.begin_ns is not None]
  first_ns = min(begins_ns, default=None)
  offsets_us = [
    0.0
    if s.begin_ns is None or first_ns is None
    # Subtracted as integers: float64 rounds an epoch by half a microsecond.
    else (s.begin_ns - first_ns) / 1e3
    for s in sessions
  ]
  platform = "GPU"
  devices, num_left_out = _gpus(sessions, offsets_us)
  if not devices:
    platform, devices = "CPU", _cpus(sessions, offsets_us)
  if not devices:
    raise errors.TraceError(_nothing_ran(sessions))
  return trace_lib.Trace(
    platform=platform,
    processes=tuple(map(_process, sessions)),
    devices=tuple(devices),
    begin_ns=first_ns,
    num_left_out=num_left_out,
    problems={
      s.name: tuple(s.space.problems) for s in sessions if s.space.problems
    },
  )


@contextlib.contextmanager
def _reading(session: Session) -> Iterator[None]:
  """A context whose errors name the damaged profile."""
  try:
    yield
  except message.DecodeError as error:
    raise errors.TraceError(
      f"The profile of {session.name} is damaged: copy it again, or trace"
      " again."
    ) from error


def _gpus(
  sessions: Sequence[Session], offsets_us: Sequence[float]
) -> tuple[list[trace_lib.Device], int]:
  """The GPUs with launches, and the number of launches left out."""
  streams = []
  for session in sessions:
    with _reading(session):
      streams.append(list(_gpu_streams(session.space)))
  # By the first process's clock: all processes are cut off at the same time.
  begins_ns = [
    stream.begins_ns + round(offset_us * 1e3)
    for of_process, offset_us in zip(streams, offsets_us, strict=True)
    for stream in of_process
  ]
  together = np.concatenate(begins_ns) if begins_ns else np.empty(0, np.int64)
  num_left_out, until_ns = max(len(together) - MOST_LAUNCHES, 0), None
  if num_left_out:
    until_ns = int(np.partition(together, MOST_LAUNCHES)[MOST_LAUNCHES])
    num_left_out = int((together >= until_ns).sum())
  found = []
  for index, session in enumerate(sessions):
    names = dict.fromkeys(stream.device for stream in streams[index])
    own_ns = round(offsets_us[index] * 1e3)
    for name in names:
      with _reading(session):
        device = _gpu(
          f"{session.name} {name}",
          index,
          [stream for stream in streams[index] if stream.device == name],
          offsets_us[index],
          None if until_ns is None else until_ns - own_ns,
        )
      found.append(device)
  return [device for device in found if device.launches], num_left_out


def _cpus(
  sessions: Sequence[Session], offsets_us: Sequence[float]
) -> list[trace_lib.Device]:
  """The CPU devices, by global device number."""
  found = []
  for index, session in enumerate(sessions):
    with _reading(session):
      by_device = _cpu_launches(session.space, offsets_us[index])
    found += [(number, index, ran) for number, ran in by_device.items()]
  return [
    trace_lib.Device(
      name=f"{sessions[index].name} CPU:{number}",
      process=index,
      launches=tuple(launches),
      num_unnamed=0,
      unnamed_us=0.0,
    )
    for number, index, launches in sorted(found, key=lambda it: it[:2])
  ]


def _process(session: Session) -> trace_lib.Process:
  modules: dict[trace_lib.Program, Sequence[bytes]] = {}
  for plane in session.space.planes:
    if plane.name == _MODULES_PLANE:
      modules |= _modules_by_program(plane)
  return trace_lib.Process(
    name=session.name, has_clock=session.begin_ns is not None, modules=modules
  )


def _nothing_ran(sessions: Sequence[Session]) -> str:
  names = ", ".join(session.name for session in sessions)
  if not any(
    plane.name.startswith("/")
    for session in sessions
    for plane in session.space.planes
  ):
    return (
      f"{names} is not an XSpace: pass a folder that jax.profiler.trace wrote"
      f" ({_PATTERNS[0]})."
    )
  seen = dict.fromkeys(
    plane.name
    for session in sessions
    for plane in session.space.planes
    if plane.name.startswith("/device:")
  )
  problems = [p for session in sessions for p in session.space.problems]
  return (
    f"The trace of {names} has no HLO instructions"
    + (f" (its planes: {', '.join(seen)})" if seen else "")
    + (f"; the profiler says: {problems[0]}" if problems else "")
    + ". Trace a few steps while they run. On GPUs, stop other profilers: CUPTI"
    " serves only one. On CPUs, set host_tracer_level to 1 or more."
  )
