# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Logs of nccl-tests: what its programs print, of any version, in any job.

A log may hold several runs, other output between their lines, and what mpirun
(`[1,0]<stdout>:`), srun (`0: `) and kubectl put before each line; nothing is
expected of where a line starts. A run starts where its program is named, by a
command or by "# Collective test starting" (from 2.17 on), or else at
"# nThread"; its ranks are listed below "# Using devices", with their processes,
and its rows (row.py) follow, whole or broken (broken.py). With NCCL_DEBUG=INFO
NCCL says its version and which variables it read, and with the TUNING subsystem
what it chose for each size.
"""

from __future__ import annotations

import collections
import dataclasses
import pathlib
import re

from lagom_xla.calibrate import broken
from lagom_xla.calibrate import row as row_lib
from lagom_xla.calibrate import run as run_lib
from lagom_xla.costs import in_words
from lagom_xla.validation import whole_files

_PROGRAM = re.compile(
  r"\b(all_?reduce|all_?gather|reduce_?scatter|all_?to_?all|send_?recv"
  r"|broadcast|reduce|gather|scatter|hypercube)_perf",
)
_HEADER = re.compile(r"\bnThreads?:? \d+ +(?:nGpus:? (\d+))?")
_DEVICE = re.compile(
  r"\bRank\s+(\d+)(?:\s+Group\s+\d+)?(?:\s+Pid\s+(\d+))?\s+on\s+(\S+)\s+device"
  r"\s+\d+\s+\[[^\]]*\]\s+(.*?)\s*$"
)
_VERSION = re.compile(r"NCCL version (\d+\.\d+(?:\.\d+)?)")
_LIBRARY = re.compile(r"nccl-library=(\d+)")
_SET = re.compile(
  r"\b(NCCL_[A-Z0-9_]+)(?:=| set by environment to )"
  r"[\"']?([^\s\"']+?)[\"'.]?(?=\s|$|[\"'])"
)
_CHOICE = re.compile(r"(\d+) Bytes -> Algo (\w+) proto (\w+)", re.IGNORECASE)
# NCCL's numbers in its logs (nccl_tuner.h, NCCL_ALGO_* and NCCL_PROTO_*).
_ALGORITHMS = (
  *("tree", "ring", "collnet_direct", "collnet_chain", "nvls", "nvlstree"),
  "pat",
)
_PROTOCOLS = ("ll", "ll128", "simple")
# Colours, and what else terminals are told.
_ESCAPE = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")


@dataclasses.dataclass(frozen=True)
class Problem:
  """Something in a log that cannot be used; `str` is its one line."""

  where: str
  text: str

  def __str__(self) -> str:
    return f"{self.where}: {self.text}"


def read(path: pathlib.Path) -> tuple[list[run_lib.Run], list[Problem]]:
  """The runs in a log, and what is wrong with it.

  A log that cannot be read, or holds no rows, is a problem and no error: others
  may be good.
  """
  try:
    text = whole_files.read_bytes(path).decode("utf-8", errors="replace")
  except OSError as error:
    return [], [Problem(str(path), f"cannot be read: {error.strerror}")]
  reader = _Reader(str(path))
  for number, line in enumerate(text.splitlines(), start=1):
    reader.take(number, _ESCAPE.sub("", line))
  reader.end_run()
  if not reader.runs and not reader.problems:
    problem = Problem(str(path), "has no rows of nccl-tests; give its output")
    reader.problems.append(problem)
  return reader.runs, reader.problems


class _Reader:
  """A log, read line by line."""

  def __init__(self, source: str):
    self.runs: list[run_lib.Run] = []
    self.problems: list[Problem] = []
    self._source = source
    self._named_by_file = _program_of(pathlib.Path(source).stem)
    self._lines = broken.Rows()
    self._program = ""
    self._version: str | None = None
    self._exported: dict[str, str] = {}
    self._next_environment: dict[str, str] = {}
    self._start(1)

  def _start(self, line: int) -> None:
    self._line = line
    self._ranks: dict[int, str] = {}
    self._gpus: set[str] = set()
    self._gpus_per_thread: int | None = None
    self._processes = collections.Counter[tuple[str, str]]()
    self._choices: dict[int, tuple[str, str]] = {}
    self._rows: list[run_lib.Row] = []
    # A command that follows the rows of a run says what the next one reads.
    self._environment = {**self._exported, **self._next_environment}
    self._next_environment = {}

  def end_run(self) -> None:
    """Keeps what was read of a run, if it has rows."""
    if self._rows:
      self.runs.append(
        run_lib.Run(
          source=self._source,
          line=self._line,
          program=self._program or self._named_by_file,
          ranks=self._all_ranks(),
          gpus=frozenset(self._gpus),
          gpus_per_thread=self._gpus_per_thread or self._gpus_per_process(),
          nccl_version=self._version,
          environment=dict(self._environment),
          choices=self._choices,
          rows=tuple(self._rows),
        )
      )

  def _all_ranks(self) -> dict[int, str]:
    """The listed ranks; none where some are missing, as people leave out."""
    return self._ranks if len(self._ranks) > max(self._ranks, default=0) else {}

  def take(self, number: int, line: str) -> None:
    """Reads a line."""
    named = _PROGRAM.search(line)
    header = _HEADER.search(line)
    if self._rows and (named or header):
      self.end_run()
      self._start(number)
    if header and header[1]:
      self._gpus_per_thread = int(header[1])
    if named:
      self._program = _program_of(named[1])
    if found := _VERSION.search(line):
      self._version = found[1]
    elif found := _LIBRARY.search(line):
      self._version = in_words.nccl_version(int(found[1]))
    self._take_environment(line)
    if found := _DEVICE.search(line):
      self._take_device(int(found[1]), *found.groups()[1:])
    elif found := _CHOICE.search(line):
      choice = _name(found[2], _ALGORITHMS), _name(found[3], _PROTOCOLS)
      self._choices[int(found[1])] = choice
    if whole := self._lines.whole(number, line, set(self._ranks.values())):
      self._take_row(*whole)

  def _take_device(
    self, rank: int, process: str | None, host: str, gpu: str
  ) -> None:
    if process and rank not in self._ranks:
      self._processes[host, process] += 1
    self._ranks[rank] = host
    self._gpus.add(gpu)

  def _gpus_per_process(self) -> int | None:
    """The most GPUs of a process, which has one thread unless it says so."""
    return max(self._processes.values(), default=None)

  def _take_environment(self, line: str) -> None:
    found = dict(_SET.findall(line))
    if "export " in line:
      self._exported.update(found)
    (self._next_environment if self._rows else self._environment).update(found)

  def _take_row(self, number: int, line: str) -> None:
    row = row_lib.read(number, line)
    if isinstance(row, str):
      self.problems.append(Problem(f"{self._source}:{number}", row))
    elif row:
      self._rows.append(row)


def _program_of(text: str) -> str:
  """The program that a name stands for, such as "allreduce-2nodes"; or ""."""
  letters = re.sub(r"[^a-z]", "", text.lower())
  for program in (*run_lib.KINDS, "reduce", "gather", "scatter", "hypercube"):
    if program.replace("_", "") in letters:
      return program
  return ""


def _name(text: str, names: tuple[str, ...]) -> str:
  """A name of NCCL's, which older versions log by its number."""
  if text.isdecimal() and int(text) < len(names):
    return names[int(text)]
  return text.lower().replace("nvls_tree", "nvlstree")
