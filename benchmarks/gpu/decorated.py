# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""The decorator around the Llama example's step: results and times.

`lagom_xla.tune` wraps the step as a user would write it. Losses are compared
with the plain step's, from the same state. Steps are then timed in turn with
the plain one's.
"""

from __future__ import annotations

import dataclasses
import pathlib
import threading
import time
from typing import Any
import warnings

from benchmarks.gpu import live_gpu
from benchmarks.gpu import part as part_lib
from benchmarks.gpu import traced_step

_PART = "decorated"
_NUM_STEPS = 10
_NUM_TIMED = 20
_TRAINING_S = 40.0
_SEARCH_BUDGET_S = 30.0


def measure(folder: pathlib.Path) -> dict[str, Any]:
  """Runs the step with the decorator and without."""
  live_gpu.check()
  return decorated(
    folder, model=traced_step.MODEL, cluster=live_gpu.cluster_name()
  )


def decorated(
  folder: pathlib.Path, *, model: str, cluster: str
) -> dict[str, Any]:
  """Losses, warnings and times with the decorator.

  Args:
    folder: to keep figures in.
    model: of the example.
    cluster: what the devices are, or stand for.
  """
  import lagom_xla

  plain, state, batches = traced_step.example(model)
  _, expected = traced_step.losses(plain, state, batches, _NUM_STEPS)
  figures: dict[str, Any] = {"losses": expected}
  _, state, batches = traced_step.example(model)
  with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    tuned: Any = lagom_xla.tune(plain, cluster=cluster)
    begin_s = time.monotonic()
    state, found = traced_step.losses(tuned, state, batches, _NUM_STEPS)
    # What measures as it trains has come to its end by then, or never does.
    num_steps = _trained(tuned, state, batches)
  differences = (abs(a - b) for a, b in zip(found, expected, strict=True))
  figures |= {
    "are_losses_equal": found == expected,
    "largest_difference": max(differences),
    "num_steps": num_steps,
    "report": str(tuned.report()) if hasattr(tuned, "report") else None,
    "seconds": time.monotonic() - begin_s,
    "warnings": [str(it.message) for it in caught],
  }
  part_lib.keep(folder, _PART, figures)
  _, state, batches = traced_step.example(model)
  figures["step_us"] = _in_turn(plain, tuned, state, batches)
  part_lib.keep(folder, _PART, figures)
  _, state, batches = traced_step.example(model)
  figures["proposals"] = _proposed(folder, plain, state, batches, cluster)
  return figures


def _trained(tuned: Any, state: Any, batches: Any) -> int:
  """Trains for a while; returns the number of steps."""
  end_s, num_steps = time.monotonic() + _TRAINING_S, 0
  while time.monotonic() < end_s:
    state, _ = traced_step.run(tuned, state, batches, 1)
    num_steps += 1
  return num_steps


def _in_turn(
  plain: Any, tuned: Any, state: Any, batches: Any
) -> dict[str, dict[str, float]]:
  """Times of steps with the decorator and without, one after the other."""
  times_us: dict[str, list[float]] = {"plain": [], "tuned": []}
  for _ in range(_NUM_TIMED):
    for name, step in (("plain", plain), ("tuned", tuned)):
      state, taken_us = traced_step.run(step, state, batches, 1)
      times_us[name] += taken_us
  return {name: traced_step.spread(us) for name, us in times_us.items()}


def _proposed(
  folder: pathlib.Path, plain: Any, state: Any, batches: Any, cluster: str
) -> list[dict[str, Any]]:
  """What a search beside the step proposes, and whether it compiles here."""
  from lagom_xla import cluster as cluster_lib
  from lagom_xla import errors
  from lagom_xla.live import gpu
  from lagom_xla.live import proposals

  trace = folder / traced_step.TRACE
  proposer = gpu.PlanProposer(
    cluster=cluster_lib.parse(cluster), time_budget_s=_SEARCH_BUDGET_S
  )
  measured = proposals.Measured(
    trace_dir=trace if trace.exists() else None, step_s=0.0, num_traced=0
  )
  rows: list[dict[str, Any]] = []
  lowered = plain.lower(state, next(batches))
  try:
    for proposal in proposer.proposals(lowered, measured, threading.Event()):
      rows.append(dataclasses.asdict(proposal) | {"payload": None})
      proposer.compile(lowered, proposal.payload)
  except errors.LagomError as error:
    rows.append({"reason": str(error)})
  return rows
