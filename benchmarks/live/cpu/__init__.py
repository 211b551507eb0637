# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Proposals on CPUs: other ways to run a step, with predicted times.

On CPUs, a step's collectives are gloo's, over the hosts' own network. XLA:CPU
runs them in the order of the schedule, each on a thread that it blocks, and by
default with nothing beside them. `compiling` has the ways to run a step, and
compiles them with the passes `end_to_end` and `behind_products`. `fit` fits the
costs of the step's parts, `replay` predicts a way's time from these, and
`proposer` ranks the ways.

Without this plug-in, `lagom_xla.tune` measures nothing on CPUs. It tests the
loop that tunes while a step trains, without GPUs.
"""

from __future__ import annotations

from lagom_xla.live import proposals
from lagom_xla.live import tuned


def plug_in() -> None:
  """Enables tuning of steps on CPUs from now on."""
  tuned.PROPOSERS["cpu"] = lambda *unused: proposals.deferred(_made)


def _made() -> proposals.Proposer:
  from benchmarks.live.cpu import proposer

  return proposer.CpuProposer()
