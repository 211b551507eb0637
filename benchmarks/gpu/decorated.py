# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""The decorator around the Llama example's step: results and times.

`lagom_xla.tune` wraps the step as a user would write it. Losses are compared
with the plain step's, from the same state. Steps are then timed in turn with
the plain one's.
"""

from __future__ import annotations

import pathlib
import time
from typing import Any
import warnings

from benchmarks.gpu import environment
from benchmarks.gpu import part as part_lib
from benchmarks.gpu import traced_step

_NUM_STEPS = 10
_NUM_TIMED = 20
_TRAINING_S = 40.0


def measure(folder: pathlib.Path) -> dict[str, Any]:
  """Losses, warnings and times with the decorator and without."""
  environment.check()
  import lagom_xla

  plain, state, batches = traced_step.example()
  _, expected = traced_step.losses(plain, state, batches, _NUM_STEPS)
  _, state, batches = traced_step.example()
  num_steps = 0
  with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    tuned: Any = lagom_xla.tune(plain, cluster=environment.cluster_name())
    begin_s = time.monotonic()
    state, found = traced_step.losses(tuned, state, batches, _NUM_STEPS)
    # What measures as it trains has come to its end by then, or never does.
    end_s = time.monotonic() + _TRAINING_S
    while time.monotonic() < end_s:
      state, _ = traced_step.run(tuned, state, batches, 1)
      num_steps += 1
  differences = (abs(a - b) for a, b in zip(found, expected, strict=True))
  figures: dict[str, Any] = {
    "losses": expected,
    "are_losses_equal": found == expected,
    "largest_difference": max(differences),
    "num_steps": num_steps,
    "report": tuned.report(),
    "seconds": time.monotonic() - begin_s,
    "warnings": [str(it.message) for it in caught],
  }
  part_lib.keep(folder, "decorated", figures)
  _, state, batches = traced_step.example()
  times_us: dict[str, list[float]] = {"plain": [], "tuned": []}
  for _ in range(_NUM_TIMED):
    for name, step in (("plain", plain), ("tuned", tuned)):
      state, taken_us = traced_step.run(step, state, batches, 1)
      times_us[name] += taken_us
  spreads = {name: traced_step.spread(us) for name, us in times_us.items()}
  return figures | {"step_us": spreads}
