# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""The training of an example's step on its text, as its command line does."""

from __future__ import annotations

import pathlib
import sys
from typing import Any

import jax
import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "examples"))

from common import data
from common import loop


def metrics_of(
  compiled: Any, specs: Any, state: Any, *, num_steps: int
) -> dict[str, np.ndarray]:
  """The metrics of all steps, by name.

  Args:
    compiled: the step.
    specs: shapes and shardings of its state and its batches.
    state: where to start, on the host.
    num_steps: how many steps to run.
  """
  state_spec, batch_spec = specs
  shardings = jax.tree.map(lambda spec: spec.sharding, state_spec)
  batch_size, seq_len = batch_spec["inputs"].shape
  metrics = loop.train(
    compiled,
    jax.device_put(state, shardings),
    data.byte_batches(
      data.TEXT.read_bytes(), batch_size=batch_size, seq_len=seq_len
    ),
    place=batch_spec["inputs"].sharding,
    num_steps=num_steps,
  )
  rows = list(metrics)
  return {name: np.array([row[name] for row in rows]) for name in rows[0]}
