# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Trains an example's step on its text, like its command line."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest

from common import data
from common import loop


def metrics_of(
  step: Any, specs: Any, state: Any, *, num_steps: int
) -> dict[str, np.ndarray]:
  """The metrics of this many steps, by name, starting from a host's state."""
  state_spec, batch_spec = specs
  shardings = jax.tree.map(lambda spec: spec.sharding, state_spec)
  batch_size, seq_len = batch_spec["inputs"].shape
  metrics = loop.train(
    step,
    jax.device_put(state, shardings),
    data.byte_batches(
      data.TEXT.read_bytes(), batch_size=batch_size, seq_len=seq_len
    ),
    place=batch_spec["inputs"].sharding,
    num_steps=num_steps,
  )
  rows = list(metrics)
  return {name: np.array([row[name] for row in rows]) for name in rows[0]}


def assert_learns(metrics: dict[str, np.ndarray]) -> None:
  """Checks that the loss starts at chance and falls."""
  assert metrics["loss"][0] == pytest.approx(np.log(256), rel=0.05)
  assert metrics["loss"][-5:].mean() < 2.7


def assert_alike(here: dict[str, Any], there: dict[str, Any]) -> None:
  """Checks that trainings on other meshes or with a split batch are equal.

  They differ only in the order of bfloat16 sums: by up to 0.3 % in the first
  ten losses, after which training amplifies the difference. Clipping and AdamW
  hide a gradient's scale from the loss, but not from its norm.
  """
  num_steps = len(here["loss"])
  np.testing.assert_allclose(here["loss"], there["loss"][:num_steps], rtol=0.01)
  np.testing.assert_allclose(
    here["grad_norm"][0], there["grad_norm"][0], rtol=0.01
  )
