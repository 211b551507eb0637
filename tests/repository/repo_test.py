# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""The repository keeps its own rules: BUILD, headers, version, layout.

The files of the repository are those that git tracks or would add, so new files
are checked before they are committed. Without git (a source archive), they are
all files except build output.
"""

from __future__ import annotations

import ast
import importlib.metadata
import pathlib
import re
import subprocess

import lagom_xla
import lagom_xla.passes

_ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
_NOT_SOURCE = {"build", "dist", "__pycache__"}
_GENERATED = {"passes/hlo_pb2.py"}
_HEADER = (
  "# Copyright 2026 The lagom_xla Authors.\n"
  "# SPDX-License-Identifier: Apache-2.0\n"
)
# An absolute path below a directory that differs from machine to machine.
_MACHINE_PATH = re.compile(rb"(?<![\w.~-])/(home|root|work|tmp|Users)/[\w.]")


def _git_files() -> list[str]:
  listing = subprocess.run(
    ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
    cwd=_ROOT,
    capture_output=True,
    text=True,
    check=True,
  ).stdout
  return [name for name in listing.split("\0") if name]


def _walked_files() -> list[str]:
  names = [path.relative_to(_ROOT) for path in _ROOT.rglob("*")]
  return [
    name.as_posix()
    for name in names
    if name.parts[0] != "plan"
    and not any(p in _NOT_SOURCE or p.startswith(".") for p in name.parts)
  ]


def _files() -> set[str]:
  """Names of all files, relative to the root; follows links."""
  try:
    names = _git_files() if (_ROOT / ".git").exists() else _walked_files()
  except (FileNotFoundError, subprocess.CalledProcessError):
    names = _walked_files()
  paths = {(_ROOT / name).resolve() for name in names}
  return {p.relative_to(_ROOT).as_posix() for p in paths if p.is_file()}


def _python_files() -> set[str]:
  return {name for name in _files() if name.endswith(".py")}


def _in_build() -> list[str]:
  """Every pattern or name of Python files in BUILD (Starlark is Python)."""
  nodes = ast.walk(ast.parse((_ROOT / "BUILD").read_text()))
  return [
    node.value
    for node in nodes
    if isinstance(node, ast.Constant)
    and isinstance(node.value, str)
    and node.value.endswith(".py")
    and node.value != ".py"
  ]


def test_build_names_every_python_file():
  named = {
    path.resolve().relative_to(_ROOT).as_posix()
    for pattern in _in_build()
    for path in _ROOT.glob(pattern)
  }
  missing = sorted(_python_files() - named)
  assert not missing, f"add these files to a library in BUILD: {missing}"


def test_everything_that_build_names_exists():
  empty = [name for name in _in_build() if not any(_ROOT.glob(name))]
  assert not empty, f"remove these from BUILD: {empty}"


def test_every_python_file_starts_with_the_license_header():
  bare = sorted(
    name
    for name in _python_files() - _GENERATED
    if not (_ROOT / name).read_text().startswith(_HEADER)
  )
  assert not bare, f"start these files with the two lines of {__file__}: {bare}"


def test_no_file_mentions_a_path_of_one_machine():
  found = {
    name: match.group().decode()
    for name in sorted(_files())
    if (match := _MACHINE_PATH.search((_ROOT / name).read_bytes()))
  }
  assert not found, f"write these paths relative to the repository: {found}"


def test_the_installed_version_is_the_version_of_the_package():
  assert importlib.metadata.version("lagom-xla") == lagom_xla.__version__


def test_lagom_xla_passes_is_the_top_level_passes_directory():
  (location,) = lagom_xla.passes.__path__
  assert pathlib.Path(location).resolve() == _ROOT / "passes"


def test_package_docstrings_name_only_existing_modules():
  unknown = []
  for name in _python_files():
    if not re.match(r"(lagom_xla|passes)/.*__init__\.py", name):
      continue
    path = _ROOT / name
    overview = ast.get_docstring(ast.parse(path.read_text())) or ""
    for word in re.findall(r"`([a-z_]+)`", overview):
      module, room = path.with_name(f"{word}.py"), path.with_name(word)
      if not (module.exists() or room.is_dir()):
        unknown.append(f"{name}: {word}")
  assert not unknown
