# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Compares our search with a plain one at equal seconds, and stages' gains.

    python -m benchmarks.search.race [--data FOLDER] [--only=STEP,...]
        [--limit=SECONDS] [--in-process] [--searchers=plain,ours] [--offers]

Prints a row of CSV for each improvement of a search and for the end of each of
its stages: processor seconds of all its processes since it began, and the
predicted time of the plan so far, in ms under NCCL's own choices. Each search
has two workers and no cache of compiles. The stages of ours are in order: arms
and values of options, which a launcher can set, and with --in-process, changes
that act only in the training process.

With --offers, prints a row for each of our candidates, under NCCL's own choices
and under searched settings, with its outcome, and for each knob without a value
for the step. --limit is then in wall-clock seconds.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
import csv
import dataclasses
import functools
import os
import pathlib
import sys

from benchmarks import table as table_lib
from benchmarks.search import steps
from benchmarks.searchers import plain
from benchmarks.workloads import cases as cases_lib
from lagom_xla.compile import config as config_lib
from lagom_xla.compile import pool
from lagom_xla.compile import target as target_lib
from lagom_xla.search.nccl import channel_cap
from lagom_xla.search.xla import arms as arms_lib
from lagom_xla.search.xla import candidates as candidates_lib
from lagom_xla.search.xla import joint
from lagom_xla.search.xla import knobs

_COLUMNS = (
  "module",
  "cluster",
  "searcher",
  "stage",
  "seconds",
  "kept_ms",
  "candidates",
  "end",
)


class _OverLimitError(Exception):
  pass


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Found:
  """The state of a search after a candidate.

  Attributes:
    stage: the stage of the candidate.
    seconds: seconds since the search began.
    kept_ms: step time with the plan so far.
    candidates: the number of candidates so far.
  """

  stage: str
  seconds: float
  kept_ms: float
  candidates: int


class _Progress:
  """Records the results of one search over time."""

  def __init__(self, target: target_lib.Target, limit_s: float):
    self.all: list[_Found] = []
    self._arms = [arm.config for arm in arms_lib.known(target.cluster).arms]
    self._limit_s = limit_s
    self._so_far = candidates_lib.SoFar()
    self._begin_s = processor_s()

  def add(
    self, candidate: candidates_lib.Candidate | candidates_lib.Refused
  ) -> None:
    """Adds a candidate.

    Raises:
      _OverLimitError: the time limit is reached.
    """
    self._so_far.add(candidate)
    search = self._so_far.search
    assert search is not None
    found = _Found(
      stage=_stage(candidate.config, self._arms),
      seconds=processor_s() - self._begin_s,
      kept_ms=candidates_lib.tuned_us(search.best) / 1e3,
      candidates=1 + len(search.others),
    )
    self.all.append(found)
    if found.seconds > self._limit_s:
      raise _OverLimitError

  def told(self) -> Iterator[_Found]:
    """The improvements, and the last candidate of each stage."""
    for before, found, after in zip(
      [None, *self.all], self.all, [*self.all[1:], None], strict=False
    ):
      is_better = before is None or found.kept_ms < before.kept_ms
      if is_better or after is None or after.stage != found.stage:
        yield found


def _stage(
  config: config_lib.XlaConfig, arms: Sequence[config_lib.XlaConfig]
) -> str:
  if config.orders:
    return "orders"
  if config.scheduler_profile:
    return "scheduler profile"
  if config.combine_groups is not None:
    return "combine groups"
  if config.program.slices:
    return "slices"
  if not config.program.is_as_written:
    return "strands"
  if config.is_default:
    return "default"
  return "arms" if config in arms else "options"


_OFFERS = ("module", "cluster", "what", "nccl_ms", "tuned_ms", "verdict")


def offers(
  case: cases_lib.Case, target: target_lib.Target, seconds: float
) -> Iterator[tuple[str, ...]]:
  """Rows of a search's candidates for a step, and of knobs without any."""
  search = joint.search(target, seconds=seconds)
  where = (case.module, case.cluster)
  names = {str(arm.config.options): arm.name for arm in search.arms}
  for found in (search.default, *search.others):
    options = found.config.options
    told = " ".join(f"{name}={value}" for name, value in options.items())
    what = names.get(str(options), told or "default")
    if isinstance(found, candidates_lib.Refused):
      yield (*where, what, "", "", found.reason)
      continue
    times_us = found.under_nccl_defaults.step_time_us, found.tuned.step_time_us
    times = (f"{us / 1e3:.3f}" for us in times_us)
    yield (*where, what, *times, search.obstacle(found) or "kept")
  for name, knob in knobs.KNOBS.items():
    if not knobs.offered(knob.values(search.default.step)):
      yield (*where, name, "", "", "not offered")


def main() -> None:
  """Runs the command."""
  table_lib.compile_ahead_of_time()
  parser = argparse.ArgumentParser(description=__doc__)
  parser.add_argument("--data", type=pathlib.Path)
  parser.add_argument("--only", default="")
  parser.add_argument("--limit", type=float, default=600.0)
  parser.add_argument("--in-process", action="store_true")
  parser.add_argument("--searchers", default="plain,ours")
  parser.add_argument("--offers", action="store_true")
  arguments = parser.parse_args()
  searches = {
    "plain": plain.search,
    "ours": functools.partial(
      joint.search, seconds=float("inf"), in_process=arguments.in_process
    ),
  }
  out = csv.writer(sys.stdout)
  out.writerow(_OFFERS if arguments.offers else _COLUMNS)
  for case in steps.chosen(arguments.data, arguments.only):
    if arguments.offers:
      with pool.Pool(1) as workers:
        target = case.load(arguments.data).with_workers(workers)
        out.writerows(offers(case, target, arguments.limit))
      sys.stdout.flush()
      continue
    for name in arguments.searchers.split(","):
      with pool.Pool(2, cache=None) as workers:
        target = case.load(arguments.data).with_workers(workers)
        progress = _Progress(target, arguments.limit)
        end = "done"
        try:
          searches[name](
            target,
            without_plugin=channel_cap.WithoutPlugin(limit=None),
            found=progress.add,
          )
        except _OverLimitError:
          end = "limit"
      for found in progress.told():
        out.writerow(
          (
            case.module,
            case.cluster,
            name,
            found.stage,
            f"{found.seconds:.1f}",
            f"{found.kept_ms:.3f}",
            found.candidates,
            end if found is progress.all[-1] else "",
          )
        )
      sys.stdout.flush()


def processor_s() -> float:
  """Processor seconds of this process and of all its descendants."""
  tick = os.sysconf("SC_CLK_TCK")
  parent: dict[int, int] = {}
  used_s: dict[int, float] = {}
  for folder in pathlib.Path("/proc").iterdir():
    if folder.name.isdigit():
      try:
        fields = (folder / "stat").read_text().rpartition(")")[2].split()
      except OSError:  # It has ended.
        continue
      parent[int(folder.name)] = int(fields[1])
      used_s[int(folder.name)] = sum(map(int, fields[11:15])) / tick
  return sum(s for pid, s in used_s.items() if _is_ours(pid, parent))


def _is_ours(pid: int, parent: dict[int, int]) -> bool:
  while pid and pid != os.getpid():
    pid = parent.get(pid, 0)
  return bool(pid)


if __name__ == "__main__":
  main()
