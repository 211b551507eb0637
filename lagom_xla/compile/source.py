# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Imports the Python file or module that defines a target.

A file is imported as Python would run it, with its folder in the path; one in a
package (its folder has an `__init__.py`) as part of that package, so that
relative imports work. A module may also be in the working directory.

Errors of a user's program are described with a line of it and, if they come
from a machine without GPUs, a remedy.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
import functools
import importlib
import importlib.util
import inspect
import linecache
import os
import pathlib
import re
import sys
import sysconfig
import traceback
import types

from absl import app
from jax.extend import source_info_util

from lagom_xla import errors

_NOTHING_RUNS = (
  "the devices are compile-only: they hold no arrays and run nothing, not even"
  " inside jax.set_mesh; pass jax.ShapeDtypeStructs, which jax.eval_shape makes"
  " of parameters and random keys, and in place of jax.new_ref a"
  " jax.ref.AbstractRef(jax.core.ShapedArray(SHAPE, DTYPE))"
)
_ONE_PROCESS = (
  "there is only one process here: call jax.distributed.initialize() below"
  ' `if __name__ == "__main__"`'
)
# JAX's errors on a machine without GPUs -> what to do.
_REMEDIES = {
  "not available with compile-only client": _NOTHING_RUNS,
  # Of jaxlib._jax in 0.12.
  "Executable' object has no attribute": _NOTHING_RUNS,
  "Received incompatible devices": (
    "some arguments are on CPUs and others on the `devices` that the function"
    " gets: pass jax.ShapeDtypeStructs sharded over those"
  ),
  "only AbstractMesh exists": (
    "an AbstractMesh has no devices to compile for: make the mesh of the"
    " `devices` that the function gets"
  ),
  "must be >= the product of mesh_shape": (
    "the mesh has more devices than the cluster has GPUs: name a larger"
    " --cluster, or make the mesh of all the `devices` that the function gets,"
    " or at import of all jax.devices()"
  ),
  "Number of slices 1 must equal": (
    "devices that are not here all belong to one slice: call"
    " create_hybrid_device_mesh with process_is_granule=True"
  ),
  "coordinator_address should be defined": _ONE_PROCESS,
  "jax.distributed.initialize() must be called before": _ONE_PROCESS,
  "Unknown backend: 'gpu' requested": (
    "calls into Python, as by jax.pure_callback and io_callback, can be lowered"
    " only where the GPUs are: leave them out of the step that you name"
  ),
  "Not supported on cpu.": (
    "Tokamax looks for GPUs on this machine: return a context manager that"
    " yields (step, arguments) inside `with tokamax.config.cross_compile(True)`"
  ),
  "cuDNN not found": (
    "JAX needs cuDNN to trace its attention: run `pip install"
    " nvidia-cudnn-cu13`, which works without a GPU"
  ),
}


_PACKAGE = pathlib.Path(__file__).parents[1]


@functools.cache
def leave_out_own_frames() -> None:
  """Makes JAX omit our frames from what it lowers from now on."""
  for path in (f"{_PACKAGE}{os.sep}", app.__file__):
    source_info_util.register_exclusion(path)


def check(text: str) -> None:
  """Raises a TargetError if a target names a missing file."""
  place, _, _ = text.rpartition(":")
  if place.endswith(".py"):
    _check_is_file(pathlib.Path(place))


def of_file(file: pathlib.Path) -> types.ModuleType:
  """Imports a file.

  Raises:
    TargetError: there is no such file, or it cannot be imported.
  """
  _check_is_file(file)
  full = file.resolve()
  _look_in(full.parent)
  root = full.parent
  while (root / "__init__.py").is_file():
    root = root.parent
  is_in_package = root != full.parent
  name = f"lagom_xla_target_{full.stem}"
  if is_in_package:
    _look_in(root)
    name = ".".join(full.relative_to(root).with_suffix("").parts)
  # Once, as JAX does not register a type twice.
  known = sys.modules.get(name)
  if known is not None and getattr(known, "__file__", None) == str(full):
    return known
  try:
    if is_in_package:
      importlib.import_module(name.rpartition(".")[0])
    return _executed(name, full)
  except (Exception, SystemExit) as error:
    raise errors.TargetError(
      f"{file} cannot be imported: {described(error, file)}"
    ) from error


def of_module(name: str) -> types.ModuleType:
  """Imports a module by its dotted name.

  Raises:
    TargetError: there is no such module, or it cannot be imported.
  """
  _look_in(pathlib.Path.cwd())
  try:
    return importlib.import_module(name)
  except ModuleNotFoundError as error:
    if error.name is None or not f"{name}.".startswith(f"{error.name}."):
      raise errors.TargetError(
        f"{name} cannot be imported: {error}."
      ) from error
    raise errors.TargetError(
      f"There is no module {error.name}: name a file, or a module that is"
      " installed or in the working directory."
    ) from error
  except (Exception, SystemExit) as error:
    raise errors.TargetError(
      f"{name} cannot be imported: {described(error)}"
    ) from error


def described(
  error: BaseException,
  file: pathlib.Path | None = None,
  function: Callable[..., object] | None = None,
) -> str:
  """An error in full, with a line of the user's program and a remedy.

  If the error passed no line of the program, the line is that of `function`.
  """
  # When JAX lowers an operation, the cause has the caller's stack.
  passed = [*_passed(error), *_passed(error.__cause__)]
  at = _place(passed, error, file)
  if at == str(file) and function is not None:
    code = getattr(inspect.unwrap(function), "__code__", None)
    at += f":{code.co_firstlineno}" if code else ""
  what = errors.in_full(error, at=at)
  for symptom, remedy in _REMEDIES.items():
    if symptom in what:
      what += f" [{remedy}]"
  return what


def place_of(word: str) -> str:
  """The file and line in which the program first writes a word as a key, or "".

  Searches imported files that are not installed.
  """
  name = re.escape(word)
  written = re.compile(rf"""(['"]){name}\1 *[]:]|\b{name} *=""")
  files = [
    getattr(it, "__file__", None) for it in [*sys.modules.values()][::-1]
  ]
  for at in filter(_is_of_program, map(pathlib.Path, filter(None, files))):
    for number, line in enumerate(linecache.getlines(str(at)), 1):
      if written.search(line):
        return f"{os.path.relpath(at)}:{number}"
  return ""


def _passed(error: BaseException | None) -> list[tuple[pathlib.Path, int]]:
  """Files and lines that an error passed, the innermost first."""
  if error is None:
    return []
  frames = traceback.walk_tb(error.__traceback__)
  found = [(pathlib.Path(f.f_code.co_filename), line) for f, line in frames]
  return found[::-1]


def _place(
  passed: Sequence[tuple[pathlib.Path, int]],
  error: BaseException,
  file: pathlib.Path | None,
) -> str:
  """The innermost line in the user's file, or else in uninstalled code."""
  if file is not None:
    if isinstance(error, SyntaxError) and error.lineno:
      return f"{file}:{error.lineno}"
    for at, line in passed:
      if at.name == file.name:
        return f"{file}:{line}"
  for at, line in passed:
    if _is_of_program(at):
      return f"{os.path.relpath(at)}:{line}"
  return str(file or "")


def _is_of_program(file: pathlib.Path) -> bool:
  """Whether a file is neither installed nor part of Python or this package."""
  if file.is_relative_to(_PACKAGE) or not file.is_file():
    return False
  installed = map(sysconfig.get_path, ("stdlib", "purelib", "platlib"))
  return not any(map(file.is_relative_to, installed))


def _check_is_file(file: pathlib.Path) -> None:
  if not file.is_file():
    raise errors.TargetError(f"There is no file {file}.")


def _look_in(folder: pathlib.Path) -> None:
  if str(folder) not in sys.path:
    sys.path.insert(0, str(folder))


def _executed(name: str, file: pathlib.Path) -> types.ModuleType:
  spec = importlib.util.spec_from_file_location(name, file)
  assert spec is not None and spec.loader is not None
  module = importlib.util.module_from_spec(spec)
  sys.modules[name] = module
  try:
    spec.loader.exec_module(module)
  except BaseException:
    del sys.modules[name]
    raise
  return module
