# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Size and structure of the library: now, at a commit, and of other libraries.

    python -m benchmarks.house [--before COMMIT]

Prints CSV for the working tree, an earlier commit, and other libraries. A
private function counts as used once if its name occurs once in its file besides
its definition. Generated modules are not counted.
"""

from __future__ import annotations

import argparse
import ast
from collections.abc import Iterator, Sequence
import csv
import io
import pathlib
import re
import statistics
import subprocess
import sys
import tarfile
import tempfile

_ROOT = pathlib.Path(__file__).resolve().parent.parent
_LIBRARY = ("lagom_xla", "passes")
_SMALL_LINES, _TINY_LINES = 60, 40
_SEE = re.compile(r"See [^.]+\.?")
# Other libraries in November 2026: modules, code lines, mean lines per module,
# and the place of the sources; None if not counted.
_ANCHORS = (
  ("tinygrad", 127, 24_300, None, "github.com/tinygrad/tinygrad"),
  ("optuna 5", 220, 24_600, 179, "github.com/optuna/optuna"),
  ("tokamax 0.0.12", 125, 23_500, 265, "github.com/openxla/tokamax"),
  (
    "HolisticTraceAnalysis",
    42,
    8_700,
    324,
    "github.com/facebookresearch/HolisticTraceAnalysis",
  ),
  ("optimistix", 34, 4_900, 222, "github.com/patrick-kidger/optimistix"),
)

Measures = dict[str, float | int | str]


def measures(root: pathlib.Path) -> Measures:
  """The counts of a checkout, by the name of the row."""
  modules = [_Module(path) for path in _files(root, _LIBRARY)]
  lines = [module.lines for module in modules]
  faces = [m.path.name == "__init__.py" for m in modules]
  return {
    "modules": len(modules),
    "lines": sum(lines),
    "code lines": sum(module.code_lines for module in modules),
    "mean lines a module": round(statistics.fmean(lines)),
    f"modules under {_SMALL_LINES} lines": sum(n < _SMALL_LINES for n in lines),
    f"modules under {_TINY_LINES} lines, not __init__": sum(
      n < _TINY_LINES and not face for n, face in zip(lines, faces, strict=True)
    ),
    "private functions used once in their file": sum(
      module.used_once for module in modules
    ),
    "docstrings that only say See": sum(module.only_see for module in modules),
    "words in CONTRIBUTING's vocabulary": _vocabulary(root),
    "lines of tests": _lines(_files(root, ["tests"])),
    "lines of benchmarks": _lines(_files(root, ["benchmarks"])),
  }


class _Module:
  """The counts of one module."""

  def __init__(self, path: pathlib.Path) -> None:
    text = path.read_text(encoding="utf-8")
    self.path = path
    self.lines = len(text.splitlines())
    docstrings: set[int] = set()
    private: list[str] = []
    named: dict[str, int] = {}
    self.only_see = 0
    for node in ast.walk(ast.parse(text)):
      match node:
        case ast.Name(id=name) | ast.Attribute(attr=name):
          named[name] = named.get(name, 0) + 1
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
          if name.startswith("_") and not name.endswith("__"):
            private.append(name)
      if (statement := _docstring(node)) is not None:
        end = statement.end_lineno or statement.lineno
        docstrings.update(range(statement.lineno, end + 1))
        said = ast.get_docstring(node) or ""  # pyrefly: ignore
        self.only_see += bool(_SEE.fullmatch(said))
    self.used_once = sum(named.get(name, 0) == 1 for name in private)
    self.code_lines = sum(
      number not in docstrings
      and bool(line.strip())
      and not line.lstrip().startswith("#")
      for number, line in enumerate(text.splitlines(), start=1)
    )


def _docstring(node: ast.AST) -> ast.stmt | None:
  body = getattr(node, "body", None)
  match body:
    case [ast.Expr(value=ast.Constant(value=str())) as statement, *_]:
      return statement
  return None


def _files(
  root: pathlib.Path, folders: Sequence[str]
) -> Iterator[pathlib.Path]:
  for folder in folders:
    for path in sorted((root / folder).rglob("*.py")):
      # lagom_xla/passes is a link to passes/.
      inside = path.relative_to(root).parts
      if inside[:2] != _LIBRARY and not path.stem.endswith("_pb2"):
        yield path


def _lines(paths: Iterator[pathlib.Path]) -> int:
  return sum(len(p.read_text(encoding="utf-8").splitlines()) for p in paths)


def _vocabulary(root: pathlib.Path) -> int:
  """Rows of CONTRIBUTING's table under its heading Words."""
  text = (root / "CONTRIBUTING.md").read_text(encoding="utf-8")
  section = text.partition("\n## Words\n")[2].partition("\n## ")[0]
  return max(len(re.findall(r"^\|", section, re.MULTILINE)) - 2, 0)


def _measures_at(commit: str) -> Measures:
  """The counts of a commit, from a temporary checkout."""
  made = subprocess.run(
    ["git", "-C", str(_ROOT), "archive", commit],
    stdout=subprocess.PIPE,
    check=True,
  )
  with (
    tempfile.TemporaryDirectory() as folder,
    tarfile.open(fileobj=io.BytesIO(made.stdout)) as archive,
  ):
    archive.extractall(folder, filter="data")
    return measures(pathlib.Path(folder))


def main() -> None:
  """Runs the command."""
  parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
  parser.add_argument("--before", metavar="COMMIT")
  arguments = parser.parse_args()
  columns = {"now": measures(_ROOT)}
  if arguments.before:
    columns = {arguments.before: _measures_at(arguments.before), **columns}
  notes: dict[str, str] = {}
  for name, modules, code_lines, mean_lines, source in _ANCHORS:
    columns[name] = {
      "modules": modules,
      "code lines": code_lines,
      "mean lines a module": mean_lines or "",
    }
    notes[name] = source
  writer = csv.writer(sys.stdout, lineterminator="\n")
  writer.writerow(["counted", *columns])
  for row in columns["now"]:
    writer.writerow([row, *(found.get(row, "") for found in columns.values())])
  writer.writerow(["source", *(notes.get(name, "") for name in columns)])


if __name__ == "__main__":
  main()
