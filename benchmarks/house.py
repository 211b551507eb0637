# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""How large the library is, and how it is cut: now, and before.

    python -m benchmarks.house [--before COMMIT]

Prints CSV: a commit before, if one is given, and the working tree. Generated
modules are not counted.
"""

from __future__ import annotations

import argparse
import ast
from collections.abc import Iterator
import csv
import io
import pathlib
import statistics
import subprocess
import sys
import tarfile
import tempfile

_ROOT = pathlib.Path(__file__).resolve().parent.parent
_LIBRARY = ("lagom_xla", "passes")
_SMALL_LINES = 60


def measures(root: pathlib.Path) -> dict[str, int]:
  """What is counted of a checkout, by the name of its row."""
  texts = [text for name in _LIBRARY for text in _texts(root, name)]
  lines = [len(text.splitlines()) for text in texts]
  return {
    "modules": len(texts),
    "lines": sum(lines),
    "code lines": sum(map(_code_lines, texts)),
    "mean lines a module": round(statistics.fmean(lines)),
    f"modules under {_SMALL_LINES} lines": sum(n < _SMALL_LINES for n in lines),
    **{
      f"lines of {name}": sum(len(t.splitlines()) for t in _texts(root, name))
      for name in ("tests", "benchmarks")
    },
  }


def _texts(root: pathlib.Path, folder: str) -> Iterator[str]:
  for path in sorted((root / folder).rglob("*.py")):
    # lagom_xla/passes is a link to passes/.
    inside = path.relative_to(root).parts
    if inside[:2] != _LIBRARY and not path.stem.endswith("_pb2"):
      yield path.read_text(encoding="utf-8")


def _code_lines(text: str) -> int:
  """Lines that are neither blank nor a comment nor of a docstring."""
  docstrings: set[int] = set()
  for node in ast.walk(ast.parse(text)):
    match getattr(node, "body", None):
      case [ast.Expr(value=ast.Constant(value=str())) as said, *_]:
        docstrings.update(range(said.lineno, (said.end_lineno or 0) + 1))
  return sum(
    bool(line.strip()) and line.strip()[0] != "#" and number not in docstrings
    for number, line in enumerate(text.splitlines(), start=1)
  )


def _measures_at(commit: str) -> dict[str, int]:
  """Of a commit, written out into a folder for as long as it is counted."""
  command = ["git", "-C", str(_ROOT), "archive", commit]
  made = subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout
  with (
    tempfile.TemporaryDirectory() as folder,
    tarfile.open(fileobj=io.BytesIO(made)) as archive,
  ):
    archive.extractall(folder, filter="data")
    return measures(pathlib.Path(folder))


def main() -> None:
  """The command."""
  parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
  parser.add_argument("--before", metavar="COMMIT")
  before = parser.parse_args().before
  columns = {before: _measures_at(before)} if before else {}
  columns["now"] = measures(_ROOT)
  writer = csv.writer(sys.stdout, lineterminator="\n")
  writer.writerow(["counted", *columns])
  for row in columns["now"]:
    writer.writerow([row, *(found[row] for found in columns.values())])


if __name__ == "__main__":
  main()
