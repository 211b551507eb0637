# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Profile of a step: a few calls are traced, where needed in their own build.

What is traced is always the step as jit lowered it, also where a proposal is in
use: its times are what proposals are compared with. On GPUs XLA replays kernels
in graphs, in which a profiler cannot tell them apart. A build without graphs is
compiled beside the run first, by all processes or for none. While the trace is
ended and written, beside training, the step goes on that is in use.
"""

from __future__ import annotations

from collections.abc import Collection
import dataclasses

from lagom_xla.live import script as script_lib
from lagom_xla.live.loop import ballot as ballot_lib
from lagom_xla.live.loop import blocks
from lagom_xla.live.loop import surroundings

NUM_TRACED = 3
# Calls of a build of its own before the trace: it makes communicators, too.
_NUM_FIRST = 2
_NAME = "the build for the profile"


@dataclasses.dataclass(kw_only=True)
class Profile:
  """One profile of a step.

  Attributes:
    number: Of the variant that is built for it; negative.
    in_use: The variant that runs meanwhile.
    step_s: What a step takes, in seconds.
    compile_s: Until when all processes must have compiled the build.
    trace_s: Seconds in which a trace must be ended and written.
    members: The processes.
  """

  number: int
  in_use: int
  step_s: float
  compile_s: float
  trace_s: float
  members: Collection[int]
  _ballot: ballot_lib.Ballot | None = None
  _is_traced: bool = False
  _given_up_s: float | None = None

  def begin(
    self, around: surroundings.Surroundings, words: str
  ) -> script_lib.Script:
    """The first script, for a reason in words."""
    if not around.has_profile_build:
      return self._traced(0, words)
    self._ballot = ballot_lib.opened(
      around,
      number=self.number,
      name=_NAME,
      members=self.members,
      limit_s=self.compile_s,
    )
    return self._waiting(self.number, words)

  def next(self, around: surroundings.Surroundings) -> script_lib.Script | None:
    """The next script; None once the trace is written, or should have been."""
    if self._is_traced:
      return self._ending(around)
    assert self._ballot is not None
    result = self._ballot.result(around)
    if result is None:
      return self._waiting(self.number)
    if result.objection is None:
      return self._traced(self.number)
    return self._traced(0, f"of the step as jit runs it: {result.objection}")

  def _ending(
    self, around: surroundings.Surroundings
  ) -> script_lib.Script | None:
    if self._given_up_s is None:
      self._given_up_s = around.now_s() + self.trace_s
    if around.is_trace_ending and around.now_s() < self._given_up_s:
      return self._waiting(0)  # What was built for the trace is let go of.
    return None

  def _waiting(self, number: int, words: str = "") -> script_lib.Script:
    chunk = blocks.chunk(self.in_use, self.step_s)
    return self._script(number, (chunk,), words)

  def _traced(self, variant: int, words: str = "") -> script_lib.Script:
    self._is_traced = True
    traced = script_lib.Segment(
      variant=variant, num_calls=NUM_TRACED, is_timed=True, is_traced=True
    )
    if variant == self.in_use:
      return self._script(variant, (traced,), words)
    first = script_lib.Segment(
      variant=variant, num_calls=_NUM_FIRST, is_timed=True
    )
    return self._script(variant, (first, traced), words)

  def _script(
    self,
    number: int,
    segments: tuple[script_lib.Segment, ...],
    words: str,
  ) -> script_lib.Script:
    return script_lib.Script(
      state=script_lib.State.PROFILE,
      segments=segments,
      in_use=self.in_use,
      number=number,
      words=words,
    )
