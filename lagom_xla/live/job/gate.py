# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Gate before what must not be done by some processes of a job alone.

Whoever loses touch with the others goes on with what it does. So before all do
something else they make sure that each of them knows what: each one says that
it has come to the gate, and whoever sees that all have opens it. Where one does
not come in time the gate is closed, for all.

A process that has come and then loses touch goes through: the others see that
it has come. So what one process fails in never parts it from the others; it
would take two at once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
import time

from lagom_xla import errors
from lagom_xla.live.job import board as board_lib

_OPEN = b""
# How often the first process looks who has come, in seconds.
_LOOK_S = 0.5
# The others look as well, should it be lost after it came: so often in their
# time, as the answers are long where processes are many.
_NUM_LOOKS = 4

# Processes that have not come -> what is to be read at a closed gate.
Closing = Callable[[Sequence[int]], bytes]


def passed(
  board: board_lib.Board, name: str, closing: Closing, *, timeout_s: float
) -> bytes | None:
  """Waits until all members have come to a gate.

  Args:
    board: Of the members.
    name: Of the gate, used once.
    closing: What all members get if some do not come in time.
    timeout_s: How long to wait for them.

  Returns:
    None if the gate is open, in all members; what is read there if it is
    closed, the same in all of them.

  Raises:
    ProcessesError: The others cannot be reached, and this process has not come.
  """
  deadline = time.monotonic() + timeout_s
  board.post(_here(name, board.process_id), b"")
  try:
    decision = None
    while decision is None:
      left_s = deadline - time.monotonic()
      look_s = _LOOK_S if board_lib.is_first(board) else timeout_s / _NUM_LOOKS
      decision = _look(board, name, closing, left_s, look_s)
  except errors.ProcessesError:
    return None  # It has come, as the others see.
  return None if decision == _OPEN else decision


def close(board: board_lib.Board, name: str, words: bytes) -> None:
  """Closes a gate, if it is not open yet.

  Raises:
    ProcessesError: The others cannot be reached.
  """
  board.post(_decision(name), words)


def _look(
  board: board_lib.Board,
  name: str,
  closing: Closing,
  left_s: float,
  look_s: float,
) -> bytes | None:
  """What is decided, after a short wait; decides, if that can be."""
  wait_s = max(min(left_s, look_s), 0)
  is_first = board_lib.is_first(board)
  found = board.read(_decision(name), timeout_s=0 if is_first else wait_s)
  if found is not None:
    return found
  missing = _missing(board, name)
  if missing and left_s > wait_s:
    if is_first:
      board.read(_here(name, missing[0]), timeout_s=wait_s)
    return None
  return board.post(_decision(name), closing(missing) if missing else _OPEN)


def _missing(board: board_lib.Board, name: str) -> list[int]:
  here = board.entries(f"{name}/here")
  return [it for it in board.members if str(it) not in here]


def _here(name: str, member: int) -> str:
  return f"{name}/here/{member}"


def _decision(name: str) -> str:
  return f"{name}/decision"
