# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""A drop-in replacement for a jitted step that runs the tuning phases.

Each call goes to a lane: a function of jit's own type that runs one variant of
the last signature. C++ looks up the signature, as in jit, and calls Python only
if it changed. While the variant in use is watched or final, and in blocks that
are not compared, a call adds only a counter to jit's own cost.

A change of signature costs about 100 us in Python. So signatures that keep
alternating share one lane once they are tuned. The shared lane counts no calls
and cannot detect drift. So each signature leaves it for one window, and then
rests for 100 calls per turn. Turns then cost about 1 us per call.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
import functools
import math
import threading
import time
import types
from typing import Any

import jax

from lagom_xla import dispatch
from lagom_xla.live import signatures

# Turns of finished signatures before they rest for the first time.
_MAX_TURNS = 16
# Calls at rest per turn.
REST_CALLS = 100


class Turns:
  """Counts changes of signature, and decides when to rest."""

  def __init__(self) -> None:
    self.restart()

  def restart(self) -> None:
    """Starts counting again."""
    self._num_turns = 0
    # Signatures that took turns since the last rest -> their windows before.
    self._num_before: dict[signatures.Runner, int] = {}
    self._has_rested = False

  def wake(self) -> None:
    """Ends the rest."""
    self.restart()
    self._has_rested = True

  def take(
    self, current: signatures.Runner, runners: Iterable[signatures.Runner]
  ) -> float | None:
    """Records a turn of `current`.

    Returns the number of calls to rest: infinity if no runner is watched, None
    for no rest.
    """
    if not all(it.segment is None or it.segment.is_watched for it in runners):
      self.restart()
      return None
    self._num_turns += 1
    self._num_before.setdefault(current, current.num_phases)
    # Whether a watched runner has yet to complete a window.
    lacks_windows = self._has_rested and any(
      it.segment is not None and it.num_phases == before
      for it, before in self._num_before.items()
    )
    if self._num_turns <= _MAX_TURNS or lacks_windows:
      return None
    if all(it.segment is None for it in self._num_before):
      return math.inf
    return REST_CALLS * self._num_turns


# `_num_free` while every call goes through `_call_counted`.
_NONE_FREE = -1


class LiveStep:
  """A jitted step that is tuned while it is called.

  It has the attributes of the jitted step, and binds as a method. It pickles as
  a call of `remake`. Its repr is `report()`.

  Raises:
    UnsupportedError: JAX's internals are not those of a known version.
  """

  def __init__(
    self,
    function: Any,
    begin: signatures.Begin,
    warner: dispatch.Warner,
    report: Callable[[], str],
    remake: Callable[[], Any],
  ):
    self._jitted = dispatch.jitted(function)
    self._report = report
    self._remake = remake
    functools.update_wrapper(self, function, updated=())
    self.__wrapped__ = self._jitted.wrapped
    self._signatures = signatures.Signatures(self._jitted, begin)
    self._warner = warner
    self._current: signatures.Signature | None = None
    # The signature to resume after a rest.
    self._woken: signatures.Signature | None = None
    self._turns = Turns()
    self._is_own = True
    self._lock = threading.RLock()
    # Whether a call is in progress. The lock alone cannot tell: a signal
    # handler runs in the same thread, and the lock is reentrant.
    self._is_busy = False
    self._rest = self._shared_lane()
    # Calls left that may go directly to the lane.
    self._num_free: float = _NONE_FREE
    self._lane = self._rest

  def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
    """Calls the step."""
    self._num_free -= 1
    if self._num_free < 0:
      return self._call_counted(args, kwargs)
    try:
      return self._lane(*args, **kwargs)
    except Exception as error:
      return self._recover(error, args, kwargs)

  def __get__(self, instance: Any, owner: Any = None) -> Any:
    return self if instance is None else types.MethodType(self, instance)

  def __repr__(self) -> str:
    return self._report()

  def __reduce__(self) -> tuple[Callable[[], Any], tuple[()]]:
    return self._remake, ()

  def __dir__(self) -> set[str]:
    return {*super().__dir__(), *dir(self._jitted.function)}

  def __getattr__(self, name: str) -> Any:
    if name.startswith("__") or "_jitted" not in self.__dict__:
      raise AttributeError(name)
    return getattr(self._jitted.function, name)

  def clear_cache(self) -> None:
    """Clears the jitted step's cache; retraced signatures are tuned again."""
    self._jitted.function.clear_cache()
    with self._lock:
      self._signatures.close()
      self._turns.restart()
      self._begin_with(self._shared_lane(), _NONE_FREE)

  def _call_counted(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Makes a call that is counted, timed, traced, or of a new signature."""
    config: Any = jax.config
    if config.jax_disable_jit or dispatch.is_transformed(args, kwargs):
      return self._jitted.function(*args, **kwargs)
    if self._is_busy or not self._lock.acquire(blocking=False):
      return self._call_beside(args, kwargs)
    try:
      self._is_busy = True
      self._num_free = _NONE_FREE
      if self._woken is not None:
        self._turns.wake()
        self._current, self._woken = self._woken, None
      if self._current is None:
        return self._rest(*args, **kwargs)
      return self._run(self._current, args, kwargs)
    finally:
      self._is_busy = False
      self._lock.release()
      self._warn()

  def _call_beside(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Makes a call from another thread or signal handler, during a counted one.

    It is not part of the measurement.
    """
    try:
      return self._rest(*args, **kwargs)
    except Exception as error:
      return self._recover(error, args, kwargs)

  def _run(
    self,
    signature: signatures.Signature,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
  ) -> Any:
    """Makes a call that most likely has this signature."""
    runner = signature.runner
    in_use = signature.in_use
    self._is_own = True
    with runner.begin((args, kwargs)):
      results = signature.call(self._lane_of, args, kwargs)
    if not self._is_own:
      return results
    runner.end(results)
    if signature.in_use != in_use:
      self._rest = self._shared_lane()
    self._lane = self._lane_of(signature, signature.variant)
    self._num_free = runner.lend()
    return results

  def _recover(
    self, error: Exception, args: tuple[Any, ...], kwargs: dict[str, Any]
  ) -> Any:
    """Repeats a call with jit's own executable if an adopted variant raised."""
    is_final = signatures.is_final(error, args, kwargs)
    if is_final or not any(it.in_use for it in self._signatures):
      raise error
    results = self._jitted.function(*args, **kwargs)
    with self._lock:
      self._signatures.fail(error)
      self._begin_with(self._shared_lane(), math.inf)
    self._warn()
    return results

  def _begin_with(self, rest: Any, num_free: float) -> None:
    """Uses a shared lane for `num_free` calls; forgets the last signature."""
    self._lane = self._rest = rest
    self._num_free = num_free
    self._current = self._woken = None

  def _lane_of(self, signature: signatures.Signature, variant: int) -> Any:
    """The lane that runs a variant of one signature."""

    def answer(*args: Any, **kwargs: Any) -> dispatch.Answer:
      start_s = time.perf_counter()
      lowered = self._jitted.lowered(args, kwargs)
      if lowered is None:
        self._is_own = False
        if self._num_free >= 0:
          self._num_free += 1
        return self._jitted.run(*args, **kwargs)
      found = self._signatures.find(lowered)
      if found is signature:
        # The shared lane already lowered it, as jit does.
        signature.runner.stall(time.perf_counter() - start_s)
        return signature.run(variant, args, kwargs)
      return self._turn(lowered, args, kwargs)

    return signature.lane(variant, answer)

  def _shared_lane(self) -> Any:
    """A lane that runs each signature's variant in use."""

    def answer(*args: Any, **kwargs: Any) -> dispatch.Answer:
      lowered = self._jitted.lowered(args, kwargs)
      if lowered is None:
        return self._jitted.run(*args, **kwargs)
      found = self._signatures.find(lowered)
      if found is None:
        return self._turn(lowered, args, kwargs)
      return found.run(found.in_use, args, kwargs)

    return self._jitted.like(answer)

  def _turn(
    self,
    lowered: jax.stages.Lowered,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
  ) -> dispatch.Answer:
    """Makes a call whose signature is new or differs from the last call's.

    Tells C++ to call Python again at the next call.
    """
    if not self._lock.acquire(blocking=False):
      return self._jitted.run(*args, **kwargs)[0], None, True
    was_busy, self._is_busy = self._is_busy, True
    try:
      if self._current is not None:
        # This call and the unused lent calls do not have its signature.
        self._current.runner.take_back(self._num_free + 1)
        self._current.runner.pause((args, kwargs))
      self._num_free, self._woken = _NONE_FREE, None
      signature = self._signatures.find(lowered)
      if signature is None:
        signature = self._signatures.begin(lowered)
        self._turns.restart()
      self._current = signature
      results = self._run(signature, args, kwargs)
      self._is_own = False
      self._rest_if_done(signature, results)
      return results, None, True
    finally:
      self._is_busy = was_busy
      self._lock.release()
      self._warn()

  def _rest_if_done(self, found: signatures.Signature, results: object) -> None:
    """Moves alternating signatures to the shared lane once they are tuned."""
    runners = [it.runner for it in self._signatures]
    num_calls = self._turns.take(found.runner, runners)
    if num_calls is not None:
      signatures.wait_for(results)  # Else its clock would stop too early.
      found.runner.pause(results)
      found.runner.take_back(self._num_free)  # Its next calls are not counted.
      self._woken, self._current = found, None
      self._lane, self._num_free = self._rest, num_calls

  def _warn(self) -> None:
    for signature in self._signatures:
      complaint = signature.complaint()
      if complaint is not None:
        self._warner.warn(complaint)
