# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Training is tuned on software GPUs: profiled, searched, measured, adopted.

Products take 6 ms each, and slow links make a collective take about as long. So
the order of collectives matters in wall time as in a prediction from the
profile, and other work on the host hardly matters.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
import json
import logging
import pathlib
import re
import time
from typing import Any

from absl import logging as absl_logging
import jax
import jax.numpy as jnp
from jax.sharding import AxisType
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec
import pytest

import fixed_proposals
import lagom_xla
from lagom_xla.compile import config as config_lib
from lagom_xla.live import loop
from lagom_xla.live import proposals as proposals_lib
from lagom_xla.live import tuned

_SIZE, _NUM_LAYERS, _NUM_ROWS = 4096, 4, 1024
_SETTINGS = {"kernels": "6000 gemm\n6000 nvjet\n", "LINK_GBPS": 3}
_GROUPS = "each collective alone"
_LOG, _CACHE = "trials.jsonl", "plans"
# It takes half a minute on two idle cores.
_LONGEST_S = 300.0


def _training() -> tuple[Any, Any, jax.Array]:
  """A jitted FSDP step, its weights and its batch."""
  mesh = jax.make_mesh(
    (jax.device_count(),), ("data",), axis_types=(AxisType.Auto,)
  )
  sharded = NamedSharding(mesh, PartitionSpec("data"))

  def loss(weights: list[jax.Array], x: jax.Array) -> jax.Array:
    for weight in weights:
      x = jnp.tanh(x @ weight)
    return (x.astype(jnp.float32) ** 2).mean()

  def step(
    weights: list[jax.Array], x: jax.Array
  ) -> tuple[list[jax.Array], jax.Array]:
    value, gradients = jax.value_and_grad(loss)(weights, x)
    updated = [
      jax.lax.with_sharding_constraint(w - g, sharded)
      for w, g in zip(weights, gradients, strict=True)
    ]
    return updated, value

  zeros = jnp.zeros((_SIZE, _SIZE), jnp.bfloat16)
  weights = [jax.device_put(zeros, sharded) for _ in range(_NUM_LAYERS)]
  batch = jnp.zeros((_NUM_ROWS * jax.device_count(), _SIZE), jnp.bfloat16)
  return jax.jit(step), weights, jax.device_put(batch, sharded)


def _tuned(jitted: Any, **options: Any) -> Any:
  """A step tuned at any cost to the run, because cores here are few."""
  tuned.LIMITS = loop.Limits(overhead_steps=1e9)
  return lagom_xla.tune(jitted, **options)


def _trials() -> list[dict[str, Any]]:
  """The trials in the log."""
  log = pathlib.Path(_LOG)
  return [json.loads(line) for line in log.open()] if log.exists() else []


def _calls(step: Any, weights: Any, x: jax.Array) -> Iterator[None]:
  """Trains; yields after each call."""
  until_s = time.monotonic() + _LONGEST_S
  while time.monotonic() < until_s:
    weights, _ = step(weights, x)
    yield
  pytest.fail(step.report())


def a_step_is_tuned_while_it_trains() -> None:
  jitted, weights, x = _training()
  tuned.PROPOSERS["gpu"] = lambda *unused: fixed_proposals.Proposer(
    cluster=proposals_lib.of_live_gpus(),
    searches=True,
    configs={_GROUPS: config_lib.XlaConfig(combine_groups=())},
  )
  step = _tuned(jitted, log=_LOG, cache=_CACHE)
  for _ in _calls(step, weights, x):
    if "nothing is left" in (report := step.report()):
      print(report)
      return


def an_adopted_plan_is_tried_first() -> None:
  jitted, weights, x = _training()
  step = _tuned(jitted, log=_LOG, cache=_CACHE)
  num_before = len(_trials())
  for _ in _calls(step, weights, x):
    if len(_trials()) > num_before:
      return


def test_a_faster_plan_is_adopted_and_tried_first_by_the_next_run(
  on_gpus: Callable[..., str], tmp_path: pathlib.Path
) -> None:
  said = on_gpus(a_step_is_tuned_while_it_trains, **_SETTINGS)
  lines = (tmp_path / _LOG).read_text().splitlines()
  trials = [json.loads(line) for line in lines]
  adopted = [trial for trial in trials if trial["adopted"]]
  assert adopted, said
  assert all("(software GPU)" in trial["devices"] for trial in trials)
  assert "on: 2 NVIDIA H100 80GB HBM3 (software GPU)" in said
  assert all(trial["high"] < 1 for trial in adopted)
  # The prediction is based on a profile of this step with these links, which
  # are a hundred times slower than an H100's.
  assert adopted[0]["predicted_ratio"] < 0.95
  (ratio,) = re.findall(r"ms now: ([\d.]+) of the time", said)
  assert float(ratio) < 0.95
  # Combine groups are compiled in the run, without a new signature.
  assert {t["proposal"]: t["ratio"] for t in trials}[_GROUPS] is not None
  assert len(re.findall("^step: ", said, re.MULTILINE)) == 1
  on_gpus(an_adopted_plan_is_tried_first, **_SETTINGS)
  latest = json.loads((tmp_path / _LOG).read_text().splitlines()[-1])
  assert latest["payload"] == adopted[-1]["payload"]
  assert latest["adopted"]


def predictions_replace_a_missing_profile() -> None:
  said: list[str] = []
  handler = logging.Handler()
  handler.emit = lambda record: said.append(record.getMessage())
  absl_logging.get_absl_logger().addHandler(handler)
  jitted, weights, x = _training()
  step = _tuned(jitted, cache=False)
  for _ in _calls(step, weights, x):
    is_predicted = any("Costs are predicted instead" in line for line in said)
    if is_predicted:
      print(*said, sep="\n")
      return


def test_training_continues_if_another_profiler_has_the_gpus(
  on_gpus: Callable[..., str],
) -> None:
  said = on_gpus(
    predictions_replace_a_missing_profile, CUPTI="taken", **_SETTINGS
  )
  assert "On GPUs, stop other profilers" in said
