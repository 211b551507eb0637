# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Proposers that are made when they are first asked, in a thread.

What makes proposals takes most of a second to import. A run that is too short
for a search needs none of it, and in others a thread imports it beside
training.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
import importlib
import threading
from typing import TYPE_CHECKING

import jax

from lagom_xla.live import proposals as proposals_lib

if TYPE_CHECKING:
  from lagom_xla import plan as plan_lib


class Deferred(proposals_lib.Proposer):
  """A proposer that is yet to be made; see `proposals.Proposer`.

  Args:
    make: Imports and makes it. What it raises is raised by what is asked.
    has_profile_build: As of the proposer.
    lost_per_core: As of the proposer.
  """

  def __init__(
    self,
    make: Callable[[], proposals_lib.Proposer],
    *,
    has_profile_build: bool = False,
    lost_per_core: float = 0.0,
  ):
    self.has_profile_build = has_profile_build
    self.lost_per_core = lost_per_core
    self._make = make
    self._made: proposals_lib.Proposer | None = None
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
    measured: proposals_lib.Measured,
    stop: threading.Event,
  ) -> Generator[proposals_lib.Proposal, None, str | None]:
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

  def _proposer(self) -> proposals_lib.Proposer:
    with self._lock:
      if self._made is None:
        self._made = self._make()
        # Verdicts on what it proposes need it, in the thread that trains.
        importlib.import_module("scipy.special")
      return self._made
