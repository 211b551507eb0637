# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Coordinator of a signature's phases: the first process decides, all follow.

Phases are numbered and set in the job's store. If the first process fails or is
late, or a candidate raises in another process, the next phase stops tuning, and
the job keeps the variant in use. A phase that runs another variant begins with
a barrier: a process that loses the connection keeps its variant, so all others
must, too.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
import contextlib
import dataclasses
import json
import queue
import threading
import time
import weakref

import jax

from lagom_xla import dispatch
from lagom_xla import errors
from lagom_xla.live import agreement
from lagom_xla.live import hanging
from lagom_xla.live import loop as loop_lib
from lagom_xla.live import memory as memory_lib
from lagom_xla.live import phases
from lagom_xla.live import proposals
from lagom_xla.live import shutdown
from lagom_xla.live import tracing
from lagom_xla.live import trial_log
from lagom_xla.live import variants as variants_lib


class Coordinator:
  """Gives a runner the phases of a step as lowered by jit.

  Attributes:
    variants: The executables other than jit's own.
    tracer: Takes traces; None except in the first process.
    complaint: The first warning, if any.
  """

  def __init__(
    self,
    lowered: jax.stages.Lowered,
    proposer: proposals.Proposer,
    memory: memory_lib.Memory,
    store: agreement.JobStore,
    log: trial_log.TrialLog,
    limits: loop_lib.Limits,
  ):
    self.variants = variants_lib.Variants(proposer, lowered, self._vote)
    self.complaint: str | None = None
    self.tracer: tracing.Tracer | None = None
    self._store = store
    self._log = log
    self._phase_s = limits.phase_s
    self._num_phases = 0
    self._in_use = 0
    self._is_over = False
    self._decided: phases.Phase | None = None  # Not begun yet.
    self._failure: str | None = None
    self._names: dict[int, str] = {}  # By variant.
    self._first: _FirstProcess | None = None
    if agreement.is_first(store):
      self.tracer = tracing.Tracer(self._complain)
      self._first = _FirstProcess(proposer, memory, store, log, self.tracer)
      log.loop = loop_lib.Loop(self._first, store.members, limits)
    if len(store.members) > 1:
      shutdown.leave_at_end(self)

  def follow(self, times: phases.Times) -> phases.Phase:
    """The next phase, the same in all processes, given the last one's times."""
    if self._decided is None:
      self._decided = self._decide(times)
      self._num_phases += 1
    # After Ctrl-C below, the next call repeats this phase.
    phase = self._decided
    self._in_use = phase.in_use
    if phase.state is phases.State.STAY:
      self._is_over = True
      self._complain(_stays(self._log.name, phase))
      if self._first is not None:
        self._first.stay(phase.in_use)
    self._log.note_phase(phase)
    self.variants.keep({phase.in_use, phase.number})
    if phase.proposal is not None:
      self._names[phase.number] = phase.proposal.name
    if self._first is not None:
      self._first.note_risk(phase, self._name_of(phase.number))
    if phase.proposal is not None:
      self.variants.compile(phase.number, phase.proposal)
    elif phase.number < 0:
      self.variants.compile_for_profile(phase.number)
    self._decided = None
    return phase

  def close(self) -> None:
    """Stops tuning, and drops all executables."""
    self._log.is_closed = True
    self.variants.keep(())
    if self._first is not None:
      self._first.end_search()

  def told_if_it_hangs(
    self, variant: int
  ) -> contextlib.AbstractContextManager[None]:
    """A context that logs the variant if the wait inside takes too long."""
    return hanging.told(self._log.name, self._name_of(variant))

  def fail(
    self, error: Exception, variant: int, *, is_lost: bool = False
  ) -> None:
    """Returns all processes to jit's own executable after a variant failed.

    If donated arguments are lost, the program has to restart, and the next run
    does not search.
    """
    words = f"{self._name_of(variant)} failed"
    if is_lost:
      words += ", and its donated arguments are lost"
    words = self._fail(f"{words}: {dispatch.describe(error)}")
    if not self._is_over:
      with contextlib.suppress(errors.ProcessesError):
        self._refuse(words, 0)
    # Logged now, because no other phase may follow.
    self._log.note_phase(_refusal(self._store, words, in_use=0))
    if self._first is not None:
      self._first.stay(0, is_lost=is_lost)

  def leave(self) -> None:
    """Tells the other processes that this one ends, so that none waits."""
    if not self._is_over:
      self._refuse("it ended.", self._in_use)

  def _fail(self, words: str) -> str:
    """Records and reports the first failure in this process."""
    if self._failure is None:
      self._failure = words
      self._complain(_stays(self._log.name, phases.stay(0, words)))
    return self._failure

  def _name_of(self, variant: int) -> str:
    if variant < 0:
      return "the build for profiling"
    return self._names.get(variant, "the unchanged step")

  def _decide(self, times: phases.Times) -> phases.Phase:
    try:
      return self._passed(self._next(times))
    except Exception as error:  # The step must run, whatever went wrong.
      return phases.stay(self._in_use, dispatch.describe(error))
    except BaseException:  # Ctrl-C: the decision is unknown.
      self._fail("tuning was interrupted")
      raise

  def _next(self, times: phases.Times) -> phases.Phase:
    if self._failure is not None:
      return phases.from_json(self._refuse(self._failure, 0))
    name = _phase_name(self._num_phases + 1)
    loop = self._log.loop
    if loop is not None:
      try:
        phase = loop.next_phase(times)
      except Exception as error:
        phase = phases.stay(self._in_use, dispatch.describe(error))
      return phases.from_json(self._store.put(name, phase.to_json()))
    found = self._store.get(name, timeout_s=self._phase_s)
    if found is None:
      without = self._staying_without(self._store.members[:1])
      found = self._store.put(name, without)
    try:
      return phases.from_json(found)
    except errors.ProcessesError as error:
      self._refuse(str(error), self._in_use)  # Tells the others.
      raise

  def _passed(self, phase: phases.Phase) -> phases.Phase:
    """The phase, or a stop for all if a process missed its barrier."""
    runs = {segment.variant for segment in phase.segments} | {phase.in_use}
    if phase.state is phases.State.STAY or runs == {self._in_use}:
      return phase
    instead = agreement.barrier(
      self._store,
      _phase_name(self._num_phases + 1),
      self._staying_without,
      timeout_s=self._phase_s,
    )
    return phase if instead is None else phases.from_json(instead)

  def _staying_without(self, missing: Sequence[int]) -> bytes:
    """The phase that stops all processes because some are late."""
    words = (
      f"{agreement.in_words(missing)} did not arrive within"
      f" {self._phase_s:g} s."
    )
    return phases.stay(self._in_use, words).to_json()

  def _refuse(self, words: str, in_use: int) -> bytes:
    return refuse(self._store, words, self._num_phases + 1, in_use=in_use)

  def _vote(self, number: int, vote: phases.Vote) -> None:
    value = json.dumps(dataclasses.asdict(vote)).encode()
    with contextlib.suppress(errors.ProcessesError):
      # Without the store there is no job.
      agreement.vote(self._store, _compile_name(number), value)

  def _complain(self, words: str) -> None:
    self.complaint = self.complaint or words


class _FirstProcess:
  """The `loop.Surroundings` in the process that decides."""

  def __init__(
    self,
    proposer: proposals.Proposer,
    memory: memory_lib.Memory,
    store: agreement.JobStore,
    log: trial_log.TrialLog,
    tracer: tracing.Tracer,
  ):
    self.has_profile_build = proposer.has_profile_build
    self._memory = memory
    self._store = store
    self._log = log
    self._tracer = tracer
    self._stop_search: Callable[[], object] = lambda: None
    self._found: _Found = queue.Queue(1)
    self._latest_measured = 0
    self._is_lost = False

  @property
  def is_trace_ending(self) -> bool:
    return self._tracer.is_ending

  def now_s(self) -> float:
    return time.monotonic()

  def begin_search(self, step_s: float) -> None:
    self._stop_search()
    trace_dir = self._tracer.latest()
    measured = proposals.Measured(trace_dir=trace_dir, step_s=step_s)
    # The thread must not refer to this object: the search ends when the object
    # is garbage-collected.
    stop, memory = threading.Event(), self._memory
    found = self._found = queue.Queue(1)
    self._stop_search = weakref.finalize(self, stop.set)
    shutdown.start(
      "lagom_xla search", lambda: _search(memory, measured, found, stop), stop
    )

  def end_search(self) -> None:
    self._stop_search()
    self._tracer.drop()

  def found(self) -> proposals.Proposal | None:
    try:
      found = self._found.get_nowait()
    except queue.Empty:
      return None
    if isinstance(found, Exception):
      raise found
    return found

  def votes(self, number: int) -> dict[int, phases.Vote]:
    cast = agreement.votes(self._store, _compile_name(number))
    return {
      member: phases.Vote(**json.loads(it)) for member, it in cast.items()
    }

  def note(self, trial: phases.Trial) -> None:
    self._log.note_trial(trial)
    self._memory.note(trial)
    if trial.is_adopted:
      # Saved now, because a run may end long before its search.
      self._memory.keep(self._log.trials, has_tried_all=False)

  def conclude(self) -> None:
    self._memory.keep(self._log.trials, has_tried_all=True)

  def note_risk(self, phase: phases.Phase, name: str) -> None:
    """Records, for the next run, a proposal that may end this run."""
    is_first = phase.number != self._latest_measured
    if phase.state is phases.State.MEASURE and is_first:
      self._latest_measured = phase.number
      self._memory.note_risk(name)
    elif not self._is_lost:
      self._memory.note_survival()

  def stay(self, in_use: int, *, is_lost: bool = False) -> None:
    """Ends the loop with this variant; forgets a failed plan."""
    self.end_search()
    self._is_lost = self._is_lost or is_lost
    if not self._is_lost:
      self._memory.note_survival()
    if not in_use:
      self._memory.forget()


_Found = queue.Queue[proposals.Proposal | Exception]


def _search(
  memory: memory_lib.Memory,
  measured: proposals.Measured,
  found: _Found,
  stop: threading.Event,
) -> None:
  """Puts proposals into a queue that holds one, until `stop` is set."""
  made = memory.proposals(measured, stop)
  try:
    while not stop.is_set():
      _put(next(made), found, stop)
  except Exception as error:  # The loop must learn of any error.
    _put(error, found, stop)


def _put(
  one: proposals.Proposal | Exception, found: _Found, stop: threading.Event
) -> None:
  while not stop.is_set():
    with contextlib.suppress(queue.Full):
      found.put(one, timeout=0.2)
      return


def refuse(
  store: agreement.JobStore, words: str, number: int = 1, *, in_use: int = 0
) -> bytes:
  """Makes all processes stop with the variant `in_use` as soon as possible.

  Returns the phase with this number, which this process runs next. That is the
  stop, or a phase that was set earlier; the stop then follows it.
  """
  text = _refusal(store, words, in_use=in_use).to_json()
  standing: list[bytes] = []
  while not standing or not _ends_tuning(standing[-1]):
    name = _phase_name(number + len(standing))
    agreement.decide(store, name, text)
    standing.append(store.put(name, text))
  return standing[0]


def _refusal(
  store: agreement.JobStore, words: str, *, in_use: int
) -> phases.Phase:
  """The phase with which this process stops tuning."""
  process = agreement.in_words([store.process_id])
  return phases.stay(in_use, f"{process}: {words}")


def _ends_tuning(text: bytes) -> bool:
  try:
    return phases.from_json(text).state is phases.State.STAY
  except errors.ProcessesError:
    return False


def _phase_name(number: int) -> str:
  """The name of a phase and of its barrier; phases are numbered from 1."""
  return f"phases/{number}"


def _compile_name(number: int) -> str:
  """The name of the vote on a variant's compile."""
  return f"compiles/{number}"


def _stays(name: str, phase: phases.Phase) -> str:
  if phase.in_use:
    return f"stopped, and {name} keeps what it adopted: {phase.words}"
  return f"leaves {name} unchanged: {phase.words}"
