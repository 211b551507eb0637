# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""The scale of the search: its time on very large steps, less XLA's compiles.

Everything that `tune` does before it checks its result runs on one core, and
its processor time is taken; while XLA compiles, on all cores, the clock stands.
A step with unrolled layers compiles for a minute, so it is scheduled once only,
and that schedule is handed out anew for every candidate: what is read, analysed
and searched is as much as if XLA had changed something.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
import contextlib
import cProfile
import dataclasses
import os
import time
from typing import Any

from benchmarks import table as table_lib
from benchmarks.search import modules as modules_lib
from lagom_xla.compile import config as config_lib
from lagom_xla.compile import lowered as lowered_lib
from lagom_xla.compile import target as target_lib
from lagom_xla.costs import step as step_lib
from lagom_xla.passes import hlo
from lagom_xla.passes import overlap as overlap_lib
from lagom_xla.passes.program import form as form_lib
from lagom_xla.passes.program import outcome as outcome_lib
from lagom_xla.passes.program.slices import chains as chains_lib
from lagom_xla.search.nccl import problem as problem_lib
from lagom_xla.search.nccl import settings as settings_lib
from lagom_xla.search.xla import joint


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
  ) -> lowered_lib.Compilation:
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


NAME = "scale"


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Case:
  """A large step.

  Attributes:
    module: which.
    most_seconds: what its search may take.
    fewest_instructions: what it must have to count.
    compiles_once: whether one schedule stands for all candidates'.
  """

  module: modules_lib.Module
  most_seconds: float
  fewest_instructions: int = 0
  compiles_once: bool = False


CASES = (
  Case(module=modules_lib.MODULES["llama-70b-16x8"], most_seconds=10),
  Case(
    module=modules_lib.llama(
      "llama-405b-128x8", "128x8xh100", model="405b", mesh="fsdp:128,tp:8"
    ),
    most_seconds=10,
  ),
  Case(
    module=modules_lib.llama(
      "llama-64-layers",
      "1x8xh100",
      model="8b",
      layers="unroll",
      num_layers="64",
    ),
    most_seconds=60,
    fewest_instructions=100_000,
    compiles_once=True,
  ),
)

_PARTS = ("load", "analyze", "problems", "settings", "replay")
_COLUMNS = (
  table_lib.Column(field="module", heading="module"),
  table_lib.Column(field="devices", heading="devices", form="d"),
  table_lib.Column(field="instructions", heading="instructions", form=",d"),
  table_lib.Column(field="kernels", heading="kernels", form=",d"),
  table_lib.Column(field="collectives", heading="collectives", form="d"),
  table_lib.Column(field="keys", heading="keys", form="d"),
  *(
    table_lib.Column(field=f"{part}_s", heading=f"{part} s", form=".2f")
    for part in _PARTS
  ),
  table_lib.Column(field="predicted", heading="predictions", form="d"),
  table_lib.Column(
    field="rest_s", heading="predictions and rest s", form=".2f"
  ),
  table_lib.Column(field="search_s", heading="whole search s", form=".2f"),
  table_lib.Column(field="candidates", heading="candidates", form="d"),
  table_lib.Column(field="compile_s", heading="compiling s", form=".0f"),
)
_HOT_COLUMNS = (
  table_lib.Column(field="module", heading="module"),
  table_lib.Column(field="function", heading="function"),
  table_lib.Column(field="calls", heading="calls", form=",d"),
  table_lib.Column(field="share", heading="own time", form=".1%"),
)
_NUM_HOT = 8
# Candidates of the search that is profiled; one is XLA's defaults.
_PROFILED = 2


def tables(
  shelf: modules_lib.Shelf, cases: Iterable[Case]
) -> list[table_lib.Table]:
  """The times, and where they go."""
  cases = tuple(cases)
  names = [module.name for module in shelf.available(c.module for c in cases)]
  rows, hot, targets = [], [], []
  for case in cases:
    if case.module.name not in names:
      continue
    row, profile = measure(shelf, case)
    rows.append(row)
    targets.append(_target(case, row))
    hot += _hottest(case.module.name, profile)
  return [
    table_lib.Table(
      name=NAME,
      title="The whole search of large steps on one core",
      columns=_COLUMNS,
      rows=rows,
      targets=targets,
      notes=(
        "The parts are of one candidate, each measured alone: reading the"
        " module that XLA handed over, finding collectives, kernels and"
        " overlaps, dividing them into problems, searching the settings, and"
        " one replay of the step.",
        "The whole search is every candidate's, less XLA's compiles;"
        " llama-64-layers compiles once, and that schedule stands for every"
        " candidate's.",
      ),
    ),
    table_lib.Table(
      name=f"{NAME}_hottest",
      title="Where the search of large steps spends its time",
      columns=_HOT_COLUMNS,
      rows=hot,
      notes=(
        f"Of a search that ends after {_PROFILED} candidates, with predictions"
        " for the second, without XLA's compiles.",
      ),
    ),
  ]


def measure(
  shelf: modules_lib.Shelf, case: Case
) -> tuple[dict[str, Any], cProfile.Profile]:
  """Times a search, and profiles one candidate of it."""
  modules_lib.say(f"scheduling {case.module.name}")
  target = shelf.target(case.module)
  clock = Stopwatch(once=case.compiles_once)
  clocked = Clocked(
    name=target.name, cluster=target.cluster, target=target, stopwatch=clock
  )
  serialized = clocked.schedule().proto.SerializeToString()
  modules_lib.say(f"searching {case.module.name}")
  with one_core():
    row = _parts(serialized, clocked)
    clock.reset()
    begin = time.process_time()
    found = joint.search(clocked)
    row["search_s"] = time.process_time() - begin - clock.process_s
    profile = cProfile.Profile()
    profile.runcall(joint.search, clocked, max_compiles=_PROFILED)
  parts_s = sum(float(row[f"{part}_s"]) for part in _PARTS)
  num_candidates = 1 + len(found.others)
  row |= {
    "module": case.module.name,
    "cluster": case.module.cluster,
    "candidates": num_candidates,
    "predicted": found.num_predicted,
    "rest_s": row["search_s"] - num_candidates * parts_s,
    "compile_s": clock.wall_s,
  }
  return row, profile


def _parts(serialized: bytes, target: target_lib.Target) -> dict[str, Any]:
  row: dict[str, Any] = {}

  @contextlib.contextmanager
  def timed(part: str) -> Iterator[None]:
    begin = time.process_time()
    yield
    row[f"{part}_s"] = time.process_time() - begin

  with timed("load"):
    module = load(serialized, target)
  with timed("analyze"):
    analysis = overlap_lib.analyze(module)
    _ = analysis.kernels, analysis.overlaps
  step = step_lib.Step(analysis, target.cluster)
  with timed("problems"):
    problem_lib.problems(step)
  with timed("settings"):
    configuration = settings_lib.search(step).configuration
  with timed("replay"):
    step.timeline(configuration)
  return row | {
    "devices": target.cluster.num_devices,
    "instructions": module.num_instructions,
    "kernels": len(analysis.kernels),
    "collectives": len(analysis.collectives),
    "keys": len(step.keys),
  }


def _target(case: Case, row: table_lib.Row) -> table_lib.Target:
  seconds = float(row["search_s"])
  instructions = int(row["instructions"])
  wanted = f"{case.module.name} searched within {case.most_seconds:g} s"
  if case.fewest_instructions:
    wanted += f", with {case.fewest_instructions:,} instructions or more"
  return table_lib.Target(
    wanted=wanted,
    found=f"{seconds:.2f} s, {instructions:,} instructions",
    is_met=seconds <= case.most_seconds
    and instructions >= case.fewest_instructions,
  )


def _hottest(module: str, profile: cProfile.Profile) -> Iterator[table_lib.Row]:
  """The functions with the most time of their own."""
  entries = sorted(profile.getstats(), key=lambda e: e.inlinetime, reverse=True)
  total_s = sum(entry.inlinetime for entry in entries)
  for entry in entries[:_NUM_HOT]:
    code = entry.code
    name = (
      code
      if isinstance(code, str)
      else (f"{os.path.basename(code.co_filename)}:{code.co_qualname}")
    )
    yield {
      "module": module,
      "function": name,
      "calls": entry.callcount,
      "share": entry.inlinetime / total_s,
    }
