# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Signatures of a step: those that JAX knows, and stale ones.

After `jax.clear_caches` jit traces, lowers and compiles a step anew. What runs
in its place is compiled anew as well, and what was found out stays.

Jit also lowers anew where a module was imported that brings settings for
traces, such as Pallas. What runs in the step's place is as good as before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import jax

from lagom_xla import dispatch
from lagom_xla.jax_internals import caches
from lagom_xla.jax_internals import lowerings
from lagom_xla.live.calls import signature as signature_lib

# Makes the signature of a new lowering.
Begin = Callable[[dispatch.Jitted, jax.stages.Lowered], signature_lib.Signature]


class Signatures:
  """Those of one step; threads may look while one begins another.

  Args:
    jitted: The step.
    begin: Called once for each new lowering. It raises only what the caller of
      the step is to hear.
  """

  def __init__(self, jitted: dispatch.Jitted, begin: Begin):
    self._jitted = jitted
    self._begin = begin
    self._known: dict[Any, signature_lib.Signature] = {}
    self._stale: list[signature_lib.Signature] = []
    self._clearings = caches.Clearings()

  def __iter__(self) -> Iterator[signature_lib.Signature]:
    """Those that JAX knows, each once."""
    return iter(list(dict.fromkeys(self._known.values())))

  def find(self, lowered: jax.stages.Lowered) -> signature_lib.Signature | None:
    """The one of a step as it was lowered, if it has begun."""
    return self._known.get(lowerings.identity_of(lowered))

  def begin(self, lowered: jax.stages.Lowered) -> signature_lib.Signature:
    """A new one; if it is of the same step, one that is known, or a stale one.

    The stale one is compiled again.
    """
    if self._clearings.has_come():
      self._stale += [it for it in self if it.is_live]
      self._known.clear()
    found = (
      self._lowered_anew(lowered)
      or self._renewed(lowered)
      or self._begin(self._jitted, lowered)
    )
    self._known[lowerings.identity_of(lowered)] = found
    return found

  def fail(self, error: Exception) -> None:
    """A variant raised, and none but jit's own is run any more."""
    for signature in self:
      signature.fail(error)

  def close(self) -> None:
    """They are called no more."""
    for signature in (*self, *self._stale):
      signature.close()
    self._known.clear()
    self._stale.clear()

  def _lowered_anew(
    self, lowered: jax.stages.Lowered
  ) -> signature_lib.Signature | None:
    return next((it for it in self if it.is_of(lowered)), None)

  def _renewed(
    self, lowered: jax.stages.Lowered
  ) -> signature_lib.Signature | None:
    for signature in self._stale:
      if signature.is_of(lowered):
        self._stale.remove(signature)
        signature.renew(lowered)
        return signature
    return None
