# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Refusal of a process: the script that has all of them stay as they are."""

from __future__ import annotations

from lagom_xla import errors
from lagom_xla.live import script as script_lib
from lagom_xla.live.job import agreement
from lagom_xla.live.job import board as board_lib
from lagom_xla.live.job import gate


def script_name(number: int) -> str:
  """What a script is called on a board; they are numbered from 1."""
  return f"scripts/{number}"


def by(board: board_lib.Board, words: str, *, in_use: int) -> script_lib.Script:
  """The script by which this process refuses.

  Args:
    board: Of the processes.
    words: Why.
    in_use: What all are to stay with.
  """
  process = agreement.in_words([board.process_id])
  return script_lib.stay(in_use, f"{process}: {words}")


def post(
  board: board_lib.Board, number: int, refusal: script_lib.Script
) -> bytes:
  """Has all processes stay as they are as soon as that can be.

  Args:
    board: Of the processes.
    number: Of the script that this process is to play next.
    refusal: What all are to play in its place.

  Returns:
    What stands for that script: this one, or what was there before, and then
    this one comes as soon as it can.

  Raises:
    ProcessesError: The others cannot be reached.
  """
  text = refusal.to_json()
  standing: list[bytes] = []
  while not standing or not _ends_tuning(standing[-1]):
    name = script_name(number + len(standing))
    gate.close(board, name, text)
    standing.append(board.post(name, text))
  return standing[0]


def _ends_tuning(text: bytes) -> bool:
  try:
    return script_lib.from_json(text).state is script_lib.State.STAY
  except errors.ProcessesError:
    return False
