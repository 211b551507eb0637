# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Proposals of other ways to run a step, and who makes them on each platform.

A proposer knows one kind of device. It says in which other ways a step could
run there, and compiles them; it measures nothing. What it hands on is bytes, so
that every process of a job can compile the same.

What makes proposals takes most of a second to import. A run that is too short
for a search needs none of it, and in others a thread imports it beside
training.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
import dataclasses
import importlib
import pathlib
import threading
from typing import TYPE_CHECKING, Protocol

import jax

from lagom_xla import errors
from lagom_xla.jax_internals import lowerings

if TYPE_CHECKING:
  from lagom_xla import plan as plan_lib


@dataclasses.dataclass(frozen=True, kw_only=True)
class Proposal:
  """Another way to run a step.

  Attributes:
    name: In a few words, "gradients in 4 groups, behind products".
    payload: JSON from which every process of the job compiles it.
    predicted_ratio: Its step time over the baseline's; None if not predicted.
  """

  name: str
  payload: bytes
  predicted_ratio: float | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Measured:
  """What is known of the step as it runs, when proposals are asked for.

  Attributes:
    trace_dir: The folder of this process's jax.profiler trace; None if there is
      none.
    step_s: Median step time of the baseline, in seconds.
    num_traced: Steps in the trace.
    search_s: What the search may take of a core, in seconds; None for no bound.
  """

  trace_dir: pathlib.Path | None
  step_s: float
  num_traced: int
  search_s: float | None = None


class Proposer(Protocol):
  """Makes proposals for one kind of device, and compiles them.

  Attributes:
    plan: What the last search found for processes yet to start, NCCL settings
      and all; None where there was none, or it makes no plans.
    has_profile_build: Whether a profiler sees more of the step if it is
      compiled in another way.
    has_looked_at_all: Whether the last search looked at all that there is; not
      where it had no time for that.
    lost_per_core: What a step loses while one core works for the search or a
      compile, as a part of the time; 0 where steps do not run on those cores.
  """

  plan: plan_lib.Plan | None = None
  has_profile_build: bool = False
  has_looked_at_all: bool = True
  lost_per_core: float = 0.0

  def proposals(
    self,
    lowered: jax.stages.Lowered,
    measured: Measured,
    stop: threading.Event,
  ) -> Generator[Proposal, None, str | None]:
    """Yields proposals, the best first.

    Runs in a background thread of the job's first process, beside training.

    Args:
      lowered: The step as jit lowered it.
      measured: What is known of the step as it runs.
      stop: Set when nobody waits for more; no proposal should follow.

    Returns:
      Why there are no more, where that is more than that all were yielded.

    Raises:
      Exception: Whatever went wrong; training stays with the step as it is.
    """
    ...

  def compile(
    self, lowered: jax.stages.Lowered, payload: bytes
  ) -> jax.stages.Compiled:
    """Compiles the proposal with this payload, in a background thread.

    The same payload gives the same collectives in the same order in every
    process.

    Raises:
      LagomError: It cannot be compiled.
    """
    ...

  def compile_for_profile(
    self, lowered: jax.stages.Lowered
  ) -> jax.stages.Compiled:
    """Compiles the step as it is, for a profiler; in a background thread.

    Raises:
      LagomError: It cannot be compiled.
    """
    return lowered.compile()

  def digest(self, compiled: jax.stages.Compiled) -> bytes:
    """What must be equal in all processes: a hash of the collectives."""
    ...


class Deferred(Proposer):
  """A proposer that is yet to be made; see `proposals.Proposer`.

  Args:
    make: Imports and makes it. What it raises is raised by what is asked.
    has_profile_build: As of the proposer.
    lost_per_core: As of the proposer.
  """

  def __init__(
    self,
    make: Callable[[], Proposer],
    *,
    has_profile_build: bool = False,
    lost_per_core: float = 0.0,
  ):
    self.has_profile_build = has_profile_build
    self.lost_per_core = lost_per_core
    self._make = make
    self._made: Proposer | None = None
    self._lock = threading.Lock()

  @property
  def plan(self) -> plan_lib.Plan | None:
    """See `proposals.Proposer`."""
    return self._proposer().plan

  @plan.setter
  def plan(self, plan: plan_lib.Plan | None) -> None:
    self._proposer().plan = plan

  @property
  def has_looked_at_all(self) -> bool:
    """See `proposals.Proposer`."""
    return self._proposer().has_looked_at_all

  @has_looked_at_all.setter
  def has_looked_at_all(self, value: bool) -> None:
    self._proposer().has_looked_at_all = value

  def proposals(
    self,
    lowered: jax.stages.Lowered,
    measured: Measured,
    stop: threading.Event,
  ) -> Generator[Proposal, None, str | None]:
    """See `proposals.Proposer`."""
    return self._proposer().proposals(lowered, measured, stop)

  def compile(
    self, lowered: jax.stages.Lowered, payload: bytes
  ) -> jax.stages.Compiled:
    """See `proposals.Proposer`."""
    return self._proposer().compile(lowered, payload)

  def compile_for_profile(
    self, lowered: jax.stages.Lowered
  ) -> jax.stages.Compiled:
    """See `proposals.Proposer`."""
    return self._proposer().compile_for_profile(lowered)

  def digest(self, compiled: jax.stages.Compiled) -> bytes:
    """See `proposals.Proposer`."""
    return self._proposer().digest(compiled)

  def _proposer(self) -> Proposer:
    with self._lock:
      if self._made is None:
        self._made = self._make()
        # Verdicts on what it proposes need it, in the thread that trains.
        importlib.import_module("scipy.special")
      return self._made


def check_none(lowered: jax.stages.Lowered) -> None:
  """Checks that a step works on no refs.

  Of an executable that does, JAX (0.10.2 to 0.12) tells neither the types nor
  the shardings of its results, so nobody knows whether it may take the place of
  another one.

  Raises:
    TargetError: it does.
  """
  if lowerings.changes_refs(lowered):
    raise errors.TargetError(
      "it works on a jax.ref.Ref (jax.new_ref), and what an executable with one"
      " returns cannot be compared; to have it tuned, pass the array itself,"
      " donated, and return the new one."
    )
