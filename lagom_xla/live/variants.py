# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Variants of a step in this process, compiled in a thread.

A candidate is called in place of jit's own executable, with the same arguments.
So shapes, types, shardings and donated arguments must be equal, and its memory
must be available.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
import threading
from typing import Any

import jax

from lagom_xla import errors
from lagom_xla.jax_internals import caches
from lagom_xla.jax_internals import jit
from lagom_xla.jax_internals import lowerings
from lagom_xla.live import phases
from lagom_xla.live import proposals
from lagom_xla.live import shutdown


class Variants:
  """The executables of a signature other than jit's own, by number.

  The compile's thread calls `vote` with the number and the result.
  """

  def __init__(
    self,
    proposer: proposals.Proposer,
    lowered: jax.stages.Lowered,
    vote: Callable[[int, phases.Vote], None],
  ):
    self._proposer = proposer
    self._lowered = lowered
    self._vote = vote
    self._wanted: frozenset[int] = frozenset()
    self._compiled: dict[int, jax.stages.Compiled] = {}
    # The payloads and digests of variants.
    self._payloads: dict[int, bytes] = {}
    self._digests: dict[int, str] = {}
    self._latest_build = 0
    self._lock = threading.Lock()

  def get(self, number: int) -> jax.stages.Compiled:
    """The executable of a variant."""
    return self._compiled[number]

  def keep(self, numbers: Collection[int]) -> None:
    """Drops all variants except these, even those yet to be compiled."""
    with self._lock:
      self._wanted = frozenset(numbers)
      for number in self._compiled.keys() - self._wanted:
        del self._compiled[number]
      for number in self._payloads.keys() - self._wanted:
        del self._payloads[number]

  def is_of(self, lowered: jax.stages.Lowered) -> bool:
    """Whether these are variants of this lowered step."""
    return caches.is_same_step(self._lowered, lowered)

  def renew(self, lowered: jax.stages.Lowered) -> None:
    """Recompiles all variants, as jit recompiles the step.

    Raises a TargetError if the collectives of a variant changed.
    """
    with self._lock:
      self._lowered = lowered
      numbers = tuple(self._compiled)
    for number in numbers:
      self._compiled[number] = compiled = self._build(number)
      if self._proposer.digest(compiled) != self._digests[number]:
        raise errors.TargetError(
          "a variant of it no longer compiles to the same collectives."
        )

  def compile(self, number: int, proposal: proposals.Proposal) -> None:
    """Compiles a proposal in a thread, then votes."""
    self._payloads[number] = proposal.payload
    self._begin(number)

  def compile_for_profile(self, number: int) -> None:
    """Compiles the step for profile -number in a thread, once, then votes."""
    if number != self._latest_build:
      self._latest_build = number
      self._begin(number)

  def _build(self, number: int) -> jax.stages.Compiled:
    if number < 0:
      compiled = self._proposer.compile_for_profile(self._lowered)
    else:
      payload = self._payloads[number]
      compiled = self._proposer.compile(self._lowered, payload)
    # A cache hit, because the step is running.
    ours = self._lowered.compile()
    check_alike(ours, compiled)
    check_fits(ours, compiled, lowerings.client_of(self._lowered))
    return compiled

  def _begin(self, number: int) -> None:
    try:
      shutdown.start(
        f"lagom_xla compile {number}",
        lambda: self._compile(number),
        threading.Event(),
      )
    except RuntimeError as error:  # No more threads can start.
      self._vote(number, phases.Vote(digest=None, words=str(error)))

  def _compile(self, number: int) -> None:
    try:
      compiled = self._build(number)
      digest = self._proposer.digest(compiled)
      vote = phases.Vote(digest=digest)
    except Exception as error:  # The others must learn of any error.
      vote = phases.Vote(digest=None, words=errors.first_line(error))
    else:
      with self._lock:
        if number in self._wanted:
          self._compiled[number] = compiled
          self._digests[number] = digest
    self._vote(number, vote)


def check_alike(ours: jax.stages.Compiled, theirs: jax.stages.Compiled) -> None:
  """Raises a TargetError unless one can be called in place of the other.

  If the shardings of results differed, so would the next call's signature.
  """
  for what, is_alike in (
    ("arguments", ours.args_info == theirs.args_info),
    ("results", _types(ours) == _types(theirs)),
    ("shardings of results", _is_placed_alike(ours, theirs)),
  ):
    if not is_alike:
      raise errors.TargetError(
        f"its {what} differ from the step's: a proposal must not change what"
        " a step takes and returns."
      )


def check_fits(
  ours: jax.stages.Compiled, theirs: jax.stages.Compiled, client: Any
) -> None:
  """Raises a TargetError if devices lack the memory for `theirs`.

  On GPUs, a call that runs out of memory loses its donated arguments.
  """
  num_bytes = _bytes_beside_arguments(theirs)
  if num_bytes <= _bytes_beside_arguments(ours):
    return
  for device in client.local_devices():
    stats = device.memory_stats() or {}
    if "bytes_limit" not in stats:
      continue
    num_left = stats["bytes_limit"] - stats["bytes_in_use"]
    if num_bytes > num_left:
      raise errors.TargetError(
        f"it needs {num_bytes / 2**20:,.0f} MiB beyond its arguments, and"
        f" {device} has {num_left / 2**20:,.0f} MiB left."
      )


def _bytes_beside_arguments(compiled: jax.stages.Compiled) -> int:
  """The bytes that a call allocates on each device."""
  memory = compiled.memory_analysis()
  if memory is None:
    return 0
  num_results = memory.output_size_in_bytes - memory.alias_size_in_bytes
  return memory.temp_size_in_bytes + num_results


def _types(compiled: jax.stages.Compiled) -> object:
  return jax.tree.map(
    lambda leaf: (leaf.shape, leaf.dtype, leaf.weak_type),
    jit.results_of(compiled),
  )


def _is_placed_alike(
  ours: jax.stages.Compiled, theirs: jax.stages.Compiled
) -> bool:
  return all(
    one.is_equivalent_to(other, len(leaf.shape))
    for one, other, leaf in zip(
      jax.tree.leaves(ours.output_shardings),
      jax.tree.leaves(theirs.output_shardings),
      jax.tree.leaves(jit.results_of(ours)),
      strict=True,
    )
  )
