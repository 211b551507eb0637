# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Stale signatures: those of before JAX's caches were cleared.

After `jax.clear_caches` jit traces, lowers and compiles a step anew. What runs
in its place is compiled anew as well, and what was found out stays.
"""

from __future__ import annotations

from typing import Any

import jax

from lagom_xla.jax_internals import caches
from lagom_xla.live.calls import signature as signature_lib


class Stale:
  """The signatures of a step that JAX has forgotten."""

  def __init__(self) -> None:
    self._signatures: list[signature_lib.Signature] = []
    self._clearings = caches.Clearings()

  def take(
    self,
    lowered: jax.stages.Lowered,
    known: dict[Any, signature_lib.Signature],
  ) -> signature_lib.Signature | None:
    """The signature of a step that is lowered again, compiled again.

    Args:
      lowered: The step, of a signature that is not known.
      known: The signatures that are; empty after JAX's caches were cleared.

    Returns:
      None where the step is another one.
    """
    if self._clearings.has_come():
      self._signatures += [it for it in known.values() if it.is_live]
      known.clear()
    for signature in self._signatures:
      if signature.is_of(lowered):
        self._signatures.remove(signature)
        signature.renew(lowered)
        return signature
    return None

  def close(self) -> None:
    """They are called no more."""
    for signature in self._signatures:
      signature.close()
    self._signatures.clear()
