# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""XSpaces of jax.profiler, one per process, read into a trace.

    traced = xspace.read(pathlib.Path("traces"))

A trace of GPUs has their streams. Where none of them launched anything, the
host's threads have what XLA:CPU ran.

Which files of a folder are of one run is not said:

    plugins/profile/2026_02_01_10_00_03/host0.xplane.pb
    plugins/profile/2026_02_01_10_00_04/host1.xplane.pb

Every process names its folder by the second in which it was done, and its file
by its host: one run may lie in several folders, and processes of one host need
log folders of their own, or overwrite each other. So a run is what was traced
at the same time as the newest file, by the clocks of their hosts.

The plane "/host:metadata" has the modules, in an event for each program whose
name is the module's with the program's number behind it. Launches of XLA:CPU do
not tell that number, so modules go by their names, too; of two programs of one
name either may be what ran.
"""

from __future__ import annotations

import collections
from collections.abc import Iterator, Mapping, Sequence
import contextlib
import dataclasses
import gzip
import lzma
import pathlib
import re
import zlib

from google.protobuf import message
import numpy as np

from lagom_xla import errors
from lagom_xla.profiling import devices as devices_lib
from lagom_xla.profiling import trace as trace_lib
from lagom_xla.profiling import xplane
from lagom_xla.validation import whole_files

_PATTERNS = ("*.xplane.pb", "*.xplane.pb.gz", "*.xplane.pb.xz")
_XZ, _GZIP = b"\xfd7zXZ", b"\x1f\x8b"
_ENVIRONMENT = "Task Environment"
# What jax.profiler puts between a log folder and the files of a time.
_LAYOUT = ("plugins", "profile")
_TIME = re.compile(r"\d{4}(_\d\d)+")
_NUMBER = re.compile(r"(\d+)")


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Session:
  """What one process traced.

  Attributes:
    name: of its file, behind that of its log folder where there are several.
    space: its planes.
    begin_ns: when the session began, since 1970; None where it does not say.
    end_ns: when it ended.
  """

  name: str
  space: xplane.Space
  begin_ns: int | None
  end_ns: int | None

  def overlaps(self, other: Session) -> bool:
    """Whether both ran at some time; not where one does not say when."""
    if None in (self.begin_ns, self.end_ns, other.begin_ns, other.end_ns):
      return False
    assert self.begin_ns is not None and self.end_ns is not None
    assert other.begin_ns is not None and other.end_ns is not None
    return self.begin_ns <= other.end_ns and other.begin_ns <= self.end_ns


def newest_sessions(path: pathlib.Path) -> tuple[list[Session], int, list[str]]:
  """The sessions of the newest run in a folder.

  Args:
    path: the folder, or one file.

  Returns:
    The sessions by the natural order of their names, how many files of other
    runs there are, and why files that are older than the newest ones could not
    be read.

  Raises:
    TraceError: there is no profile, or one of the newest cannot be read.
  """
  if path.is_file():
    return [_read_session(path, _stem(path.name))], 0, []
  if not path.exists():
    raise errors.TraceError(
      f"There is no {path}: give the folder that jax.profiler.trace wrote."
    )
  files = [f for pattern in _PATTERNS for f in path.rglob(pattern)]
  if not files:
    raise errors.TraceError(
      f"{path} has no XSpace ({_PATTERNS[0]}): give the folder that"
      " jax.profiler.trace wrote."
    )
  # Several log folders may have folders of one time.
  times = sorted({f.parent.name for f in files}, reverse=True)
  found: list[Session] = []
  unread: list[str] = []
  for time in times:
    together = []
    for file in files:
      if file.parent.name != time:
        continue
      try:
        together.append(_read_session(file, _session_name(file, path)))
      except errors.TraceError as error:
        if not found:
          raise
        unread.append(str(error))  # Of another run, as far as is known.
    if found:
      together = [s for s in together if any(map(s.overlaps, found))]
    # Those before it ended earlier still.
    if not together and _TIME.fullmatch(time):
      break
    found += together
  found.sort(key=lambda session: _natural_order(session.name))
  return found, len(files) - len(found) - len(unread), unread


def session_of_bytes(
  name: str, serialized: bytes, file: pathlib.Path | None = None
) -> Session:
  """A session that is in memory.

  Args:
    name: what to call it.
    serialized: an XSpace.
    file: where it is from, for errors.

  Raises:
    TraceError: it is none.
  """
  try:
    space = xplane.space(serialized)
  except message.DecodeError as error:
    raise errors.TraceError(
      f"The profile {_where(name, file)} is no XSpace, or was cut off: trace"
      " again, and let the process end the trace."
    ) from error
  if not space.planes:
    raise errors.TraceError(
      f"The profile {_where(name, file)} is empty: the process ended before"
      " jax.profiler.stop_trace, or another profiler had the GPU."
    )
  stats = next((p.stats for p in space.planes if p.name == _ENVIRONMENT), {})
  return Session(
    name=name,
    space=space,
    begin_ns=_ns(stats, "profile_start_time"),
    end_ns=_ns(stats, "profile_stop_time"),
  )


def _where(name: str, file: pathlib.Path | None) -> str:
  return f"of {name}" if file is None else f"of {name}, {file},"


def _natural_order(name: str) -> list[tuple[int, str]]:
  """Sorts host-2 before host-10."""
  return [
    (int(part), "") if part.isdecimal() else (-1, part)
    for part in _NUMBER.split(name)
  ]


def _ns(stats: Mapping[str, xplane.Value], name: str) -> int | None:
  value = stats.get(name)
  return value if isinstance(value, int) else None


def _session_name(file: pathlib.Path, folder: pathlib.Path) -> str:
  """The host's, behind what tells its log folder from others."""
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
  return session_of_bytes(name, data, file)


_MODULES_PLANE = "/host:metadata"
_PROGRAM = re.compile(r"(.*)\((\d+)\)$")


def modules_by_program(
  plane: xplane.Plane,
) -> Mapping[trace_lib.Program, Sequence[bytes]]:
  """HloProtos by program, and by the module's name.

  Args:
    plane: that is called `PLANE`.
  """
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


# What more steps have to say is not worth the minutes that reading them takes.
MOST_LAUNCHES = 1_000_000


def read(path: pathlib.Path) -> trace_lib.Trace:
  """Reads the newest profile of a run.

  Args:
    path: an XSpace, or a folder that has some, as deep as it may be; of several
      runs the newest.

  Raises:
    TraceError: there is none, or it cannot be read.
  """
  sessions, num_others, unread = newest_sessions(path)
  found = _of_sessions(sessions)
  return dataclasses.replace(
    found, num_other_files=num_others, unread=tuple(unread)
  )


def of_bytes(serialized: Mapping[str, bytes]) -> trace_lib.Trace:
  """The trace of profiles that are in memory.

  Args:
    serialized: the XSpace of each process, by its name.

  Raises:
    TraceError: one is no XSpace, or no device ran anything.
  """
  return _of_sessions([session_of_bytes(*item) for item in serialized.items()])


def _of_sessions(sessions: Sequence[Session]) -> trace_lib.Trace:
  begins_ns = [s.begin_ns for s in sessions if s.begin_ns is not None]
  first_ns = min(begins_ns, default=None)
  offsets_us = [
    0.0
    if s.begin_ns is None or first_ns is None
    # As integers: an epoch in float64 is half a microsecond off.
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
  """Around reading what a profile holds as bytes; names one that is damaged."""
  try:
    yield
  except message.DecodeError as error:
    raise errors.TraceError(
      f"The profile of {session.name} is damaged, as parts of it cannot be"
      " read: copy it again, or trace again."
    ) from error


def _gpus(
  sessions: Sequence[Session], offsets_us: Sequence[float]
) -> tuple[list[trace_lib.Device], int]:
  """GPUs that launched something, and how many launches are left out."""
  streams = []
  for session in sessions:
    with _reading(session):
      streams.append(list(devices_lib.gpu_streams(session.space)))
  # By the clock of the first process, as all are cut off at the same time.
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
        device = devices_lib.of_gpu(
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
  """Devices of CPUs, by their number among all processes."""
  found = []
  for index, session in enumerate(sessions):
    with _reading(session):
      by_device = devices_lib.cpu_launches(session.space, offsets_us[index])
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
      modules |= modules_by_program(plane)
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
      f"What {names} has is no XSpace: give what jax.profiler.trace wrote,"
      f" {_PATTERNS[0]}."
    )
  seen = dict.fromkeys(
    plane.name
    for session in sessions
    for plane in session.space.planes
    if plane.name.startswith("/device:")
  )
  problems = [p for session in sessions for p in session.space.problems]
  return (
    f"No GPU or CPU of {names} ran an instruction of a module"
    + (f" (there are planes of {', '.join(seen)})" if seen else "")
    + (f" and the profiler says: {problems[0]}" if problems else "")
    + ": trace a few steps with jax.profiler.trace while they run, on a CPU"
    " with a host_tracer_level of 1 or more."
  )
