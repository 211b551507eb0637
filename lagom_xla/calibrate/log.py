# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Logs of nccl-tests: what its programs print, of any version, in any job.

A log may hold several runs, other output between their lines, and what mpirun
(`[1,0]<stdout>:`), srun (`0: `) and kubectl put before each line; nothing is
expected of where a line starts. A row is a line that ends in

    size count type [redop] [root]  time algbw busbw error  [the same in place]

Versions differ in redop, root and in what the fourth column counts; any column
may be "N/A". A run starts where its program is named, by a command or by
"# Collective test starting" (from 2.17 on), or else at "# nThread"; its ranks
are listed below "# Using devices", with
their processes. With NCCL_DEBUG=INFO NCCL says its version
and which variables it read, and with the TUNING subsystem what it chose for
each size.
"""

from __future__ import annotations

import collections
import dataclasses
import pathlib
import re

from lagom_xla.calibrate import run as run_lib
from lagom_xla.validation import source

_TYPES = (
  "u?int(?:8|32|64)|char|int|half|float|double|bfloat16|b?float(?:16|32|64)"
  "|(?:f8|fp8_?|float8_?)e[45]m[23]\\w*"
)
_ROW = re.compile(rf"(?:^|[\s:>|])(\d+)\s+(\d+)\s+(?:{_TYPES})\s+(\S.*?)\s*$")
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
# What mpirun puts before each write, and so into the middle of rows, too.
_TAG = re.compile(r"\[\d+(?:,\d+)?\](?:<std(?:out|err)>)?:?(?=\s|\d)")
# Of what a row says of its bandwidth; times have at most 2 decimals, too.
_ROUNDING = 0.006
_TOLERANCE = 0.02


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
    text = source.read_bytes(path).decode("utf-8", errors="replace")
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
          ranks=self._ranks,
          gpus=frozenset(self._gpus),
          gpus_per_thread=self._gpus_per_thread or self._gpus_per_process(),
          nccl_version=self._version,
          environment=dict(self._environment),
          choices=self._choices,
          rows=tuple(self._rows),
        )
      )

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
      self._version = _dotted(int(found[1]))
    self._take_environment(line)
    if found := _DEVICE.search(line):
      self._take_device(int(found[1]), *found.groups()[1:])
    elif found := _CHOICE.search(line):
      choice = _name(found[2], _ALGORITHMS), _name(found[3], _PROTOCOLS)
      self._choices[int(found[1])] = choice
    elif found := _ROW.search(_TAG.sub(" ", line)):
      self._take_row(number, int(found[1]), found[3].split())

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

  def _take_row(self, number: int, num_bytes: int, rest: list[str]) -> None:
    if rest[0].isalpha():
      rest = rest[1:]  # redop
    if len(rest) in (5, 9):
      rest = rest[1:]  # root
    if len(rest) == 8 and rest[0] == "N/A":
      rest = rest[4:]  # Only in place.
    where = f"{self._source}:{number}"
    if len(rest) not in (3, 4, 8) or not all(map(_is_number, rest[:3])):
      text = "is cut off; a row ends in time, algbw, busbw and errors"
      self.problems.append(Problem(where, text))
      return
    if not num_bytes:
      return
    time_us, algorithm_gbps, bus_gbps = map(float, rest[:3])
    if not time_us > 0 or not _agree(num_bytes, time_us, algorithm_gbps):
      self.problems.append(
        Problem(
          where,
          f"says {num_bytes} B in {rest[0]} us at {rest[1]} GB/s, which"
          " contradict each other; the line is damaged",
        )
      )
      return
    self._rows.append(
      run_lib.Row(
        line=number,
        num_bytes=num_bytes,
        time_us=time_us,
        gbps=algorithm_gbps,
        bus_gbps=bus_gbps,
        num_wrong=_num_wrong(rest[3:4]),
      )
    )


def _program_of(text: str) -> str:
  """The program that a name stands for, such as "allreduce-2nodes"; or ""."""
  letters = re.sub(r"[^a-z]", "", text.lower())
  for program in (*run_lib.KINDS, "reduce", "gather", "scatter", "hypercube"):
    if program.replace("_", "") in letters:
      return program
  return ""


def _agree(num_bytes: int, time_us: float, gbps: float) -> bool:
  implied_gbps = num_bytes / (1e3 * time_us)
  return abs(implied_gbps - gbps) <= _ROUNDING + _TOLERANCE * gbps


def _num_wrong(column: list[str]) -> int:
  """Wrong results. Before 2.13 the column is the largest error instead."""
  return int(column[0]) if column and column[0].isdecimal() else 0


def _is_number(text: str) -> bool:
  return re.fullmatch(r"-?[0-9.]+(?:e[+-]?[0-9]+)?", text) is not None


def _name(text: str, names: tuple[str, ...]) -> str:
  """A name of NCCL's, which older versions log by its number."""
  if text.isdecimal() and int(text) < len(names):
    return names[int(text)]
  return text.lower().replace("nvls_tree", "nvlstree")


def _dotted(code: int) -> str:
  """NCCL_VERSION_CODE as a version: 22907 is 2.29.7."""
  return f"{code // 10000}.{code // 100 % 100}.{code % 100}"
