# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Proposals on CPUs: other ways to run a step, and what each should take.

On CPUs a step's collectives are gloo's, over the hosts' own network. XLA:CPU
runs them in the order of the schedule, each on a thread that it blocks, and by
default nothing beside them. `way` says in what a step can differ, `compiling`
makes it so, by the passes `end_to_end` and `behind_products`. `fit` has what
the step's parts took, `replay` foresees what they would take in another way,
and `proposer` looks at ways and ranks them.

`lagom_xla.tune` measures nothing on CPUs unless this is plugged in: it is how
the loop that tunes while a step trains is proved without GPUs.
"""

from __future__ import annotations

from lagom_xla.live import proposals
from lagom_xla.live import tuned


def plug_in() -> None:
  """Has steps on CPUs tuned from now on."""
  tuned.PROPOSERS["cpu"] = lambda *unused: proposals.deferred(_made)


def _made() -> proposals.Proposer:
  from benchmarks.live.cpu import proposer

  return proposer.CpuProposer()
