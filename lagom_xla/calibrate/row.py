# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""A row of nccl-tests: what it says of one size, if it agrees with itself.

It is a line that ends in

    size count type [redop] [root]  time algbw busbw error  [the same in place]

Versions differ in redop, root and in what the fourth column counts; any column
may be "N/A". Since 2.18 options add what single iterations take, four columns
to each four, and the date and time.
"""

from __future__ import annotations

import re

from lagom_xla.calibrate import run as run_lib

_TYPES = (
  "u?int(?:8|32|64)|char|int|half|float|double|bfloat16|b?float(?:16|32|64)"
  "|(?:f8|fp8_?|float8_?)e[45]m[23]\\w*"
)
_BEGIN = rf"(?:^|[\s:>|])(\d+)\s+\d+\s+(?:{_TYPES})\s+"
_ROW = re.compile(rf"{_BEGIN}(\S.*?)\s*$")
# What mpirun puts before each write, and so into the middle of rows, too.
_TAG = re.compile(r"\[\d+(?:,\d+)?\](?:<std(?:out|err)>)?:?(?=\s|\d)")
# Of results, without root: out of place, in place too, with iterations, dated.
_LEAST_COLUMNS = 3
_NUM_COLUMNS = (_LEAST_COLUMNS, 4, 8, 8 + 2, 16, 16 + 2)
# Of what a row says of its bandwidth; times have at most 2 decimals, too.
_ROUNDING = 0.006
_TOLERANCE = 0.02


def begins(line: str) -> bool:
  """Whether a line starts a row, of which no more than that may be there."""
  return re.search(_BEGIN, line) is not None


def read(number: int, line: str) -> run_lib.Row | str | None:
  """The row in a line.

  Args:
    number: of the line in its log, from 1.
    line: as it stands there.

  Returns:
    The row; or, in words, what is wrong with it; None if there is no row, or
    one of no bytes.
  """
  found = _ROW.search(_TAG.sub(" ", line))
  if found is None:
    return None
  num_bytes, rest = int(found[1]), found[2].split()
  if rest[0].isalpha():
    rest = rest[1:]  # redop
  if len(rest) > _LEAST_COLUMNS and len(rest) % 2:
    rest = rest[1:]  # root
  if len(rest) == 8 and rest[0] == "N/A":
    rest = rest[4:]  # Only in place.
  if len(rest) not in _NUM_COLUMNS or not all(map(_is_number, rest[:3])):
    return "is cut off; a row ends in time, algbw, busbw and errors"
  if not num_bytes:
    return None
  time_us, algorithm_gbps, bus_gbps = map(float, rest[:3])
  if not time_us > 0 or not _agree(num_bytes, time_us, algorithm_gbps):
    return (
      f"says {num_bytes} B in {rest[0]} us at {rest[1]} GB/s, which contradict"
      " each other; the line is damaged"
    )
  return run_lib.Row(
    line=number,
    num_bytes=num_bytes,
    time_us=time_us,
    gbps=algorithm_gbps,
    bus_gbps=bus_gbps,
    num_wrong=_num_wrong(rest[3:4]),
  )


def _agree(num_bytes: int, time_us: float, gbps: float) -> bool:
  implied_gbps = num_bytes / (1e3 * time_us)
  return abs(implied_gbps - gbps) <= _ROUNDING + _TOLERANCE * gbps


def _num_wrong(column: list[str]) -> int:
  """Wrong results. Before 2.13 the column is the largest error instead."""
  return int(float(column[0])) if column and _is_number(column[0]) else 0


def _is_number(text: str) -> bool:
  return re.fullmatch(r"-?[0-9.]+(?:e[+-]?[0-9]+)?", text) is not None
