# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Composer of a signature's scripts: the first process decides, all follow.

Scripts are numbered and posted on the job's board. Where the first process
fails, or does not come, or another one's candidate raises, the next script is
that the job stays with what it has. A script by which anything else runs than
before has a gate: a process that lost touch goes on as before, so all must do.
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
import contextlib
import dataclasses
import json

import jax

from lagom_xla import dispatch
from lagom_xla import errors
from lagom_xla.live import ending
from lagom_xla.live import first_process
from lagom_xla.live import proposals
from lagom_xla.live import refusal
from lagom_xla.live import script as script_lib
from lagom_xla.live import tracing
from lagom_xla.live import variants as variants_lib
from lagom_xla.live.history import memory as memory_lib
from lagom_xla.live.history import trials
from lagom_xla.live.job import agreement
from lagom_xla.live.job import board as board_lib
from lagom_xla.live.job import farewell
from lagom_xla.live.job import gate
from lagom_xla.live.job import touch
from lagom_xla.live.loop import loop as loop_lib
from lagom_xla.live.loop import surroundings


@dataclasses.dataclass(frozen=True, kw_only=True)
class Patience:
  """How long things may take.

  Attributes:
    limits: Of the loop.
    script_s: Seconds that a process waits for the first one's script, and all
      wait for each other before they run anything else. It comes, and they do,
      as soon as all are as far in the run.
    touch_s: Seconds in which a process that cannot reach the others tries to,
      before it goes on alone. JAX ends one that is not heard for 100 s.
  """

  limits: loop_lib.Limits = dataclasses.field(default_factory=loop_lib.Limits)
  script_s: float = 600.0
  touch_s: float = touch.TOUCH_S


class Composer:
  """Gives a player its scripts.

  Args:
    lowered: The step as jit lowered it.
    proposer: Who compiles proposals.
    memory: Who makes them.
    board: Of the processes that run the step.
    diary: What is noted.
    patience: How long things may take.

  Attributes:
    variants: The executables beside jit's own.
    tracer: Of the first process.
    complaint: What to warn of, the first only; None for nothing.
  """

  def __init__(
    self,
    lowered: jax.stages.Lowered,
    proposer: proposals.Proposer,
    memory: memory_lib.Memory,
    board: board_lib.Board,
    diary: trials.Diary,
    patience: Patience,
  ):
    self.variants = variants_lib.Variants(proposer, lowered, self._vote)
    self.complaint: str | None = None
    self.tracer: tracing.Tracer | None = None
    self._board = board
    self._diary = diary
    self._patience = patience
    self._num_scripts = 0
    self._in_use = 0
    self._is_over = False
    self._decided: script_lib.Script | None = None  # And not yet begun.
    self._failure: str | None = None
    self._first: first_process.FirstProcess | None = None
    if board_lib.is_first(board):
      self.tracer = tracing.Tracer(self._complain)
      self._first = first_process.FirstProcess(
        proposer, memory, board, diary, self.tracer
      )
      diary.loop = loop_lib.Loop(self._first, board.members, patience.limits)
    if len(board.members) > 1:
      farewell.prepare(self)
      ending.call_first(farewell.say)

  def follow(self, played: surroundings.Played) -> script_lib.Script:
    """The script after the one that was played, the same in all processes."""
    if self._decided is None:
      self._decided = self._decide(played)
      self._num_scripts += 1
    # Ctrl-C in what follows has the next call take it.
    script = self._decided
    self._in_use = script.in_use
    if script.state is script_lib.State.STAY:
      self._is_over = True
      self._complain(_stays(self._diary.name, script))
      if self._first is not None:
        self._first.stay(script.in_use)
    self._diary.note_script(script)
    self.variants.keep({script.in_use, script.number})
    if script.proposal is not None:
      self.variants.compile(script.number, script.proposal)
    elif script.number < 0:
      self.variants.compile_for_profile(script.number)
    self._decided = None
    return script

  def close(self) -> None:
    """Nothing more is tried, and no executable kept."""
    self._diary.is_closed = True
    self.variants.keep(())
    if self._first is not None:
      self._first.end_search()

  def fail(self, error: Exception) -> None:
    """A variant raised: next all processes are to run the step as jit does."""
    words = self._fail(f"a variant failed: {dispatch.describe(error)}")
    if not self._is_over:
      with contextlib.suppress(errors.ProcessesError):
        self._refuse(words, 0)
    # Now: no script may ever be asked for again.
    self._diary.note_script(refusal.by(self._board, words, in_use=0))
    if self._first is not None:
      self._first.stay(0)

  def leave(self) -> None:
    """This process ends: none is to wait for it.

    Raises:
      ProcessesError: The others cannot be reached.
    """
    if not self._is_over:
      self._refuse("it has ended.", self._in_use)

  def _fail(self, words: str) -> str:
    """Takes note of the first failure here, and tells it."""
    if self._failure is None:
      self._failure = words
      self._complain(_stays(self._diary.name, script_lib.stay(0, words)))
    return self._failure

  def _decide(self, played: surroundings.Played) -> script_lib.Script:
    try:
      return self._passed(self._next(played))
    except Exception as error:  # The step must run, whatever went wrong.
      return script_lib.stay(self._in_use, dispatch.describe(error))
    except BaseException:  # Ctrl-C: what was decided by then, nobody knows.
      self._fail("tuning was interrupted")
      raise

  def _next(self, played: surroundings.Played) -> script_lib.Script:
    if self._failure is not None:
      return script_lib.from_json(self._refuse(self._failure, 0))
    name = refusal.script_name(self._num_scripts + 1)
    loop = self._diary.loop
    if loop is None:
      first = self._board.members[:1]
      found = board_lib.wait(
        self._board,
        name,
        timeout_s=self._patience.script_s,
        otherwise=self._staying_without(first),
      )
      return self._understood(found)
    try:
      script = loop.next_script(played)
    except Exception as error:
      script = script_lib.stay(self._in_use, dispatch.describe(error))
    return script_lib.from_json(self._board.post(name, script.to_json()))

  def _passed(self, script: script_lib.Script) -> script_lib.Script:
    """A script, or that all stay, if it has a gate that not all came to."""
    runs = {segment.variant for segment in script.segments} | {script.in_use}
    if script.state is script_lib.State.STAY or runs == {self._in_use}:
      return script
    instead = gate.passed(
      self._board,
      refusal.script_name(self._num_scripts + 1),
      self._staying_without,
      timeout_s=self._patience.script_s,
    )
    return script if instead is None else script_lib.from_json(instead)

  def _staying_without(self, missing: Sequence[int]) -> bytes:
    """The script where some processes do not come in time."""
    words = (
      f"{agreement.in_words(missing)} did not come within"
      f" {self._patience.script_s:g} s."
    )
    return script_lib.stay(self._in_use, words).to_json()

  def _understood(self, found: bytes) -> script_lib.Script:
    """Reads a script; the others hear of it where that cannot be done here.

    Raises:
      ProcessesError: It is not a script.
    """
    try:
      return script_lib.from_json(found)
    except errors.ProcessesError as error:
      self._refuse(str(error), self._in_use)
      raise

  def _refuse(self, words: str, in_use: int) -> bytes:
    script = refusal.by(self._board, words, in_use=in_use)
    return refusal.post(self._board, self._num_scripts + 1, script)

  def _vote(self, number: int, vote: surroundings.Vote) -> None:
    digest = None
    if vote.digest is not None:
      digest = base64.b64encode(vote.digest).decode()
    value = json.dumps({"digest": digest, "words": vote.words}).encode()
    try:
      self._board.post(f"votes/{number}/{self._board.process_id}", value)
    except errors.ProcessesError:
      pass  # The store is gone, and with it the job.

  def _complain(self, words: str) -> None:
    self.complaint = self.complaint or words


def _stays(name: str, script: script_lib.Script) -> str:
  if script.in_use:
    return f"goes on with what {name} has adopted: {script.words}"
  return f"leaves {name} as it was: {script.words}"
