# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Steps are found by users' names and forms, or refused with a remedy."""

from __future__ import annotations

import pathlib
import subprocess
import sys
import types

import jax
import numpy as np
import pytest

import lagom_xla
from lagom_xla import cluster as cluster_lib
from lagom_xla import errors
from lagom_xla.compile import load
from lagom_xla.compile import target as target_lib
from lagom_xla.passes import collectives
from lagom_xla.tuner import tuner
from sample_plan import PLAN
import step_sources

_CLUSTER = cluster_lib.parse("1x8xh100")

# Flax's axis rules have no effect outside their context: a step that is lowered
# there is silently not sharded as its author meant.
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

def already_lowered(gpus):
  mesh = mesh_of(gpus)
  with around(mesh):
    return step.lower(*args_on(mesh))

@jax.jit
def printing(w, x):
  jax.debug.print("of {}", x.sum())
  jax.debug.callback(print, w)
  return x @ w

def chooses(devices):
  mesh = mesh_of(devices)
  whole = NamedSharding(mesh, PartitionSpec())
  rows = NamedSharding(mesh, PartitionSpec("data"))
  @jax.jit
  def chosen(w, x):
    if jax.default_backend() == jax.devices()[0].platform == "gpu":
      w = jax.lax.with_sharding_constraint(w, whole)
    return x @ w
  arg = jax.ShapeDtypeStruct((512, 512), jnp.bfloat16, sharding=rows)
  return chosen, (arg, arg)

def takes_gpus(devices):
  on = jax.devices(jax.default_backend())
  return step, args_on(mesh_of(devices))

class Model:
  def __init__(self):
    whole = NamedSharding(mesh_of(jax.devices()), PartitionSpec())
    self.itself, self.w = self, jax.device_put(jnp.ones((517, 517)), whole)

@jax.jit
def squared(w):
  return w @ w

def with_a_model(devices):
  return squared, (Model().w,)

def prints(devices):
  rows = NamedSharding(mesh_of(devices), PartitionSpec("data"))
  arg = jax.ShapeDtypeStruct((512, 512), jnp.bfloat16, sharding=rows)
  return printing, (arg, arg)

def over_slices(devices):
  from jax.experimental import mesh_utils
  mesh_utils.create_hybrid_device_mesh((8,), (2,), devices=devices)

"""

# The mesh is made at import, before a cluster is known.
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
  """A folder with `contexts.py`, and a package with `training.at_import`."""
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


@pytest.mark.parametrize("function", ["in_context", "already_lowered"])
def test_a_step_is_lowered_in_the_context_that_it_needs(
  h100s, folder, function
):
  target = load.load(f"{folder}/contexts.py:{function}", _CLUSTER)
  # The batch is split for the matmul, and gathered after it.
  assert kinds_of(target) == [("all-gather", 2 * 512 * 512)]


def test_a_decorated_step_is_compiled_in_the_context_of_its_call(
  folder, monkeypatch
):
  monkeypatch.syspath_prepend(folder)
  import contexts  # pyrefly: ignore

  modules = []

  def tune(target: target_lib.Target, **_: object) -> types.SimpleNamespace:
    compiled = target.compile()
    modules.append(compiled.module)
    return types.SimpleNamespace(compiled=compiled, plan=PLAN)

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


@pytest.mark.parametrize(
  "place", ["training_of_a_user/at_import.py", "training_of_a_user.at_import"]
)
def test_a_step_whose_mesh_is_made_at_import_can_be_loaded(
  h100s, folder, monkeypatch, place
):
  monkeypatch.chdir(folder)
  target = load.load(f"{place}:step", _CLUSTER)
  assert kinds_of(target) == [("all-gather", 2 * 512 * 512)]


def test_imports_see_as_many_devices_as_the_cluster_has(h100s, folder):
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
    ("no_such_package.train:step", "There is no module no_such_package: name"),
    ("training_of_a_user.no:step", "no module training_of_a_user.no: name a"),
    ("training_of_a_user.sizes:step", "training_of_a_user.sizes defines no st"),
  ],
)
def test_a_missing_module_or_function_is_named(
  folder, monkeypatch, name, message
):
  monkeypatch.chdir(folder)
  with pytest.raises(errors.TargetError, match=message):
    load.load(name, _CLUSTER)


def test_a_program_that_asks_for_the_platform_is_told_the_clusters(
  h100s, folder
):
  target = load.load(f"{folder / 'contexts.py'}:chooses", _CLUSTER)
  assert kinds_of(target) == [("all-gather", 2 * 512 * 512)]


def test_a_program_that_uses_gpus_that_are_not_here_is_warned(folder):
  (line,) = (
    number
    for number, line in enumerate(_STEPS.splitlines(), 1)
    if "jax.devices(jax.default_backend())" in line
  )
  match = f'contexts.py:{line} asked .* "cpu", because "gpu" ended in Run'
  with pytest.warns(RuntimeWarning, match=match):
    load.load(f"{folder / 'contexts.py'}:takes_gpus", _CLUSTER)


def test_arrays_that_were_used_to_lower_a_step_are_freed(folder):
  load.load(f"{folder / 'contexts.py'}:with_a_model", _CLUSTER)
  assert not [array for array in jax.live_arrays() if array.shape == (517, 517)]


def test_debug_prints_are_left_out_with_a_warning(h100s, folder):
  with pytest.warns(RuntimeWarning, match="2 jax.debug calls were left out"):
    target = load.load(f"{folder}/contexts.py:prints", _CLUSTER)
  assert kinds_of(target) == [("all-gather", 2 * 512 * 512)]


def test_the_error_of_a_mesh_over_slices_explains_a_mesh_over_hosts(
  h100s, folder
):
  two_nodes = cluster_lib.parse("2x8xh100")
  with pytest.raises(errors.TargetError, match="process_is_granule=True"):
    load.load(f"{folder}/contexts.py:over_slices", two_nodes)


@pytest.fixture(scope="module")
def steps(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
  return step_sources.write(tmp_path_factory.mktemp("steps"))


@pytest.mark.parametrize(
  "function",
  [
    *("step", "factory", "sharded_by_jit", "partly_concrete", "on_cpu"),
    "takes_a_ref",
    *("by_name", "Trainer", "by_partial", "scaled", "by_method", "filtered"),
  ],
)
def test_a_step_can_be_given_in_several_ways(h100s, steps, function):
  target = load.load(f"{steps}:{function}", _CLUSTER)
  assert not target.is_read_only
  # A weight that is a NumPy array is on all devices already.
  is_gathered = function != "partly_concrete"
  expected = [("all-gather", 4 * 64 * 64)] if is_gathered else []
  assert kinds_of(target) == expected


def test_arguments_that_a_step_repacks_keep_their_names(h100s, steps):
  module = load.load(f"{steps}:filtered", _CLUSTER).schedule()
  arguments = module.entry.parameters
  assert [one.metadata.op_name for one in arguments] == ["x", "w"]


def test_a_step_of_another_library_with_arrays_on_hosts_is_refused(
  h100s, tmp_path
):
  file = tmp_path / "on_hosts.py"
  file.write_text(
    f"{step_sources.SOURCE}\n"
    "def on_hosts(devices):\n"
    "  w, x = make_args(devices)\n"
    "  NamedSharding(w.sharding.mesh, PartitionSpec(),"
    " memory_kind='pinned_host')\n"
    "  return Filtered(), (w, x)\n"
  )
  match = r"return \(step of jax\.jit or nnx\.jit, tuple"
  with pytest.raises(errors.TargetError, match=match):
    load.load(f"{file}:on_hosts", _CLUSTER)


def test_a_pmapped_step_is_compiled_for_the_devices_it_was_given(h100s, steps):
  target = load.load(f"{steps}:maps", _CLUSTER)
  (found,) = collectives.find(target.schedule())
  assert (found.kind, found.group_size) == ("all-reduce", 8)


@pytest.mark.parametrize("function", ["step", "of_width", "Trainer"])
def test_keyword_arguments_reach_the_function_as_text(h100s, steps, function):
  target = load.load(
    f"{steps}:{function}", _CLUSTER, arguments={"width": "128"}
  )
  assert kinds_of(target) == [("all-gather", 4 * 128 * 128)]


def test_a_file_can_import_its_neighbors(h100s, tmp_path):
  (tmp_path / "neighbor_of_a_step.py").write_text(step_sources.SOURCE)
  file = tmp_path / "imports.py"
  file.write_text("from neighbor_of_a_step import factory\n")
  target = load.load(f"{file}:factory", _CLUSTER)
  assert kinds_of(target) == [("all-gather", 4 * 64 * 64)]


# Text of the lines that raise errors.
_LINES = {
  "raises": "raise RuntimeError",
  "does_not_divide": "def does_not_divide",
  "raises_inside": "jnp.ones((3, 3))",
  "calls_back": "jax.pure_callback(",
}


@pytest.mark.parametrize(
  ("function", "message"),
  [
    (
      "not_jitted",
      "If it is the step, wrap it in jax.jit and define not_jitted_",
    ),
    ("takes_nothing", "If it is the step, wrap it in jax.jit"),
    ("of_width", "devices alone: missing a required argument: 'width'."),
    ("mapped", "function gets; pass them to jax.pmap with devices=devices."),
    ("gives_unjitted", "a step that is not jitted (a function): return what"),
    ("gives_step_alone", "returned a PjitFunction; it must return (jitted"),
    ("gives_bare_argument", "arguments as a ShapeDtypeStruct: put them in a"),
    ("gives_arguments_apart", "ShapeDtypeStruct: put them in a tuple, one"),
    ("gives_compiled", "a step that is not jitted (a Compiled): return what"),
    ("forgets_to_decorate", "returned a generator; it must return (jitted st"),
    ("puts_an_array", "[the devices are compile-only: they hold no arrays"),
    ("makes_a_ref", " a jax.ref.AbstractRef(jax.core.ShapedArray(SHAPE, DTYPE"),
    ("calls_back", "[calls into Python, as by jax.pure_callback and io"),
    ("half_on_cpus", "[some arguments are on CPUs and others on the `dev"),
    ("abstract", "[an AbstractMesh has no devices to compile for: make"),
    ("number", "is of type int, not a function"),
    ("lonely", "its arguments are unknown: define lonely_args(devices)"),
    ("absent", "defines no absent."),
    ("", "names a file but no function: write "),
    ("raises", "raised RuntimeError: first line ("),
    ("raises_inside", "raised TypeError: dot_general requires "),
    ("does_not_divide", "raised IndivisibleError: "),
    ("on_half", "sharded over 4 of the 8 devices of 1x8xh100: shard its"),
    ("plain_shapes", "not on the devices of 1x8xh100: shard them over the `"),
    ("concrete", "not on the devices of 1x8xh100: shard them over the `"),
  ],
)
def test_a_function_that_gives_no_step_is_refused_with_the_reason(
  h100s, steps, function, message
):
  with pytest.raises(errors.TargetError) as error:
    load.load(f"{steps}:{function}", _CLUSTER)
  assert message in str(error.value)
  assert str(error.value).startswith(str(steps))
  # Our message has one line; an error that the function raises keeps all.
  first, *others = str(error.value).splitlines()
  assert bool(others) == (function == "raises")
  if function in _LINES:
    assert f" ({steps}:{step_sources.line_of(_LINES[function])})" in first


def test_a_step_without_shardings_is_accepted_for_one_gpu(h100s, steps):
  target = load.load(f"{steps}:plain_shapes", cluster_lib.parse("1x1xh100"))
  assert target.schedule().is_scheduled


def test_an_error_while_lowering_names_the_programs_line(tmp_path, monkeypatch):
  # What Tokamax's kernels raise on a machine without GPUs.
  (tmp_path / "lazy_model.py").write_text(
    "def loss(x):\n  raise NotImplementedError('Not supported on cpu.')\n"
  )
  target = tmp_path / "lazy_target.py"
  target.write_text(
    "import jax\nimport lazy_model\n\n"
    "def step(devices):\n"
    "  return jax.jit(lazy_model.loss), (jax.ShapeDtypeStruct((8,), 'f4'),)\n"
  )
  monkeypatch.chdir(tmp_path)
  with pytest.raises(errors.TargetError) as error:
    load.load(f"{target}:step", _CLUSTER)
  assert "Not supported on cpu. (lazy_model.py:2)" in str(error.value)
  assert "with tokamax.config.cross_compile(True)`" in str(error.value)


@pytest.mark.parametrize(
  ("function", "name", "message"),
  [
    ("step", "depth", "unexpected keyword argument 'depth'. If it is"),
    ("factory", "devices", "multiple values for argument 'devices'. If it"),
    ("on_half", "width", "with the devices and --arg=width: got an unex"),
  ],
)
def test_an_unknown_keyword_argument_is_refused(
  h100s, steps, function, name, message
):
  with pytest.raises(errors.TargetError) as error:
    load.load(f"{steps}:{function}", _CLUSTER, arguments={name: "1"})
  assert message in str(error.value)


@pytest.mark.parametrize(
  ("source", "messages"),
  [
    (
      "import os\nimport there_is_no_such_module\n",
      ["No module named 'there_is_no_such_module' ({}:2)"],
    ),
    ("x = 1\ndef f(:\n", ["SyntaxError: invalid syntax ({}:2)"]),
    ("import sys\nsys.exit('usage: ...')\n", ["SystemExit: usage: ... ({}:2)"]),
    (
      "import jax\nmesh = jax.make_mesh((4096,), ('x',))\n",
      [
        "must be >= the product of mesh_shape (4096,) ({}:2) [the ",
        "name a larger --cluster",
      ],
    ),
    (
      "import jax\njax.distributed.initialize()\n",
      ['initialize() below `if __name__ == "__main__"`'],
    ),
  ],
)
def test_a_failed_import_is_reported_with_its_line_and_a_remedy(
  tmp_path, source, messages
):
  file = tmp_path / "broken.py"
  file.write_text(source)
  with pytest.raises(errors.TargetError, match="cannot be imported: ") as error:
    load.load(f"{file}:step", _CLUSTER)
  for message in messages:
    assert message.format(file) in str(error.value)
