# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Steps that are no target are refused, by what is wrong and its line."""

from __future__ import annotations

from collections.abc import Sequence
import pathlib

import jax
import pytest

from lagom_xla import cluster as cluster_lib
from lagom_xla import errors
from lagom_xla.compile import load
import step_sources

_CLUSTER = cluster_lib.parse("1x8xh100")


@pytest.fixture(scope="module")
def steps(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
  return step_sources.write(tmp_path_factory.mktemp("steps"))


@pytest.mark.parametrize(
  ("function", "message"),
  [
    ("not_jitted", "is not jitted: wrap it in jax.jit, and define not_jitted_"),
    ("takes_nothing", "is not jitted: "),
    ("of_width", "or say what else it takes: --arg=width=VALUE."),
    ("mapped", "function gets; jax.pmap takes them as devices=devices."),
    ("gives_unjitted", "a step that is not jitted (a function): wrap it in"),
    ("gives_around", "returned a function around a jitted step: return the"),
    ("gives_step_alone", "returned a PjitFunction; it must return (jitted"),
    ("gives_bare_argument", "arguments as a ShapeDtypeStruct: put them in a"),
    ("gives_dict", "arguments as a dict: put them in a tuple"),
    ("gives_arguments_apart", "ShapeDtypeStruct: put them in a tuple, one"),
    ("gives_compiled", "a step that is compiled already: return what jax.jit"),
    ("forgets_to_decorate", "decorate it with contextlib.contextmanager."),
    ("puts_an_array", "[the devices are compile-only: nothing runs on them"),
    ("makes_a_key", "[the devices are compile-only: nothing runs on them"),
    ("makes_a_ref", " a jax.ref.AbstractRef(jax.core.ShapedArray(SHAPE, DTYPE"),
    ("runs_its_init", "[the devices are compile-only: nothing runs on them"),
    ("calls_back", " [what calls into Python, as jax.pure_callback and io"),
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
    ("unused", "uses none of its arguments and shards nothing itself, so"),
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
    load.load(f"{steps}:{function}", _CLUSTER)
  assert message in str(error.value)
  assert str(error.value).startswith(str(steps))
  # One line of ours, and all lines of an error of the function's own.
  assert ("\n" in str(error.value)) == (function == "raises")


def test_a_step_without_shardings_is_one_for_one_gpu(
  h100s: Sequence[jax.Device], steps: pathlib.Path
) -> None:
  target = load.load(f"{steps}:plain_shapes", cluster_lib.parse("1x1xh100"))
  assert target.schedule().is_scheduled


@pytest.mark.parametrize(
  ("function", "words"),
  [
    ("raises", "raise RuntimeError"),
    ("exits", "raise SystemExit"),
    ("raises_inside", "jnp.ones((3, 3))"),
    ("calls_back", "jax.pure_callback("),
  ],
)
def test_an_error_comes_with_its_line(
  h100s: Sequence[jax.Device],
  steps: pathlib.Path,
  function: str,
  words: str,
) -> None:
  with pytest.raises(errors.TargetError) as error:
    load.load(f"{steps}:{function}", _CLUSTER)
  first, *_ = str(error.value).splitlines()
  assert f" ({steps}:{step_sources.line_of(words)})" in first


def test_an_error_after_a_target_gave_its_step_has_the_programs_line(
  tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
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


@pytest.mark.parametrize(("text", "kind"), [("128", "int"), ("0.5", "float")])
def test_a_type_error_is_told_that_arguments_are_text(
  h100s: Sequence[jax.Device], steps: pathlib.Path, text: str, kind: str
) -> None:
  assert load.load(f"{steps}:halves", _CLUSTER).schedule().is_scheduled
  with pytest.raises(errors.TargetError, match=rf"{kind}\(width\) where a num"):
    load.load(f"{steps}:halves", _CLUSTER, arguments={"width": text})


@pytest.mark.parametrize(
  ("function", "arguments"),
  [("adds_to_number", {"name": "4"}), ("halves", {"width": "wide"})],
)
def test_another_type_error_is_not_taken_for_text(
  h100s: Sequence[jax.Device],
  steps: pathlib.Path,
  function: str,
  arguments: dict[str, str],
) -> None:
  with pytest.raises(errors.TargetError, match="raised TypeError") as error:
    load.load(f"{steps}:{function}", _CLUSTER, arguments=arguments)
  assert "--arg" not in str(error.value)


def test_a_program_that_joins_a_job_at_import_is_told_where_to(
  tmp_path: pathlib.Path,
) -> None:
  file = tmp_path / "joins.py"
  file.write_text("import jax\njax.distributed.initialize()\n")
  with pytest.raises(errors.TargetError, match=r"below `if __name__ == "):
    load.load(f"{file}:step", _CLUSTER)


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
    load.load(f"{steps}:{function}", _CLUSTER, arguments={name: "1"})
  assert message in str(error.value)


def test_a_mesh_that_is_made_at_import_of_too_many_devices_has_a_remedy(
  tmp_path: pathlib.Path,
) -> None:
  file = tmp_path / "train.py"
  file.write_text("import jax\nmesh = jax.make_mesh((4096,), ('x',))\n")
  with pytest.raises(errors.TargetError) as error:
    load.load(f"{file}:step", _CLUSTER)
  assert f"must be >= the product of mesh_shape (4096,) ({file}:2) [the " in (
    str(error.value)
  )
  assert "name a larger --cluster" in str(error.value)


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
    load.load(f"{file}:step", _CLUSTER)
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
    load.load(str(tmp_path / name), _CLUSTER)
