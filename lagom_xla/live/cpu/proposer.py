# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Proposer of ways to run a step on CPUs, ranked by their replays.

Of the step as it runs, the parts are measured, or at least its time. Every way
that the search has time for is scheduled by XLA and replayed with the costs
that explain that; those that should take less than the step as it is are
proposed, the quickest first.
"""

from __future__ import annotations

from collections.abc import Generator
import threading

from absl import logging
import jax

from lagom_xla import errors
from lagom_xla.live import proposals as proposals_lib
from lagom_xla.live.cpu import budget as budget_lib
from lagom_xla.live.cpu import compiling
from lagom_xla.live.cpu import fit
from lagom_xla.live.cpu import foreseen as foreseen_lib
from lagom_xla.live.cpu import trace
from lagom_xla.live.cpu import way as way_lib
from lagom_xla.live.cpu import ways as ways_lib
from lagom_xla.live.cpu import work
from lagom_xla.passes import collectives
from lagom_xla.passes import hlo


class CpuProposer(proposals_lib.Proposer):
  """Proposes groups, orders, strands and slices; see `proposals.Proposer`."""

  def proposals(
    self,
    lowered: jax.stages.Lowered,
    measured: proposals_lib.Measured,
    stop: threading.Event,
  ) -> Generator[proposals_lib.Proposal, None, str | None]:
    """Yields the ways that should take less than the step does, best first.

    Raises:
      DonationLostError: the step donates, and this JAX would forget that.
    """
    self.has_looked_at_all = True
    budget = budget_lib.Budget(measured.search_s)
    with budget.looking(way_lib.AS_XLA_DOES.form):
      as_it_is = compiling.schedule(lowered, way_lib.AS_XLA_DOES)
    if not collectives.find(as_it_is):
      return "it has no collectives, and on CPUs nothing else is tuned"
    # All other ways have passes, so what holds for one holds for all.
    compiling.check_donation(lowered, way_lib.Way(is_ordered=True))
    costs, is_predicted = _costs(as_it_is, measured)
    foresight = foreseen_lib.Foresight(as_it_is, costs)
    words = _look(lowered, foresight, budget, stop)
    self.has_looked_at_all = words is None
    if stop.is_set():
      return None
    best = foresight.best()
    for one in best:
      yield proposals_lib.Proposal(
        name=way_lib.in_words(one.way),
        payload=way_lib.to_bytes(one.way),
        predicted_ratio=one.ratio if is_predicted else None,
      )
    if words is None and not best:
      return "no other way is foreseen to take less"
    return words

  def compile(
    self, lowered: jax.stages.Lowered, payload: bytes
  ) -> jax.stages.Compiled:
    """Compiles a proposal; see `proposals.Proposer`."""
    return compiling.compiled(lowered, way_lib.from_bytes(payload))

  def digest(self, compiled: jax.stages.Compiled) -> bytes:
    """A hash of the collectives, in the order in which they run."""
    return compiling.digest(compiled)


def _look(
  lowered: jax.stages.Lowered,
  foresight: foreseen_lib.Foresight,
  budget: budget_lib.Budget,
  stop: threading.Event,
) -> str | None:
  """Looks at ways; returns why not at all of them, if there is time for less.

  None where nobody waits any more, too.
  """
  ways = ways_lib.likely_first(lowered, foresight.best_group_bytes)
  num_seen = 0
  for way in ways:
    if stop.is_set():
      return None
    if not budget.has_time(way.form):
      num_ways = num_seen + 1 + sum(1 for _ in ways)
      words = (
        f"the search looked at {num_seen} of {num_ways} ways, as to look at"
        " more might have cost too much"
      )
      logging.info("lagom_xla.tune: %s", words)
      return words
    with budget.looking(way.form):
      try:
        foresight.take(way, compiling.schedule(lowered, way))
      except errors.LagomError as error:
        logging.debug("%s: %s", way_lib.in_words(way), errors.first_line(error))
    num_seen += 1
  return None


def _costs(
  module: hlo.Module, measured: proposals_lib.Measured
) -> tuple[work.Costs, bool]:
  """The host's costs, and whether they are good enough to predict by."""
  if measured.trace_dir is not None:
    try:
      return fit.costs(module, trace.usual(measured.trace_dir, module)), True
    except errors.TraceError as error:
      # Where the loop has given up, it is gone, and nobody waits for the costs.
      if measured.trace_dir.exists():
        logging.warning("lagom_xla.tune: no times of parts: %s", error)
  return fit.without_trace(module, measured.step_s), False
