# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""The events of a trace, in the JSON form that ui.perfetto.dev reads.

The form is Chrome's Trace Event Format: complete slices (ph "X"), flows from
one slice to others ("s", "t", "f"), counters ("C") and names ("M"). Times are
in microseconds. Slices of one thread nest or follow each other.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
import gzip
import json
import pathlib
from typing import Any

from lagom_xla import errors

Event = Mapping[str, Any]

# What a mark takes that has no length: the least that a slice can be found by.
_MARK_US = 1e-3


class Process:
  """The events of one process, each thread of which is a stream.

  Attributes:
    events: so far.
  """

  def __init__(self, number: int, name: str):
    self.events: list[Event] = []
    self._number = number
    self._threads: dict[str, int] = {}
    self._marked_us: dict[str, float] = {}
    self._name("process_name", {"name": name})
    self._name("process_sort_index", {"sort_index": number})

  def slice(
    self,
    thread: str,
    name: str,
    begin_us: float,
    end_us: float,
    arguments: Mapping[str, Any],
  ) -> None:
    """Adds what a stream did for a time."""
    self._add(
      "X",
      thread,
      name,
      ts=begin_us,
      dur=end_us - begin_us,
      args={k: v for k, v in arguments.items() if v not in ("", None)},
    )

  def mark(self, thread: str, name: str, at_us: float) -> float:
    """Adds a moment, as the shortest of slices, after those at the same time.

    Returns:
      When it is, for flows.
    """
    at_us = max(at_us, self._marked_us.get(thread, at_us))
    self._marked_us[thread] = at_us + _MARK_US
    self.slice(thread, name, at_us, at_us + _MARK_US, {})
    return at_us

  def flow(self, number: int, places: Sequence[tuple[str, float]]) -> None:
    """Joins slices: those that are on these threads at these times."""
    last = len(places) - 1
    for index, (thread, at_us) in enumerate(places):
      phase = "s" if index == 0 else "f" if index == last else "t"
      # Unique in the whole trace.
      identity = self._number * 10_000_000 + number
      self._add(
        phase,
        thread,
        "start to done",
        ts=at_us,
        id=identity,
        cat="flow",
        bp="e",
      )

  def counter(self, name: str, at_us: float, value: float) -> None:
    """Sets a counter from a time on."""
    self.events.append(
      {
        "ph": "C",
        "name": name,
        "pid": self._number,
        "ts": at_us,
        "args": {"value": value},
      }
    )

  def _add(self, phase: str, thread: str, name: str, **more: Any) -> None:
    event = {"ph": phase, "name": name, "pid": self._number}
    self.events.append(event | {"tid": self._thread(thread)} | more)

  def _thread(self, name: str) -> int:
    if name not in self._threads:
      number = self._threads[name] = len(self._threads) + 1
      self._name("thread_name", {"name": name}, number)
      self._name("thread_sort_index", {"sort_index": number}, number)
    return self._threads[name]

  def _name(
    self, kind: str, arguments: Mapping[str, Any], thread: int = 0
  ) -> None:
    self.events.append(
      {
        "ph": "M",
        "name": kind,
        "pid": self._number,
        "tid": thread,
        "args": arguments,
      }
    )


def write(path: pathlib.Path, processes: Sequence[Process]) -> None:
  """Writes a trace, compressed where the name ends in .gz.

  Raises:
    OutputError: it cannot be written.
  """
  events = [event for process in processes for event in process.events]
  text = json.dumps({"displayTimeUnit": "ms", "traceEvents": events})
  data = text.encode()
  if path.suffix == ".gz":
    # Without the time of day: the same step makes the same file.
    data = gzip.compress(data, compresslevel=6, mtime=0)
  try:
    path.write_bytes(data)
  except OSError as error:
    raise errors.OutputError(
      f"The trace {path} cannot be written: {error.strerror}."
    ) from error
