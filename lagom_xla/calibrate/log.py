# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Logs of nccl-tests: the output of its programs, any version, any launcher.

A log may have several runs, other output between their lines, and prefixes of
mpirun (`[1,0]<stdout>:`), srun (`0: `) and kubectl. A run starts at the line
that names its program, a command or "# Collective test starting" (from 2.17
on), or else at "# nThread". Its ranks are listed below "# Using devices", and
its rows follow. With NCCL_DEBUG=INFO, NCCL prints its version and the variables
that it reads, and with the TUNING subsystem its choice for each size. A row is
a line that ends in

    size count type [redop] [root]  time algbw busbw error  [the same in place]

Versions differ in redop, root and the meaning of the fourth column; any column
may be "N/A". Since 2.18, options add times of single iterations, four columns
to each four, and the date and time.

nccl-tests prints a row in three pieces: before, between and after its two
measurements. NCCL's messages interrupt it, each with a line break and right
after the previous piece, so the TUNING subsystem breaks every row:

    1048576   262144   float   sum   -1node-0:7000:7000 [0] NCCL INFO AllReduce
       83.5   12.56   23.55      0node-0:7000:7000 [0] NCCL INFO AllReduce ...
"""

from __future__ import annotations

import collections
from collections.abc import Collection, Mapping, Sequence
import dataclasses
import math
import pathlib
import re

from lagom_xla.costs import in_words
from lagom_xla.validation import whole_files

# Programs of nccl-tests -> XLA's collectives. XLA has none for the others
# (reduce, gather, scatter, hypercube).
KINDS = {
  "all_reduce": "all-reduce",
  "all_gather": "all-gather",
  "reduce_scatter": "reduce-scatter",
  "alltoall": "all-to-all",
  "sendrecv": "collective-permute",
  "broadcast": "collective-broadcast",
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Row:
  """One measured size.

  Attributes:
    line: its line in the log, from 1.
    num_bytes: bytes of the whole buffer, as nccl-tests counts them.
    time_us: time out of place, or in place if only that ran.
    gbps: bytes over time ("algbw"), in 1e9 bytes per second.
    bus_gbps: bus bandwidth ("busbw"), in 1e9 bytes per second.
    num_wrong: number of wrong results.
    element_type: nccl-tests' name of the type.
    reduction: reduction operation, such as "sum", or "none"; "" if unknown.
    root: the root's rank, -1 for none; None if unknown.
    checked: whether results were checked, out of place and in place.
  """

  line: int
  num_bytes: int
  time_us: float
  gbps: float
  bus_gbps: float
  num_wrong: int
  element_type: str
  reduction: str
  root: int | None
  checked: tuple[bool, bool]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Run:
  """One execution of one program.

  Attributes:
    source: path of its log, as given.
    line: its first line, from 1.
    program: name without "_perf", such as "all_reduce"; if the log has none,
      the program that prints such columns, or "" if several do.
    ranks: rank -> host, if the log lists them.
    gpus: CUDA's names of its GPUs.
    gpus_per_thread: GPUs per launching thread, if known.
    num_grouped: collectives per launch ("agg iters", -m).
    nccl_version: version such as "2.27.5", if known.
    environment: NCCL's variables in the log, with their values.
    choices: bytes -> NCCL's algorithm and protocol, if logged.
    rows: its rows, in order.
  """

  source: str
  line: int
  program: str
  ranks: Mapping[int, str]
  gpus: frozenset[str]
  gpus_per_thread: int | None
  num_grouped: int
  nccl_version: str | None
  environment: Mapping[str, str]
  choices: Mapping[int, tuple[str, str]]
  rows: tuple[Row, ...]

  @property
  def where(self) -> str:
    """Its log and line, as the start of a message."""
    return f"{self.source}:{self.line}"


def bus_share(program: str, num_ranks: int) -> float:
  """Bus bandwidth over bytes per time (nccl-tests, doc/PERFORMANCE.md)."""
  if program in ("sendrecv", "broadcast", "reduce"):
    return 1.0
  share = (num_ranks - 1) / num_ranks
  return 2 * share if program == "all_reduce" else share


_TYPES = (
  "u?int(?:8|32|64)|char|int|half|float|double|bfloat16|b?float(?:16|32|64)"
  "|(?:f8|fp8_?|float8_?)e[45]m[23]\\w*"
)
_BEGIN = rf"(?:^|[\s:>|])(\d+)\s+\d+\s+({_TYPES})\s+"
_ROW = re.compile(rf"{_BEGIN}(\S.*?)\s*$")
# mpirun's prefix of each write, which may be in the middle of a row.
_TAG = re.compile(r"\[\d+(?:,\d+)?\](?:<std(?:out|err)>)?:?(?=\s|\d)")
# Numbers of columns without root: out of place, in place as well, with
# iterations, and dated.
_LEAST_COLUMNS = 3
_NUM_COLUMNS = (_LEAST_COLUMNS, 4, 8, 8 + 2, 16, 16 + 2)
# Rounding of bandwidths and times, which have at most 2 decimals.
_ROUNDING = 0.006
_ROW_TOLERANCE = 0.02
# Tolerance of a bus bandwidth's share that should be 1; for 64 GPUs it is 0.98.
_WHOLE_SHARE = 0.005


def _parse_row(number: int, line: str) -> Row | str | None:
  """Parses line `number` of a log, counted from 1.

  Returns:
    The row, or its problem in words; None if there is no row, or one of no
    bytes.
  """
  match = _ROW.search(_TAG.sub(" ", line))
  if match is None:
    return None
  num_bytes, cells = int(match[1]), match[3].split()
  reduction, root = "", None
  if cells[0].isalpha():
    reduction, *cells = cells
  if len(cells) > _LEAST_COLUMNS and len(cells) % 2:
    first, *cells = cells
    root = int(first) if re.fullmatch(r"-?\d+", first) else None
  if len(cells) == 8 and cells[0] == "N/A":
    cells = cells[4:]  # Only in place.
  if len(cells) not in _NUM_COLUMNS or not all(map(_is_number, cells[:3])):
    return "is cut off: a row ends in time, algbw, busbw and errors"
  if not num_bytes:
    return None
  time_us, algorithm_gbps, bus_gbps = map(float, cells[:3])
  off_gbps = abs(num_bytes / (1e3 * time_us) - algorithm_gbps) if time_us else 0
  most_off_gbps = _ROUNDING + _ROW_TOLERANCE * algorithm_gbps
  if not time_us > 0 or off_gbps > most_off_gbps:
    return f"is damaged: {num_bytes} B in {cells[0]} us is not {cells[1]} GB/s"
  return Row(
    line=number,
    num_bytes=num_bytes,
    time_us=time_us,
    gbps=algorithm_gbps,
    bus_gbps=bus_gbps,
    num_wrong=_num_wrong(cells[3:4]),
    element_type=match[2],
    reduction=reduction,
    root=root,
    checked=(_is_number("".join(cells[3:4])), _is_number("".join(cells[7:8]))),
  )


def _num_wrong(column: list[str]) -> int:
  """Wrong results. Before 2.13 the column has the largest error instead."""
  return int(float(column[0])) if column and _is_number(column[0]) else 0


def _is_number(text: str) -> bool:
  try:
    return math.isfinite(float(text))
  except ValueError:
    return False


# The format of ncclDebugLog: an optional time, host, process and thread, and
# the location of a warning.
_MESSAGE = re.compile(
  r"(?:\[\d{4}-[^\]]*\] )?(?P<host>[\w.-]+):\d+:\d+ \[\d+\]"
  r"(?: \S+)* NCCL (?:INFO|WARN|TRACE|ABORT)\b"
)
# A later piece of a row, after a launcher's prefix.
_PIECE = re.compile(r"\s(-?\d.*|N/A.*)$")


class _Rows:
  """Joins the broken rows of a log."""

  def __init__(self) -> None:
    self._begun = ""
    self._begun_at = 0

  def whole(
    self, number: int, line: str, hosts: Collection[str]
  ) -> tuple[int, str] | None:
    """The line, or the row that ends in it, with the number of its first line.

    None if the line is a message, or is broken by one. `hosts` are the run's
    hosts in the log.
    """
    message = _MESSAGE.search(line)
    piece = line[: _start(message, hosts)] if message else line
    if self._begun:
      found = _PIECE.search(piece)
      self._begun += f" {found[1]}" if found else ""
    elif message and re.search(_BEGIN, piece):
      self._begun, self._begun_at = piece, number
    if message:
      return None
    if not self._begun:
      return number, line
    joined, self._begun = self._begun, ""
    return self._begun_at, joined


def _start(message: re.Match[str], hosts: Collection[str]) -> int:
  """Start of a message; a number just before it can look like its host."""
  if message.start() < message.start("host"):
    return message.start()
  found = message["host"]
  for host in sorted(hosts, key=len, reverse=True):
    if found.endswith(host):
      return message.end("host") - len(host)
  number = re.match(r"-?\d+(?=[A-Za-z])", found)
  return message.start() + (number.end() if number else 0)


_PROGRAM = re.compile(
  r"\b(all_?reduce|all_?gather|reduce_?scatter|all_?to_?all|send_?recv"
  r"|broadcast|reduce|gather|scatter|hypercube)_perf",
)
_HEADER = re.compile(
  r"\bnThreads?:? \d+ +(?:nGpus:? (\d+))?(?:.* agg iters: (\d+))?"
)
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
# Colors and other terminal codes.
_ESCAPE = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")


def read(path: pathlib.Path) -> tuple[list[Run], list[str]]:
  """The runs in a log, and its problems, a line each.

  An unreadable log, or one without rows, is a problem and not an error, because
  other logs may be good.
  """
  try:
    data = whole_files.unpacked(whole_files.read_bytes(path))
  except OSError as error:
    return [], [f"{path}: cannot be read: {error.strerror}"]
  except whole_files.DamagedError as error:
    return [], [f"{path}: {error}"]
  text = whole_files.unmarked(data).decode("utf-8", errors="replace")
  reader = _Reader(str(path))
  for number, line in enumerate(text.splitlines(), start=1):
    reader.take(number, _ESCAPE.sub("", line))
  reader.end_run()
  if not reader.runs and not reader.problems:
    return [], [f"{path}: has no rows of nccl-tests; pass its output"]
  return reader.runs, reader.problems


class _Reader:
  """Reads a log line by line."""

  def __init__(self, source: str):
    self.runs: list[Run] = []
    self.problems: list[str] = []
    self._source = source
    self._named_by_file = _program_of(pathlib.Path(source).stem)
    self._lines = _Rows()
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
    self._num_grouped = 1
    self._processes = collections.Counter[tuple[str, str]]()
    self._choices: dict[int, tuple[str, str]] = {}
    self._rows: list[Row] = []
    # A command after the rows of a run sets variables of the next one.
    self._environment = {**self._exported, **self._next_environment}
    self._next_environment = {}

  def end_run(self) -> None:
    """Keeps the current run, if it has rows."""
    if self._rows:
      self.runs.append(
        Run(
          source=self._source,
          line=self._line,
          program=self._program
          or self._named_by_file
          or _program_by_columns(self._rows),
          # Empty if some are missing, as in shortened logs.
          ranks=self._ranks
          if len(self._ranks) > max(self._ranks, default=0)
          else {},
          gpus=frozenset(self._gpus),
          # A process has one thread unless the log says otherwise.
          gpus_per_thread=self._gpus_per_thread
          or max(self._processes.values(), default=None),
          num_grouped=self._num_grouped,
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
    if header and header[2]:
      self._num_grouped = int(header[2])
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

  def _take_environment(self, line: str) -> None:
    found = dict(_SET.findall(line))
    if "export " in line:
      self._exported.update(found)
    (self._next_environment if self._rows else self._environment).update(found)

  def _take_row(self, number: int, line: str) -> None:
    row = _parse_row(number, line)
    if isinstance(row, str):
      self.problems.append(f"{self._source}:{number}: {row}")
    elif row:
      self._rows.append(row)


def _program_of(text: str) -> str:
  """The program in a name such as "allreduce-2nodes", or ""."""
  letters = re.sub(r"[^a-z]", "", text.lower())
  for program in (*KINDS, "reduce", "gather", "scatter", "hypercube"):
    if program.replace("_", "") in letters:
      return program
  return ""


def _program_by_columns(rows: Sequence[Row]) -> str:
  """The program that prints such rows; "" if several do.

  Only reducing programs print a reduction, and only rooted ones a root. Bus
  bandwidth is a share of bytes over time (`bus_share`). All-to-alls cannot run
  in place, and check no results there (alltoall.cu of nccl-tests).
  """
  first, precise = rows[0], max(rows, key=lambda row: row.gbps)
  if first.root is None or not precise.gbps:
    return ""
  share = precise.bus_gbps / precise.gbps
  has_whole_share = abs(share - 1) < _WHOLE_SHARE
  if first.root >= 0:
    if not has_whole_share:
      return ""
    return "broadcast" if first.reduction == "none" else "reduce"
  if first.reduction != "none":
    return "all_reduce" if share > 1 - _WHOLE_SHARE else "reduce_scatter"
  if has_whole_share:
    return "sendrecv"
  return {(True, True): "all_gather", (True, False): "alltoall"}.get(
    first.checked, ""
  )


def _name(text: str, names: tuple[str, ...]) -> str:
  """NCCL's name of an algorithm or protocol; older versions log numbers."""
  if text.isdecimal() and int(text) < len(names):
    return names[int(text)]
  return text.lower().replace("nvls_tree", "nvlstree")
