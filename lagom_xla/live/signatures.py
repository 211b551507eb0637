# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Signatures of a step: which variant each call runs, and the times of blocks.

A timed block lasts from the end of the previous block until the results of its
last call are ready. So it includes the program's own work between calls, for
all variants alike. The clock stops while the program calls the step with other
shapes.

After `jax.clear_caches` jit traces, lowers and compiles the step again. The
variants are then recompiled, and verdicts stay. Jit also lowers again after the
import of a module that adds trace settings, such as Pallas; variants then stay
valid.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
import contextlib
import math
import time
from typing import Any

import jax

from lagom_xla import dispatch
from lagom_xla.jax_internals import caches
from lagom_xla.jax_internals import lowerings
from lagom_xla.live import coordinator as coordinator_lib
from lagom_xla.live import phases

# Times of a phase -> the next phase, the same in all processes.
Follow = Callable[[phases.Times], phases.Phase]


class Runner:
  """Runs the phases of one signature; traces if its coordinator has a tracer.

  `segment` is None once calls are no longer counted.
  """

  phase: phases.Phase
  segment: phases.Segment | None

  def __init__(
    self, follow: Follow, coordinator: coordinator_lib.Coordinator | None
  ):
    self._follow = follow
    self._coordinator = coordinator
    self._tracer = None if coordinator is None else coordinator.tracer
    self._clock = time.perf_counter
    # When the running block began; None while the clock is stopped.
    self._mark_s: float | None = None
    self._elapsed_s = 0.0
    self._stall_s = 0.0
    self._num_left = 0
    self._num_lent = 0
    self.num_phases = 0
    self._take(phases.Times())

  @property
  def variant(self) -> int:
    """The variant that the next call runs."""
    if self.segment is None:
      return self.phase.in_use
    return self.segment.variant

  def lend(self) -> float:
    """The number of calls that may skip `begin` and `end`; counts them as made.

    In a block, all calls but the first and last. None in a block that
    alternates with another variant's: errors must be noticed, and compared
    variants must be called alike.
    """
    if self.segment is None:
      return math.inf
    if self._is_plain and self._mark_s is not None:
      self._num_lent = max(self._num_left - 1, 0)
      self._num_left -= self._num_lent
    return self._num_lent

  def take_back(self, num_calls: float) -> None:
    """Takes back lent calls that were not made.

    Takes back at most the number lent, because concurrent threads miscount.
    """
    self._num_left += int(min(max(num_calls, 0), self._num_lent))
    self._num_lent = 0

  def begin(self, arguments: object) -> contextlib.AbstractContextManager[Any]:
    """Begins a call; make the call inside the returned context."""
    self._num_lent = 0
    if self.segment is not None and not self._num_left:
      self._end_segment(self.segment)
      self._next_segment()
    segment = self.segment
    if segment is None:
      return contextlib.nullcontext()
    if self._mark_s is None:
      wait_for(arguments)
      self._mark_s = self._clock()
    if segment.is_traced and self._tracer is not None:
      if self._num_left == segment.num_calls:
        with self._stalling():
          self._tracer.start()
      return self._tracer.step()
    return contextlib.nullcontext()

  def end(self, results: object) -> None:
    """Ends a call."""
    segment = self.segment
    if segment is None:
      return
    self._num_left -= 1
    if self._num_left:
      return
    try:
      if not segment.is_watched:
        with self.told_if_it_hangs(segment.variant):
          wait_for(results)
    finally:
      self._end_segment(segment)

  def told_if_it_hangs(
    self, variant: int
  ) -> contextlib.AbstractContextManager[None]:
    """A context that logs the variant if the wait inside takes too long.

    In phases that compare two variants, this includes the variant in use.
    """
    if self._coordinator is None or self._is_plain:
      return contextlib.nullcontext()
    return self._coordinator.told_if_it_hangs(variant)

  def pause(self, arguments: object) -> None:
    """Stops the clock when the step is called with other shapes.

    Waits for `arguments`, which often hold results of this runner's calls.
    """
    if self._mark_s is None:
      return
    if self.segment is not None and not self.segment.is_watched:
      wait_for(arguments)
    self._elapsed_s += self._clock() - self._mark_s
    self._mark_s = None
    if self.segment is not None and self.segment.is_traced:
      self._end_trace()

  def stall(self, seconds: float) -> None:
    """Excludes time lost by the running call from its block."""
    self._stall_s += seconds
    if self._mark_s is not None:
      self._mark_s += seconds

  def _end_segment(self, segment: phases.Segment) -> None:
    """Ends the segment's trace and records its time.

    Does nothing if already done: after Ctrl-C the next call comes here again.
    """
    if len(self._ends_s) > self._index:
      return
    if segment.is_traced:
      self._end_trace()
    now_s = self._clock()
    seconds = None
    if self._mark_s is not None and (segment.is_timed or segment.is_watched):
      seconds = self._elapsed_s + now_s - self._mark_s
    self._ends_s.append(seconds)
    self._mark_s, self._elapsed_s = now_s, 0.0

  def _end_trace(self) -> None:
    if self._tracer is not None:
      with self._stalling():
        self._tracer.end()

  def _next_segment(self) -> None:
    if self._index + 1 < len(self.phase.segments):
      self._enter(self._index + 1)
      return
    times = phases.Times(durations_s=tuple(self._ends_s), stall_s=self._stall_s)
    self._stall_s = 0.0
    with self._stalling():
      self._take(times)

  def _take(self, times: phases.Times) -> None:
    self.phase = self._follow(times)
    self._is_plain = not any(
      it.is_traced or it.variant != self.phase.in_use
      for it in self.phase.segments
    )
    self.num_phases += 1
    # Seconds of each ended segment; None if untimed.
    self._ends_s: list[float | None] = []
    self._enter(0)

  def _enter(self, index: int) -> None:
    self._index = index
    self.segment = None
    if index < len(self.phase.segments):
      self.segment = self.phase.segments[index]
      self._num_left = self.segment.num_calls

  @contextlib.contextmanager
  def _stalling(self):
    """Counts the time inside as a stall."""
    start_s = self._clock()
    yield
    self.stall(self._clock() - start_s)


def wait_for(values: object) -> None:
  """Waits for values; errors surface when the values are used, as under jit."""
  _failure_of(values)


def _failure_of(values: object) -> Exception | None:
  """Waits for values; returns the error of their computation, if any."""
  try:
    jax.block_until_ready(values)
  except Exception as error:
    return error
  return None


# Part of jaxlib's message when a Python callback raised (py_client_cpu.cc and
# callback.cc, JAX 0.10.2 to 0.12).
_CALLBACK_ERROR = "CpuCallback error"


class Signature:
  """One signature of a step.

  `executable` returns a variant, other than jit's own, by its number.
  `coordinator` is None if the signature is not tuned.
  """

  def __init__(
    self,
    jitted: dispatch.Jitted,
    executable: Callable[[int], jax.stages.Compiled],
    follow: Follow,
    coordinator: coordinator_lib.Coordinator | None = None,
  ):
    self._jitted = jitted
    self._executable = executable
    self.coordinator = coordinator
    self._has_failed = False
    # Variants whose first results are ready; 0 needs no wait.
    self._has_run = {0}
    self._lanes: dict[int, Any] = {}
    self.runner = Runner(follow, coordinator)

  @property
  def variant(self) -> int:
    """The variant that the next call runs."""
    return 0 if self._has_failed else self.runner.variant

  @property
  def in_use(self) -> int:
    """The variant that runs when no other is measured."""
    return 0 if self._has_failed else self.runner.phase.in_use

  def lane(self, variant: int, answer: Callable[..., dispatch.Answer]) -> Any:
    """A function of jit's type for a variant; cache misses go to `answer`."""
    kept = {0, variant, self.in_use, self.runner.phase.number}
    for gone in self._lanes.keys() - kept:
      del self._lanes[gone]
    if variant not in self._lanes:
      self._lanes[variant] = self._jitted.like(answer)
    return self._lanes[variant]

  def run(
    self, variant: int, args: tuple[Any, ...], kwargs: dict[str, Any]
  ) -> dispatch.Answer:
    """Runs a call with a variant; returns the answer to C++."""
    if variant == 0:
      return self._jitted.run(*args, **kwargs)
    compiled = self._executable(variant)
    return self._jitted.run_compiled(compiled, args, kwargs)

  def call(
    self,
    lane_of: Callable[[Signature, int], Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
  ) -> Any:
    """Makes the next call; if a variant fails, repeats it as jit, if possible.

    On GPUs a call returns before it fails. So this waits for the results of a
    variant's first call.
    """
    variant = self.variant
    if variant in self._has_run:
      return self._call(variant, lane_of, args, kwargs)
    with self.runner.told_if_it_hangs(variant):
      results = self._call(variant, lane_of, args, kwargs)
      self._has_run.add(variant)
      failure = _failure_of(results)
    if failure is None or _is_callers(failure) or self._has_failed:
      return results
    is_lost = _are_gone(args, kwargs)
    if not is_lost:
      results = lane_of(self, 0)(*args, **kwargs)
    self.fail(failure, variant, is_lost=is_lost)
    return results

  def _call(
    self,
    variant: int,
    lane_of: Callable[[Signature, int], Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
  ) -> Any:
    lane = lane_of(self, variant)
    if variant == 0:
      return lane(*args, **kwargs)
    try:
      return lane(*args, **kwargs)
    except Exception as error:
      if is_final(error, args, kwargs):
        raise
      # If this raises, too, the error is the caller's.
      results = lane_of(self, 0)(*args, **kwargs)
      self.fail(error, variant)
      return results

  def is_of(self, lowered: jax.stages.Lowered) -> bool:
    """Whether this is the live signature of the step that jit lowered."""
    coordinator = self.coordinator
    return coordinator is not None and coordinator.variants.is_of(lowered)

  def renew(self, lowered: jax.stages.Lowered) -> None:
    """Continues with the step as lowered again after `jax.clear_caches`."""
    self._lanes.clear()  # The caller is one of them.
    # Jit would compile it at this call. Compiled here, it counts in no block.
    lowered.compile()
    try:
      if self.coordinator is not None:
        self.coordinator.variants.renew(lowered)
    except Exception as error:  # The step must run, whatever went wrong.
      self.fail(error, self.variant)

  def fail(
    self, error: Exception, variant: int, *, is_lost: bool = False
  ) -> None:
    """Runs only jit's own executable from now on, because a variant failed.

    `is_lost`: donated arguments, and so the program's state, are lost.
    """
    self._has_failed = True
    if self.coordinator is not None:
      self.coordinator.fail(error, variant, is_lost=is_lost)

  def close(self) -> None:
    """Drops its executables when it is no longer called."""
    self._lanes.clear()
    if self.coordinator is not None:
      self.coordinator.close()

  def complaint(self) -> str | None:
    """The warning to show, if any."""
    return None if self.coordinator is None else self.coordinator.complaint


def fixed(
  jitted: dispatch.Jitted, compiled: jax.stages.Compiled | None
) -> Signature:
  """A signature that always runs one executable; None for jit's own."""
  executables = {} if compiled is None else {1: compiled}
  phase = phases.stay(len(executables), "")
  return Signature(jitted, executables.__getitem__, lambda _: phase)


def is_final(
  error: Exception, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> bool:
  """Whether a failed call must not be repeated.

  It must not if a callback of the step raised, because its effects would
  repeat, or if arguments were deleted, as donated ones are.
  """
  return _is_callers(error) or _are_gone(args, kwargs)


def _is_callers(error: Exception) -> bool:
  return _CALLBACK_ERROR in str(error)


def _are_gone(args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
  return any(
    leaf.is_deleted()
    for leaf in jax.tree.leaves((args, kwargs))
    if isinstance(leaf, jax.Array)
  )


# Makes the signature for a new lowering.
Begin = Callable[[dispatch.Jitted, jax.stages.Lowered], Signature]


class Signatures:
  """The signatures of a step; readable while another thread begins one.

  `begin` makes the signature for a new lowering. It raises only errors that the
  caller of the step should see.
  """

  def __init__(self, jitted: dispatch.Jitted, begin: Begin):
    self._jitted = jitted
    self._begin = begin
    self._known: dict[Any, Signature] = {}
    self._stale: list[Signature] = []
    self._clearings = caches.Clearings()

  def __iter__(self) -> Iterator[Signature]:
    """The signatures in JAX's caches, each once."""
    return iter(list(dict.fromkeys(self._known.values())))

  def find(self, lowered: jax.stages.Lowered) -> Signature | None:
    """The signature of a lowered step, if it has begun."""
    return self._known.get(lowerings.identity_of(lowered))

  def begin(self, lowered: jax.stages.Lowered) -> Signature:
    """A new signature, or a known or stale one for the same step.

    Stale signatures are recompiled.
    """
    if self._clearings.has_come():
      self._stale += [it for it in self if it.coordinator is not None]
      self._known.clear()
    found = next((it for it in self if it.is_of(lowered)), None)
    stale = next((it for it in self._stale if it.is_of(lowered)), None)
    if found is None and stale is not None:
      found = stale
      self._stale.remove(found)
      found.renew(lowered)
    found = found or self._begin(self._jitted, lowered)
    self._known[lowerings.identity_of(lowered)] = found
    return found

  def fail(self, error: Exception) -> None:
    """Runs only jit's own executables from now on; a variant raised."""
    for signature in self:
      signature.fail(error, signature.in_use)

  def close(self) -> None:
    """Closes all signatures."""
    for signature in (*self, *self._stale):
      signature.close()
    self._known.clear()
    self._stale.clear()
