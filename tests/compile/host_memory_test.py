# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Arrays that a step keeps in the host's memory stay there, however it comes.

The optimizer's state is on the host: a step moves all of it in and out again.
"""

from __future__ import annotations

from collections.abc import Sequence
import pathlib
from typing import Any
import warnings

import jax
import pytest

from lagom_xla import cluster as cluster_lib
from lagom_xla import errors
from lagom_xla.compile import config as config_lib
from lagom_xla.compile import load
from lagom_xla.compile import target as target_lib
from lagom_xla.passes import hlo
from lagom_xla.passes import overlap

_CLUSTER = cluster_lib.parse("1x8xh100")
_WIDTH = 1024
# A device's part of the state: float32, split over eight.
_STATE_BYTES = _WIDTH * _WIDTH * 4 // 8

_STEPS = f"""\
import jax
import jax.numpy as jnp
from jax.sharding import Mesh, NamedSharding, PartitionSpec
import numpy as np

def build(devices, kind, by_method=False):
  mesh = Mesh(np.array(devices), ("data",))
  rows = NamedSharding(mesh, PartitionSpec("data"))
  here = NamedSharding(mesh, PartitionSpec("data"), memory_kind="device")
  if by_method:
    kept = here.with_memory_kind(kind)
  else:
    kept = NamedSharding(mesh, PartitionSpec("data"), memory_kind=kind)

  def step(w, state, x):
    state = jax.device_put(state, here) + jax.grad(
      lambda w: jnp.square(x @ w).mean()
    )(w)
    return w - state, jax.device_put(state, kept)

  def array(sharding):
    shape = ({_WIDTH}, {_WIDTH})
    return jax.ShapeDtypeStruct(shape, jnp.float32, sharding=sharding)

  jitted = jax.jit(step, out_shardings=(rows, kept))
  return jitted, (array(rows), array(kept), array(rows))

def on_host(devices):
  return build(devices, "pinned_host")

def by_method(devices):
  return build(devices, "pinned_host", by_method=True)

def on_device(devices):
  return build(devices, "device")

def of_its_own(devices):
  return build(jax.devices(), "pinned_host")

class Lowers:
  def __init__(self, devices):
    self.step, self.args = on_host(devices)
  def lower(self):
    return self.step.lower(*self.args)
"""


@pytest.fixture
def steps(h100s: Sequence[jax.Device], tmp_path: pathlib.Path) -> str:
  del h100s  # Only says whether there is anything to compile with.
  file = tmp_path / "steps.py"
  file.write_text(_STEPS)
  return str(file)


def moved(module: hlo.Module) -> list[tuple[bool, int]]:
  """Whether each host copy goes to the host, and its bytes."""
  copies = overlap.analyze(module).host_copies
  return sorted((copy.to_host, copy.num_bytes) for copy in copies)


_BOTH_WAYS = [(False, _STATE_BYTES), (True, _STATE_BYTES)]


@pytest.mark.parametrize("function", ["on_host", "by_method"])
def test_a_sharding_into_the_hosts_memory_is_kept_and_told_of(
  steps: str, function: str
) -> None:
  with warnings.catch_warnings(record=True) as said:
    warnings.simplefilter("always")
    target = load.load(f"{steps}:{function}", _CLUSTER)
  # A JAX that does not forget it has the step itself tuned, without a word.
  is_lowered_over_cpus = isinstance(target, target_lib.ModuleTarget)
  words = [str(each.message) for each in said]
  assert any("into pinned_host," in w for w in words) == is_lowered_over_cpus
  assert moved(target.schedule()) == _BOTH_WAYS


def test_a_mesh_of_its_own_needs_no_word(steps: str) -> None:
  target = load.load(f"{steps}:of_its_own", _CLUSTER)
  assert moved(target.schedule()) == _BOTH_WAYS


def test_an_array_that_stays_on_the_device_needs_none_either(
  steps: str,
) -> None:
  target = load.load(f"{steps}:on_device", _CLUSTER)
  assert isinstance(target, target_lib.StepTarget)
  assert not moved(target.schedule())


def test_a_step_that_cannot_be_traced_again_is_refused(steps: str) -> None:
  with pytest.raises(errors.TargetError, match="have it return "):
    load.load(f"{steps}:Lowers", _CLUSTER)


@pytest.mark.parametrize("stage", ["before_optimizations", "after_spmd_parti"])
@pytest.mark.parametrize("kind", ["txt", "hlo.pb"])
def test_a_dump_keeps_what_is_on_the_host(
  steps: str, tmp_path: pathlib.Path, stage: str, kind: str
) -> None:
  options: dict[str, Any] = {
    "xla_dump_to": str(tmp_path),
    "xla_dump_hlo_as_text": True,
    "xla_dump_hlo_as_proto": True,
  }
  target = load.load(f"{steps}:of_its_own", _CLUSTER)
  target.schedule(config_lib.XlaConfig(options=options))
  (file, *_) = tmp_path.glob(f"*jit_step.{stage}*.{kind}")
  dumped = load.load(str(file), _CLUSTER)
  assert moved(dumped.schedule()) == _BOTH_WAYS
