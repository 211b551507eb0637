# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""XSpaces of jax.profiler, one per process, read into a trace.

    traced = xspace.read(pathlib.Path("traces"))

A trace of GPUs has their streams. Where none of them launched anything, the
host's threads have what XLA:CPU ran.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
import contextlib
import dataclasses
import pathlib

from google.protobuf import message
import numpy as np

from lagom_xla import errors
from lagom_xla.profiling import gpu_streams
from lagom_xla.profiling import hlo_protos
from lagom_xla.profiling import host_threads
from lagom_xla.profiling import sessions as sessions_lib
from lagom_xla.profiling import trace as trace_lib

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
  sessions, num_others, unread = sessions_lib.newest(path)
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
  return _of_sessions(
    [sessions_lib.of_bytes(*item) for item in serialized.items()]
  )


def _of_sessions(sessions: Sequence[sessions_lib.Session]) -> trace_lib.Trace:
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
def _reading(session: sessions_lib.Session) -> Iterator[None]:
  """Around reading what a profile holds as bytes; names one that is damaged."""
  try:
    yield
  except message.DecodeError as error:
    raise errors.TraceError(
      f"The profile of {session.name} is damaged, as parts of it cannot be"
      " read: copy it again, or trace again."
    ) from error


def _gpus(
  sessions: Sequence[sessions_lib.Session], offsets_us: Sequence[float]
) -> tuple[list[trace_lib.Device], int]:
  """GPUs that launched something, and how many launches are left out."""
  streams = []
  for session in sessions:
    with _reading(session):
      streams.append(list(gpu_streams.of_space(session.space)))
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
        device = gpu_streams.device(
          f"{session.name} {name}",
          index,
          [stream for stream in streams[index] if stream.device == name],
          offsets_us[index],
          None if until_ns is None else until_ns - own_ns,
        )
      found.append(device)
  return [device for device in found if device.launches], num_left_out


def _cpus(
  sessions: Sequence[sessions_lib.Session], offsets_us: Sequence[float]
) -> list[trace_lib.Device]:
  """Devices of CPUs, by their number among all processes."""
  found = []
  for index, session in enumerate(sessions):
    with _reading(session):
      by_device = host_threads.by_device(session.space, offsets_us[index])
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


def _process(session: sessions_lib.Session) -> trace_lib.Process:
  modules: dict[trace_lib.Program, Sequence[bytes]] = {}
  for plane in session.space.planes:
    if plane.name == hlo_protos.PLANE:
      modules |= hlo_protos.by_program(plane)
  return trace_lib.Process(
    name=session.name, has_clock=session.begin_ns is not None, modules=modules
  )


def _nothing_ran(sessions: Sequence[sessions_lib.Session]) -> str:
  names = ", ".join(session.name for session in sessions)
  if not any(
    plane.name.startswith("/")
    for session in sessions
    for plane in session.space.planes
  ):
    return (
      f"What {names} has is no XSpace: give what jax.profiler.trace wrote,"
      f" {sessions_lib.PATTERNS[0]}."
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
