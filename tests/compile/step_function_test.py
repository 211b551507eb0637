# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Steps are found as users name and write them: modules, contexts, prints."""

from __future__ import annotations

from collections.abc import Sequence
import pathlib
import subprocess
import sys

import jax
from jax_cuda13_plugin import _versions as cuda_versions
import numpy as np
import pytest

import lagom_xla
from lagom_xla import cluster as cluster_lib
from lagom_xla import errors
from lagom_xla.compile import load
from lagom_xla.compile import target as target_lib
from lagom_xla.passes import collectives
from lagom_xla.tuner import tuner

_CLUSTER = cluster_lib.parse("1x8xh100")

# Flax's axis rules say nothing outside their context: a step that is lowered
# there is not sharded as its author meant, and nobody complains.
_STEPS = """\
import contextlib
from flax import linen as nn
import jax
import jax.numpy as jnp
from jax.sharding import Mesh, NamedSharding, PartitionSpec
import numpy as np

RULES = (("batch", "data"), ("hidden", "data"))

@jax.jit
def step(w, x):
  h = nn.with_logical_constraint(x, ("batch", None)) @ w
  return nn.with_logical_constraint(h, (None, "hidden"))

def mesh_of(devices):
  return Mesh(np.array(devices), ("data",))

def args_on(mesh):
  whole = NamedSharding(mesh, PartitionSpec())
  arg = jax.ShapeDtypeStruct((512, 512), jnp.bfloat16, sharding=whole)
  return arg, arg

def around(mesh):
  stack = contextlib.ExitStack()
  stack.enter_context(jax.set_mesh(mesh))
  stack.enter_context(nn.logical_axis_rules(RULES))
  return stack

@contextlib.contextmanager
def in_context(gpus):
  mesh = mesh_of(gpus)
  with around(mesh):
    yield step, args_on(mesh)

class Lowers:
  def __init__(self, mesh):
    self.mesh = mesh

  def lower(self):
    with around(self.mesh):
      return step.lower(*args_on(self.mesh))

def with_a_lower(gpus):
  return Lowers(mesh_of(gpus))

def already_lowered(gpus, *, unused=""):
  return with_a_lower(gpus).lower()

def outside(gpus):
  return step, args_on(mesh_of(gpus))

@jax.jit
def printing(w, x):
  jax.debug.print("of {}", x.sum())
  jax.debug.callback(print, w)
  return x @ w

def prints(devices):
  rows = NamedSharding(mesh_of(devices), PartitionSpec("data"))
  arg = jax.ShapeDtypeStruct((512, 512), jnp.bfloat16, sharding=rows)
  return printing, (arg, arg)

def attends(devices):
  rows = NamedSharding(mesh_of(devices), PartitionSpec("data"))
  arg = jax.ShapeDtypeStruct((8, 128, 8, 64), jnp.bfloat16, sharding=rows)
  def attend(x):
    return jax.nn.dot_product_attention(x, x, x, implementation="cudnn")
  return jax.jit(attend), (arg,)

def over_slices(devices):
  from jax.experimental import mesh_utils
  mesh_utils.create_hybrid_device_mesh((8,), (2,), devices=devices)

def over_hosts(devices):
  from jax.experimental import mesh_utils
  grid = mesh_utils.create_hybrid_device_mesh(
      (8,), (2,), devices=devices, process_is_granule=True)
  rows = NamedSharding(mesh_of(grid), PartitionSpec("data"))
  arg = jax.ShapeDtypeStruct((512, 512), jnp.bfloat16, sharding=rows)
  return jax.jit(lambda w, x: x @ w), (arg, arg)
"""

# The mesh is there before anybody knows of a cluster.
_AT_IMPORT = """\
import jax
import jax.numpy as jnp
from jax.sharding import NamedSharding, PartitionSpec
from . import sizes

mesh = jax.make_mesh((len(jax.devices()),), ("data",))
rows = NamedSharding(mesh, PartitionSpec("data"))

@jax.jit
def step(w, x):
  whole = NamedSharding(mesh, PartitionSpec())
  return x @ jax.lax.with_sharding_constraint(w, whole)

def step_args(_):
  arg = jax.ShapeDtypeStruct((sizes.N, sizes.N), jnp.bfloat16, sharding=rows)
  return arg, arg
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
  """Has `contexts.py`, and a package with `training.at_import`."""
  folder = tmp_path_factory.mktemp("program")
  (folder / "contexts.py").write_text(_STEPS)
  package = folder / "training_of_a_user"
  package.mkdir()
  (package / "__init__.py").touch()
  (package / "sizes.py").write_text("N = 512\n")
  (package / "at_import.py").write_text(_AT_IMPORT)
  return folder


def kinds_of(target: target_lib.Target) -> list[tuple[str, int]]:
  found = collectives.find(target.schedule())
  return sorted((c.kind, c.result_bytes) for c in found)


@pytest.mark.parametrize(
  "function", ["in_context", "with_a_lower", "already_lowered"]
)
def test_a_step_is_lowered_in_the_context_that_it_needs(
  h100s: Sequence[jax.Device], folder: pathlib.Path, function: str
):
  target = load.load(f"{folder}/contexts.py:{function}", _CLUSTER)
  # The batch is split for the product, and gathered for what comes after it.
  assert kinds_of(target) == [("all-gather", 2 * 512 * 512)]
  with pytest.warns(RuntimeWarning, match="nothing is split over"):
    outside = load.load(f"{folder}/contexts.py:outside", _CLUSTER)
  assert kinds_of(outside) == []


def test_a_context_around_the_call_is_that_of_a_decorated_step(
  folder: pathlib.Path, monkeypatch: pytest.MonkeyPatch
):
  monkeypatch.syspath_prepend(folder)
  import contexts  # pyrefly: ignore

  class Compiled:
    def __init__(self, target: target_lib.Target):
      self.compiled = target.compile()
      self.plan = None

  modules = []

  def tune(target: target_lib.Target, **_: object) -> Compiled:
    compiled = Compiled(target)
    modules.append(compiled.compiled.module)
    return compiled

  monkeypatch.setattr(tuner, "tune", tune)
  tuned = lagom_xla.tune(contexts.step, cluster=_CLUSTER)
  mesh = contexts.mesh_of(jax.devices())
  args = [
    jax.device_put(np.ones(a.shape, a.dtype), a.sharding)
    for a in contexts.args_on(mesh)
  ]
  with contexts.around(mesh):
    ours, theirs = tuned(*args), contexts.step(*args)
  np.testing.assert_array_equal(ours, theirs)
  assert ours.sharding.is_equivalent_to(theirs.sharding, 2)
  (module,) = modules
  assert collectives.find(module)


@pytest.mark.parametrize("is_file", [True, False])
def test_a_module_of_a_package_makes_its_mesh_at_import(
  h100s: Sequence[jax.Device],
  folder: pathlib.Path,
  monkeypatch: pytest.MonkeyPatch,
  is_file: bool,
):
  monkeypatch.chdir(folder)
  place = (
    "training_of_a_user/at_import.py"
    if is_file
    else "training_of_a_user.at_import"
  )
  target = load.load(f"{place}:step", _CLUSTER)
  assert kinds_of(target) == [("all-gather", 2 * 512 * 512)]


def test_there_are_as_many_devices_at_import_as_the_cluster_has(
  h100s: Sequence[jax.Device], folder: pathlib.Path
):
  program = f"""
from lagom_xla import cluster
from lagom_xla.compile import load
target = load.load(
    "{folder}/training_of_a_user/at_import.py:step", cluster.parse("2x8xh100"))
print(target.cluster.num_devices, target.schedule().num_partitions)
"""
  run = subprocess.run(
    [sys.executable, "-c", program],
    capture_output=True,
    text=True,
    check=False,
    env={"JAX_PLATFORMS": "cpu", "PYTHONPATH": ":".join(sys.path)},
  )
  assert run.returncode == 0, run.stderr
  assert run.stdout == "16 16\n"


@pytest.mark.parametrize(
  ("name", "message"),
  [
    ("no_such_package.train:step", "There is no module no_such_package: give"),
    ("training_of_a_user.no:step", "no module training_of_a_user.no: give a"),
    ("training_of_a_user.sizes:step", "training_of_a_user.sizes defines no st"),
  ],
)
def test_a_module_that_is_not_there_is_named(
  folder: pathlib.Path,
  monkeypatch: pytest.MonkeyPatch,
  name: str,
  message: str,
):
  monkeypatch.chdir(folder)
  with pytest.raises(errors.TargetError, match=message):
    load.load(name, _CLUSTER)


def test_debug_prints_are_left_out_with_a_warning(
  h100s: Sequence[jax.Device], folder: pathlib.Path
):
  with pytest.warns(RuntimeWarning, match="2 jax.debug calls are left out"):
    target = load.load(f"{folder}/contexts.py:prints", _CLUSTER)
  assert kinds_of(target) == [("all-gather", 2 * 512 * 512)]


def test_a_mesh_over_slices_says_how_to_have_one_over_hosts(
  h100s: Sequence[jax.Device], folder: pathlib.Path
):
  two_nodes = cluster_lib.parse("2x8xh100")
  with pytest.raises(errors.TargetError, match="process_is_granule=True"):
    load.load(f"{folder}/contexts.py:over_slices", two_nodes)
  target = load.load(f"{folder}/contexts.py:over_hosts", two_nodes)
  assert kinds_of(target) == [("all-gather", 2 * 512 * 512)]


def test_attention_without_cudnn_names_the_package(
  h100s: Sequence[jax.Device], folder: pathlib.Path
):
  text = f"{folder}/contexts.py:attends"
  try:
    cuda_versions.cudnn_get_version()
  except RuntimeError:
    with pytest.raises(errors.TargetError, match="pip install nvidia-cudnn-cu"):
      load.load(text, _CLUSTER)
  else:
    assert load.load(text, _CLUSTER).schedule().is_scheduled
