# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""A regrouped train step trains to the same bits, seen by running it on CPUs.

Three steps of a stack of two-layer perceptrons, sharded over eight devices:
FSDP as XLA partitions it (all-gathers and all-reduces), FSDP written by hand
(all-gathers and reduce-scatters), and TP beside data parallelism (all-reduces
over either axis of a mesh).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lagom_xla import cluster
from lagom_xla import errors
from lagom_xla.compile import config as config_lib
from lagom_xla.compile import target as target_lib
from lagom_xla.passes import hlo
from lagom_xla.passes import in_compile
from lagom_xla.passes import registry
from lagom_xla.passes.combine import combinable
from lagom_xla.passes.combine import table

P = jax.sharding.PartitionSpec
Groups = combinable.Groups

_NUM_LAYERS = 3
_WIDTH = 32
_HIDDEN = 64
_NUM_ROWS = 128
_NUM_STEPS = 10
_STEPS = ["fsdp", "manual_fsdp", "tp"]


class _Training:
  """A train step with its initial parameters, compiled anew for each use."""

  def __init__(self, kind: str):
    shape = (2, 4) if kind == "tp" else (8, 1)
    devices = np.array(jax.devices()).reshape(shape)
    self.mesh = jax.sharding.Mesh(devices, ("data", "model"))
    self.kind = kind
    rng = np.random.default_rng(0)
    self.shardings, self.params = {}, {}
    for name in [f"{n}{i}" for i in range(_NUM_LAYERS) for n in ("up", "down")]:
      is_up = name.startswith("up")
      spec = P(None, "model") if is_up else P("model", None)
      self.shardings[name] = self._sharding(spec if kind == "tp" else P("data"))
      size = (_WIDTH, _HIDDEN) if is_up else (_HIDDEN, _WIDTH)
      value = (rng.normal(size=size) / 8).astype(np.float32)
      self.params[name] = jax.device_put(value, self.shardings[name])
    rows = rng.normal(size=(_NUM_ROWS, _WIDTH)).astype(np.float32)
    self.rows = jax.device_put(rows, self._sharding(P("data")))

  def _sharding(self, spec: Any) -> jax.sharding.NamedSharding:
    return jax.sharding.NamedSharding(self.mesh, spec)

  def _gather(self, weight: jax.Array) -> jax.Array:
    if self.kind == "fsdp":
      return jax.lax.with_sharding_constraint(weight, self._sharding(P()))
    if self.kind == "manual_fsdp":
      return jax.lax.all_gather(weight, "data", tiled=True)
    return weight

  def _loss(self, params: dict[str, jax.Array], h: jax.Array) -> jax.Array:
    for i in range(_NUM_LAYERS):
      hidden = jax.nn.relu(h @ self._gather(params[f"up{i}"]))
      h = h + hidden @ self._gather(params[f"down{i}"])
    return jnp.mean(jnp.square(h))

  def lower(self) -> jax.stages.Lowered:
    def step(params: Any, h: jax.Array) -> Any:
      grads = jax.grad(self._loss)(params, h)
      return jax.tree.map(lambda p, g: p - 0.01 * g, params, grads)

    if self.kind == "manual_fsdp":
      step = jax.shard_map(
        step, mesh=self.mesh, in_specs=P("data"), out_specs=P("data")
      )
    jitted = jax.jit(step, out_shardings=self.shardings)
    return jitted.lower(self.params, self.rows)

  def compile(self, groups: Groups | None) -> jax.stages.Compiled:
    with in_compile.grouped("jit_step", groups, platform="cpu"):
      return self.lower().compile()

  def train(self, step: jax.stages.Compiled) -> dict[str, np.ndarray]:
    params = self.params
    for _ in range(_NUM_STEPS):
      params = step(params, self.rows)
    return jax.device_get(params)

  def candidates(self) -> dict[str, combinable.Candidate]:
    module = in_compile.run_to(
      registry.Stage.PRE_SCHEDULER,
      self.lower().compile,
      "jit_step",
      platform="cpu",
    )
    assert module is not None
    return combinable.find(hlo.Module(module), as_written=True)


def _all_together(candidates: dict[str, combinable.Candidate]) -> Groups:
  """Groups that are as large as they can be."""
  groups: list[tuple[str, ...]] = []
  for label in candidates:
    for number, group in enumerate(groups):
      grown = [*groups[:number], (*group, label), *groups[number + 1 :]]
      try:
        combinable.check(candidates, tuple(grown))
      except errors.CombineError:
        continue
      groups = grown
      break
    else:
      groups.append((label,))
  return tuple(groups)


def _check_combined(
  compiled: jax.stages.Compiled,
  candidates: dict[str, combinable.Candidate],
  groups: Groups,
) -> None:
  """Checks kind and number of arrays of each collective."""
  named = {label for group in groups for label in group}
  alone = [(label,) for label in candidates.keys() - named]
  assert sorted(
    (i.opcode, len(i.operand_ids))
    for c in hlo.load(compiled).computations.values()
    for i in c.instructions
    if i.opcode in table.COMBINERS
  ) == sorted((candidates[g[0]].kind, len(g)) for g in (*groups, *alone))


@pytest.fixture(scope="module", params=_STEPS)
def training(request: pytest.FixtureRequest) -> _Training:
  return _Training(request.param)


@pytest.fixture(scope="module")
def parameters(training: _Training) -> dict[str, np.ndarray]:
  """What training gives with XLA's own combining."""
  return training.train(training.compile(None))


@pytest.fixture(scope="module")
def candidates(training: _Training) -> dict[str, combinable.Candidate]:
  return training.candidates()


_REGROUPINGS: dict[str, Callable[[Groups], Groups]] = {
  "all apart": lambda together: (),
  "all together": lambda together: together,
  "in pairs": lambda together: tuple(
    group[first : first + 2]
    for group in together
    for first in range(0, len(group), 2)
  ),
  "first with last": lambda together: tuple(
    (group[-1], group[0]) for group in together if len(group) > 1
  ),
}


@pytest.mark.parametrize("name", _REGROUPINGS)
def test_ten_regrouped_steps_give_the_same_bits(
  training: _Training,
  parameters: dict[str, np.ndarray],
  candidates: dict[str, combinable.Candidate],
  name: str,
) -> None:
  groups = _REGROUPINGS[name](_all_together(candidates))
  step = training.compile(groups)
  _check_combined(step, candidates, groups)
  trained = training.train(step)
  assert trained.keys() == parameters.keys()
  for parameter, value in parameters.items():
    np.testing.assert_array_equal(trained[parameter], value)
    # Training did something.
    assert np.any(value != np.asarray(training.params[parameter]))


def test_the_steps_have_every_kind_to_combine(
  training: _Training, candidates: dict[str, combinable.Candidate]
) -> None:
  groups = _all_together(candidates)
  assert {candidates[g[0]].kind for g in groups if len(g) > 1} == {
    "fsdp": {"all-gather", "all-reduce"},
    "manual_fsdp": {"all-gather", "reduce-scatter"},
    "tp": {"all-reduce"},
  }[training.kind]


def test_a_cpu_that_stands_for_gpus_compiles_with_groups(
  training: _Training, candidates: dict[str, combinable.Candidate]
) -> None:
  groups = _all_together(candidates)
  h100s = cluster.parse("1x8xh100")
  target = target_lib.of_step(training.lower(), h100s, name="step")
  config = config_lib.XlaConfig(combine_groups=groups)
  step = target.compile(config).compiled
  assert step is not None
  _check_combined(step, candidates, groups)
