# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""A job with its own clock, for decisions of the live loop.

Its variants take given times, with noise. A test controls its proposer and its
processes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
import dataclasses
import math
import random

from lagom_xla import errors
from lagom_xla.live import loop
from lagom_xla.live import phases
from lagom_xla.live import proposals

MEMBERS = range(3)
COMPILED = phases.Vote(digest="alike")

# The processes' votes on a proposal, this many seconds after it came.
Voted = Callable[[float], Mapping[int, phases.Vote]]


def all_vote(waited_s: float) -> Mapping[int, phases.Vote]:
  return dict.fromkeys(MEMBERS, COMPILED) if waited_s > 3 else {}


def finds(waited_s: float) -> bool:
  return waited_s > 5


@dataclasses.dataclass
class Job:
  """A simulated job.

  Attributes:
    step_s: Step times of variant 0 and of the proposals' variants.
    noise: Standard deviation of a step's time, relative to it.
    voted: The processes' votes on their compiles.
    finds: Whether the next proposal exists, given the time since the search
      began; may raise.
    has_profile_build: Whether the step is compiled again for the trace.
    trace_s: Seconds to end and write a trace.
    beside: Relative slowdown of the step by a search.
    own_s: Time that the program itself adds to a call, by its number.
    seed: Seed of the noise.
    slower_from: Number of the call from which all steps take 1.5 times as long.
    proposes_the_same: Whether all proposals of all searches are equal.
  """

  step_s: Sequence[float]
  noise: float = 0.02
  voted: Voted = all_vote
  finds: Callable[[float], bool] = finds
  limits: loop.Limits = dataclasses.field(default_factory=loop.Limits)
  has_profile_build: bool = False
  trace_s: float = 0.0
  beside: float = 0.0
  own_s: Callable[[int, random.Random], float] = lambda *_: 0.0
  seed: int = 0
  slower_from: float = math.inf
  proposes_the_same: bool = False

  def __post_init__(self):
    self.num_calls = 0
    # The true cost of tuning to the run.
    self.lost_s = 0.0
    self.num_searches = 0
    self.is_searching = False
    self.num_concluded = 0
    self.trials: list[phases.Trial] = []
    self.phases: list[phases.Phase] = []
    self.loop = loop.Loop(self, MEMBERS, self.limits)
    self._random = random.Random(self.seed)
    self._times = phases.Times()
    self._clock_s = 0.0
    self._num_found = 0
    self._heard_s = 0.0
    self._searched_s = 0.0
    self._traced_s = -math.inf

  def run(self, num_calls: int = 3000) -> phases.Phase:
    """Runs this many calls, or until the loop stays; returns the last phase."""
    while self.num_calls < num_calls:
      try:
        phase = self.loop.next_phase(self._times)
      except errors.LagomError as error:  # Like the coordinator.
        phase = phases.stay(self.phases[-1].in_use, str(error))
      self.phases.append(phase)
      number = phase.number
      if number and number not in {it.number for it in self.phases[:-1]}:
        self._heard_s = self._clock_s
      if phase.state is phases.State.STAY:
        break
      durations_s = [
        self._take_segment(it, phase.in_use) for it in phase.segments
      ]
      if any(segment.is_traced for segment in phase.segments):
        self._traced_s = self._clock_s
      self._times = phases.Times(durations_s=durations_s)
    return self.phases[-1]

  def states(self) -> list[str]:
    """The states, without consecutive repeats."""
    states = [str(phase.state) for phase in self.phases]
    before = [None, *states]
    return [
      state
      for state, last in zip(states, before, strict=False)
      if state != last
    ]

  def calls_of(self, variant: int) -> int:
    """The number of a variant's calls."""
    return sum(
      segment.num_calls
      for phase in self.phases
      for segment in phase.segments
      if segment.variant == variant
    )

  def _take_segment(self, segment: phases.Segment, in_use: int) -> float | None:
    """Time of a segment; None if it is untimed."""
    seconds = 0.0
    step_s = self.step_s[max(segment.variant, 0)]
    beside = self.beside if self.is_searching else 0.0
    for _ in range(segment.num_calls):
      self.num_calls += 1
      slower = 1.5 if self.num_calls > self.slower_from else 1.0
      noise = max(self._random.gauss(1, self.noise), 0.1)
      seconds += step_s * (noise + beside) * slower
      seconds += self.own_s(self.num_calls, self._random)
      self.lost_s += (step_s * (1 + beside) - self.step_s[in_use]) * slower
    self._clock_s += seconds
    return seconds if segment.is_timed or segment.is_watched else None

  # The interface of `loop.Surroundings`.

  @property
  def is_trace_ending(self) -> bool:
    return self._clock_s < self._traced_s + self.trace_s

  @property
  def is_traced(self) -> bool:
    """Whether the current calls are traced."""
    return any(it.is_traced for it in self.phases[-1].segments)

  def now_s(self) -> float:
    return self._clock_s

  def begin_search(self, step_s: float) -> None:
    assert step_s > 0
    self.is_searching = True
    self.num_searches += 1
    self._searched_s = self._clock_s
    if self.proposes_the_same:
      self._num_found = 0

  def end_search(self) -> None:
    self.is_searching = False

  def found(self) -> proposals.Proposal | None:
    assert self.is_searching
    if not self.finds(self._clock_s - self._searched_s):
      return None
    if self._num_found + 1 >= len(self.step_s):
      raise StopIteration
    self._num_found += 1
    name = f"way {self._num_found}"
    payload = "the same" if self.proposes_the_same else name
    return proposals.Proposal(name=name, payload=payload.encode())

  def votes(self, number: int) -> Mapping[int, phases.Vote]:
    assert number in (len(self.trials) + 1, -self.num_searches - 1)
    return self.voted(self._clock_s - self._heard_s)

  def note(self, trial: phases.Trial) -> None:
    self.trials.append(trial)

  def conclude(self) -> None:
    self.num_concluded += 1
