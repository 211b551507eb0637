# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Rows of nccl-tests that messages of NCCL's break.

nccl-tests prints a row in three pieces, before, between and after its two
measurements. With NCCL_DEBUG=INFO what NCCL says meanwhile stands in between,
each message with a line break of its own, and glued to the piece before it:

    1048576   262144   float   sum   -1node-0:7000:7000 [0] NCCL INFO AllReduce
    node-0:7000:7000 [0] NCCL INFO AllReduce: 1048576 Bytes -> Algo RING ...
       83.5   12.56   23.55      0node-0:7000:7000 [0] NCCL INFO AllReduce ...

So the TUNING subsystem, which tells NCCL's choices, breaks every row.
"""

from __future__ import annotations

from collections.abc import Collection
import re

from lagom_xla.calibrate import row as row_lib

# As ncclDebugLog has it: the time where it is told, host, process and thread,
# and where in NCCL a warning comes from.
_MESSAGE = re.compile(
  r"(?:\[\d{4}-[^\]]*\] )?(?P<host>[\w.-]+):\d+:\d+ \[\d+\]"
  r"(?: \S+)* NCCL (?:INFO|WARN|TRACE|ABORT)\b"
)
# A later piece of a row, behind what a job puts before each line.
_PIECE = re.compile(r"\s(-?\d.*|N/A.*)$")


class Rows:
  """Lines of a log, those of a broken row joined."""

  def __init__(self) -> None:
    self._begun = ""
    self._begun_at = 0

  def whole(
    self, number: int, line: str, hosts: Collection[str]
  ) -> tuple[int, str] | None:
    """The line, or all of the row that ends there, with where that starts.

    Args:
      number: of the line in its log, from 1.
      line: as it stands there.
      hosts: those of the run, as it lists them.

    Returns:
      None where the line is a message, or breaks off for one.
    """
    message = _MESSAGE.search(line)
    piece = line[: _start(message, hosts)] if message else line
    if self._begun:
      found = _PIECE.search(piece)
      self._begun += f" {found[1]}" if found else ""
    elif message and row_lib.begins(piece):
      self._begun, self._begun_at = piece, number
    if message:
      return None
    if not self._begun:
      return number, line
    joined, self._begun = self._begun, ""
    return self._begun_at, joined


def _start(message: re.Match[str], hosts: Collection[str]) -> int:
  """Where a message starts; a number before it may seem a part of the host."""
  if message.start() < message.start("host"):
    return message.start()
  found = message["host"]
  for host in sorted(hosts, key=len, reverse=True):
    if found.endswith(host):
      return message.end("host") - len(host)
  number = re.match(r"-?\d+(?=[A-Za-z])", found)
  return message.start() + (number.end() if number else 0)
