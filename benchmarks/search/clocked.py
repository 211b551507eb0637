# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Clocked targets: the time that compiles take, apart from all else.

While XLA compiles, on all cores, the clock of a search stands.
"""

from __future__ import annotations

from collections.abc import Iterator
import contextlib
import dataclasses
import os
import time

from lagom_xla.compile import config as config_lib
from lagom_xla.compile import lowered
from lagom_xla.compile import target as target_lib
from lagom_xla.passes import hlo
from lagom_xla.passes.program import form as form_lib
from lagom_xla.passes.program import outcome as outcome_lib
from lagom_xla.passes.program.slices import chains as chains_lib


class Stopwatch:
  """The time that the compiles of a target take, apart from all else.

  Schedules are remembered, so that a second search compiles nothing.

  Attributes:
    process_s: processor time that compiles took since the last reset.
    wall_s: time that compiles took altogether.
  """

  def __init__(self, *, once: bool):
    self.process_s = 0.0
    self.wall_s = 0.0
    self._once = once
    self._known: list[tuple[config_lib.XlaConfig | None, bytes]] = []

  def reset(self) -> None:
    """Begins to count the processor time anew."""
    self.process_s = 0.0

  def schedule(
    self, target: target_lib.Target, config: config_lib.XlaConfig
  ) -> hlo.Module:
    """The schedule of a target, compiled the first time that it is asked for.

    Raises:
      CompileError: XLA refuses the config.
    """
    process, wall = time.process_time(), time.perf_counter()
    asked = None if self._once else config
    serialized = next((s for c, s in self._known if c == asked), None)
    if serialized is None:
      with _all_cores():
        serialized = target.schedule(config).proto.SerializeToString()
      self._known.append((asked, serialized))
    self.process_s += time.process_time() - process
    self.wall_s += time.perf_counter() - wall
    # Read again, which a search has to do as well.
    return load(serialized, target)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Clocked(target_lib.Target):
  """A target whose compiles are timed, none of them to the end."""

  target: target_lib.Target
  stopwatch: Stopwatch

  def schedule(
    self, config: config_lib.XlaConfig = config_lib.DEFAULT
  ) -> hlo.Module:
    """As of the target, by the stopwatch."""
    return self.stopwatch.schedule(self.target, config)

  def compile(
    self, config: config_lib.XlaConfig = config_lib.DEFAULT
  ) -> lowered.Compilation:
    """As of the target."""
    return self.target.compile(config)

  def outcome(self, form: form_lib.Form) -> outcome_lib.Outcome:
    """As of the target."""
    return self.target.outcome(form)

  def chains(self) -> tuple[chains_lib.Chain, ...]:
    """As of the target."""
    return self.target.chains()

  def identity(self) -> hlo.Module:
    """As of the target."""
    return self.target.identity()


_ALL_CORES = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else {}


@contextlib.contextmanager
def one_core() -> Iterator[None]:
  """Runs this thread on one core, where the system lets it."""
  if not _ALL_CORES:
    yield
    return
  os.sched_setaffinity(0, {min(_ALL_CORES)})
  try:
    yield
  finally:
    os.sched_setaffinity(0, _ALL_CORES)


@contextlib.contextmanager
def _all_cores() -> Iterator[None]:
  """Gives a compile all cores back."""
  if not _ALL_CORES:
    yield
    return
  before = os.sched_getaffinity(0)
  os.sched_setaffinity(0, _ALL_CORES)
  try:
    yield
  finally:
    os.sched_setaffinity(0, before)


def load(serialized: bytes, target: target_lib.Target) -> hlo.Module:
  """The module of a target, from what XLA handed over."""
  proto = hlo.hlo_pb2.HloModuleProto.FromString(serialized)
  return hlo.Module(proto, target.cluster.num_devices)
