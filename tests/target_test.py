# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""A target is a step in a Python file or a module in an HLO file."""

from __future__ import annotations

from collections.abc import Sequence
import pathlib

import jax
import pytest

import hlo_text
from lagom_xla import cluster as cluster_lib
from lagom_xla import errors
from lagom_xla.compile import compiler
from lagom_xla.compile import config as config_lib
from lagom_xla.compile import load as load_lib
from lagom_xla.compile import target as target_lib
from lagom_xla.passes import collectives
from lagom_xla.passes import hlo
from lagom_xla.passes import pjrt_transform

_CLUSTER = cluster_lib.parse("1x8xh100")

# Line 1 is the first import.
_STEPS = """\
import functools
import jax
import jax.numpy as jnp
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from jax.sharding import SingleDeviceSharding
import numpy as np

def make_args(devices, width=64):
  mesh = Mesh(np.array(devices), ("x",))
  rows = NamedSharding(mesh, PartitionSpec("x"))
  shape = (int(width), int(width))
  arg = jax.ShapeDtypeStruct(shape, jnp.float32, sharding=rows)
  return arg, arg

step = jax.jit(lambda w, x: x @ w)
step_args = make_args

def factory(devices, width=64):
  return step, make_args(devices, width)

def sharded_by_jit(devices):
  rows = make_args(devices)[0].sharding
  plain = jax.ShapeDtypeStruct((64, 64), jnp.float32)
  return jax.jit(lambda w, x: x @ w, in_shardings=rows), (plain, plain)

def partly_concrete(devices):
  return step, (np.ones((64, 64), np.float32), make_args(devices)[1])

def plain_shapes(devices):
  plain = jax.ShapeDtypeStruct((64, 64), jnp.float32)
  return step, (plain, plain)

def concrete(devices):
  return step, (jnp.ones((64, 64)), np.ones((64, 64)))

def on_cpu(devices):
  return step, make_args(jax.devices("cpu"))

def on_half(devices):
  return step, make_args(devices[:4])

def on_one(devices):
  place = SingleDeviceSharding(devices[0])
  arg = jax.ShapeDtypeStruct((64, 64), jnp.float32, sharding=place)
  return step, (arg, arg)

def not_jitted(w, x):
  return x @ w

def gives_unjitted(devices):
  return not_jitted, make_args(devices)

def gives_step_alone(devices):
  return step

def gives_bare_argument(devices):
  return step, make_args(devices)[0]

@functools.partial(jax.jit, static_argnames="times")
def named(w, *, x, times):
  for _ in range(times):
    w = w @ x
  return w

def by_name(devices):
  w, x = make_args(devices)
  return named, (w,), {"x": x, "times": 1}

def gives_arguments_apart(devices):
  return step, *make_args(devices)

def gives_compiled(devices):
  args = make_args(devices)
  return step.lower(*args).compile(), args

def forgets_to_decorate(devices):
  yield step, make_args(devices)

def puts_an_array(devices):
  like = make_args(devices)[0]
  return step, (jax.device_put(np.ones((64, 64)), like.sharding),) * 2

def makes_a_key(devices):
  with jax.set_mesh(Mesh(np.array(devices), ("x",))):
    jax.random.key(0)

def runs_its_init(devices):
  like = make_args(devices)[0]
  jax.jit(lambda: jnp.ones((64, 64)), out_shardings=like.sharding)()

def half_on_cpus(devices):
  w, x = make_args(devices)
  return step, (jax.device_put(np.ones((64, 64)), jax.devices("cpu")[0]), x)

def abstract(devices):
  mesh = jax.sharding.AbstractMesh((8,), ("x",))
  rows = NamedSharding(mesh, PartitionSpec("x"))
  arg = jax.ShapeDtypeStruct((64, 64), jnp.float32, sharding=rows)
  return step, (arg, arg)

def gives_dict(devices):
  return step, dict(zip("wx", make_args(devices)))

def takes_nothing():
  return step

def raises(devices):
  raise RuntimeError("first line\\nsecond line")

def exits(devices):
  raise SystemExit("not today")

@jax.jit
def raises_inside(w, x):
  return w @ jnp.ones((3, 3))

raises_inside_args = make_args
lonely = jax.jit(lambda w: w)
number = 3
"""


@pytest.fixture(scope="module")
def steps(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
  file = tmp_path_factory.mktemp("steps") / "steps.py"
  file.write_text(_STEPS)
  return file


def line_of(words: str) -> int:
  """The last line of the file above that has these words."""
  lines = _STEPS.splitlines()
  return max(n for n, line in enumerate(lines, start=1) if words in line)


def gathered_bytes(target: target_lib.Target) -> list[int]:
  module = target.schedule()
  assert module.is_scheduled
  return [
    c.result_bytes for c in collectives.find(module) if c.kind == "all-gather"
  ]


@pytest.mark.parametrize(
  "function",
  [
    *("step", "factory", "sharded_by_jit", "partly_concrete", "on_cpu"),
    "by_name",
  ],
)
def test_a_step_may_be_found_in_several_ways(
  h100s: Sequence[jax.Device], steps: pathlib.Path, function: str
) -> None:
  target = load_lib.load(f"{steps}:{function}", _CLUSTER)
  assert not target.is_read_only
  # A weight that comes as a NumPy array is on all devices already.
  expected = [] if function == "partly_concrete" else [4 * 64 * 64]
  assert gathered_bytes(target) == expected


@pytest.mark.parametrize("function", ["step", "factory"])
def test_keyword_arguments_reach_the_function_as_text(
  h100s: Sequence[jax.Device], steps: pathlib.Path, function: str
) -> None:
  target = load_lib.load(
    f"{steps}:{function}", _CLUSTER, arguments={"width": "128"}
  )
  assert gathered_bytes(target) == [4 * 128 * 128]


def test_a_full_compile_gives_an_executable(
  h100s: Sequence[jax.Device], steps: pathlib.Path
) -> None:
  target = load_lib.load(f"{steps}:step", _CLUSTER)
  assert target.compile().compiled is not None


def test_a_file_imports_its_neighbours(
  h100s: Sequence[jax.Device], tmp_path: pathlib.Path
) -> None:
  (tmp_path / "neighbour_of_a_step.py").write_text(_STEPS)
  file = tmp_path / "imports.py"
  file.write_text("from neighbour_of_a_step import factory\n")
  assert gathered_bytes(load_lib.load(f"{file}:factory", _CLUSTER))


@pytest.mark.parametrize(
  ("function", "message"),
  [
    ("not_jitted", "is not jitted: wrap it in jax.jit, and define not_jitted_"),
    ("takes_nothing", "is not jitted: "),
    ("gives_unjitted", "a step that is not jitted (a function): wrap it in"),
    ("gives_step_alone", "returned a PjitFunction; it must return (jitted"),
    ("gives_bare_argument", "arguments as a ShapeDtypeStruct: put them in a"),
    ("gives_dict", "arguments as a dict: put them in a tuple"),
    ("gives_arguments_apart", "ShapeDtypeStruct: put them in a tuple, one"),
    ("gives_compiled", "a step that is compiled already: return what jax.jit"),
    ("forgets_to_decorate", "decorate it with contextlib.contextmanager."),
    ("puts_an_array", "[the devices are compile-only: nothing runs on them"),
    ("makes_a_key", "[the devices are compile-only: nothing runs on them"),
    ("runs_its_init", "[the devices are compile-only: nothing runs on them"),
    ("half_on_cpus", "[some arguments are on CPUs and others on the `dev"),
    ("abstract", "[make the mesh of the `devices` that the function gets"),
    ("number", "is of type int, not a function"),
    ("lonely", "its arguments are not known: define lonely_args(devices)"),
    ("absent", "defines no absent."),
    ("", "names a file but no function: say "),
    ("raises", "raised RuntimeError: first line ("),
    ("exits", "raised SystemExit: not today ("),
    ("raises_inside", "raised TypeError: dot_general requires "),
    ("on_half", "sharded over 4 of the 8 devices of 1x8xh100: shard its"),
    ("on_one", "sharded over 1 of the 8 devices of 1x8xh100: shard its"),
    ("plain_shapes", "not on the devices of 1x8xh100: shard them over the `"),
    ("concrete", "not on the devices of 1x8xh100: shard them over the `"),
  ],
)
def test_a_function_that_gives_no_step_is_told_why(
  h100s: Sequence[jax.Device],
  steps: pathlib.Path,
  function: str,
  message: str,
) -> None:
  with pytest.raises(errors.TargetError) as error:
    load_lib.load(f"{steps}:{function}", _CLUSTER)
  assert message in str(error.value)
  assert str(error.value).startswith(str(steps))
  # One line of ours, and all lines of an error of the function's own.
  assert ("\n" in str(error.value)) == (function == "raises")


def test_a_step_without_shardings_is_refused_for_one_gpu_too(
  h100s: Sequence[jax.Device], steps: pathlib.Path
) -> None:
  # It would compile: for one CPU.
  with pytest.raises(errors.TargetError, match="not on the devices of 1x1"):
    load_lib.load(f"{steps}:plain_shapes", cluster_lib.parse("1x1xh100"))


@pytest.mark.parametrize(
  ("function", "words"),
  [
    ("raises", "raise RuntimeError"),
    ("exits", "raise SystemExit"),
    ("raises_inside", "jnp.ones((3, 3))"),
  ],
)
def test_an_error_comes_with_its_line(
  h100s: Sequence[jax.Device],
  steps: pathlib.Path,
  function: str,
  words: str,
) -> None:
  with pytest.raises(errors.TargetError) as error:
    load_lib.load(f"{steps}:{function}", _CLUSTER)
  first, *_ = str(error.value).splitlines()
  assert first.endswith(f"({steps}:{line_of(words)})")


@pytest.mark.parametrize(
  ("function", "name", "message"),
  [
    ("step", "depth", "--arg=depth: make_args takes no depth; it takes width."),
    ("factory", "devices", "--arg=devices: factory takes no devices; it"),
    ("on_half", "width", "on_half takes no width; it takes none."),
  ],
)
def test_an_unknown_keyword_argument_is_refused(
  h100s: Sequence[jax.Device],
  steps: pathlib.Path,
  function: str,
  name: str,
  message: str,
) -> None:
  with pytest.raises(errors.TargetError) as error:
    load_lib.load(f"{steps}:{function}", _CLUSTER, arguments={name: "1"})
  assert message in str(error.value)


@pytest.mark.parametrize(
  ("source", "message"),
  [
    (
      "import os\nimport there_is_no_such_module\n",
      "ModuleNotFoundError: No module named 'there_is_no_such_module' (",
    ),
    ("x = 1\ndef f(:\n", "SyntaxError: invalid syntax ("),
    ("import sys\nsys.exit('usage: ...')\n", "SystemExit: usage: ... ("),
  ],
)
def test_a_file_that_cannot_be_imported_is_told_where(
  tmp_path: pathlib.Path, source: str, message: str
) -> None:
  file = tmp_path / "broken.py"
  file.write_text(source)
  with pytest.raises(errors.TargetError) as error:
    load_lib.load(f"{file}:step", _CLUSTER)
  assert f"cannot be imported: {message}{file}:2)" in str(error.value)


@pytest.mark.parametrize(
  ("name", "message"),
  [
    ("absent.py:step", "There is no file .*absent.py"),
    ("steps.py", "names a file but no function: say .*steps.py:FUNCTION"),
  ],
)
def test_a_file_that_is_not_there_is_named(
  tmp_path: pathlib.Path, name: str, message: str
) -> None:
  with pytest.raises(errors.TargetError, match=message):
    load_lib.load(str(tmp_path / name), _CLUSTER)


def test_an_unoptimized_module_is_compiled(
  h100s: Sequence[jax.Device], tmp_path: pathlib.Path
) -> None:
  file = tmp_path / "step.hlo"
  file.write_text(
    hlo_text.text(
      """
        w = f32[8,64] parameter(0)
        x = f32[8,64] parameter(1)
        all = f32[64,64] all-gather(w), replica_groups={{0,1,2,3,4,5,6,7}},
          dimensions={0}, channel_id=1, use_global_device_ids=true
        copied = f32[64,64] copy(all)
        ROOT y = f32[8,64] dot(x, copied),
          lhs_contracting_dims={1}, rhs_contracting_dims={0}
      """,
      header="num_partitions=8",
    )
  )
  target = load_lib.load(str(file), _CLUSTER)
  assert not target.is_read_only
  assert gathered_bytes(target) == [4 * 64 * 64]
  compiled = target.compile()
  # Both parameters, the gathered array and the result at least.
  assert compiled.peak_bytes is not None
  assert compiled.peak_bytes >= 4 * 64 * (8 + 8 + 64 + 8)
  with pytest.raises(
    errors.CompileError,
    match=r"^XLA could not compile for 1x8xh100 with xla_no=1: .*xla_no",
  ):
    target.schedule(config_lib.XlaConfig(options={"xla_no": 1}))


def test_a_scheduled_module_is_only_read(
  fsdp_scan: hlo.Module, monkeypatch: pytest.MonkeyPatch
) -> None:
  def compiles(*args: object, **kwargs: object) -> None:
    raise AssertionError("a compile was started")

  monkeypatch.setattr(compiler, "schedule", compiles)
  monkeypatch.setattr(compiler, "before_combining", compiles)
  target = target_lib.of_module(fsdp_scan, _CLUSTER, name="step")
  assert target.is_read_only
  assert target.obstacle == "step is scheduled already"
  told = config_lib.XlaConfig(options={"xla_gpu_autotune_level": 0})
  assert target.schedule() is target.schedule(told) is fsdp_scan
  with pytest.raises(errors.CompileError, match="from before XLA's optim"):
    target.compile()


def test_a_module_for_other_sizes_names_its_own(fsdp_scan: hlo.Module) -> None:
  with pytest.raises(
    errors.CompileError,
    match=r"jit_step was partitioned for 8 devices, and 2x8xh100 has 16\. Name",
  ):
    target_lib.of_module(
      fsdp_scan, cluster_lib.parse("2x8xh100"), name="step.hlo"
    )


def test_without_a_cuda_plugin_a_module_says_what_to_install(
  monkeypatch: pytest.MonkeyPatch,
) -> None:
  module = hlo_text.load(
    "ROOT x = f32[8] parameter(0)", header="num_partitions=8"
  )
  target = target_lib.of_module(module, _CLUSTER, name="step.hlo")
  monkeypatch.setattr(pjrt_transform, "plugin_path", lambda: None)
  with pytest.raises(
    errors.CompileError,
    match=r"1x8xh100: JAX's CUDA plugin is not installed.*'\.\[aot\]'",
  ):
    target.schedule()


def test_a_module_takes_no_keyword_arguments(tmp_path: pathlib.Path) -> None:
  with pytest.raises(errors.TargetError, match="takes no --arg"):
    load_lib.load(
      str(tmp_path / "step.hlo"), _CLUSTER, arguments={"model": "8b"}
    )
