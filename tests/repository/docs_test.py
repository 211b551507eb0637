# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Commands in the docs' pages are real, and the things they name exist."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
import contextlib
import fnmatch
import functools
import importlib.util
import io
import pathlib
import re
import shlex
import subprocess
import sys
import tomllib

import pytest

from commands import PLAN_FILES
from commands import ROOT
import lagom_xla
from lagom_xla.cli import main

_DOCS = ROOT / "docs"
_PAGES = sorted(_DOCS.glob("*.md"))
_each_page = pytest.mark.parametrize("page", _PAGES, ids=lambda page: page.stem)
_BLOCK = re.compile(r"^```(\S*).*?\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_INDENTED = re.compile(r"^    (.*)$", re.MULTILINE)
_INLINE = re.compile(r"`([^`\n]+)`")
_INSTALL = re.compile(r"pip install '(?:lagom_xla|\.)\[([\w,]+)\]'")
_GAPS = ("required", "expected one argument")
# Variables may precede a command in a line of shell.
_BEFORE = re.compile(r"^(?:[A-Z_]+=(?:\"[^\"]*\"|\S*) )*(lagom-xla .*)$")


def _in_blocks(text: str) -> Iterator[str]:
  """Code lines outside of sentences."""
  for kind, block in _BLOCK.findall(text):
    if kind in ("", "sh", "{schema}", "{printed}"):
      yield from block.replace("\\\n", "").splitlines()
  yield from _INDENTED.findall(text)


def _commands(lines: Iterable[str]) -> list[list[str]]:
  """The commands of lagom-xla among lines of shell, as words."""
  found = []
  for line in lines:
    match = _BEFORE.match(line.strip())
    # A command with "..." is incomplete.
    if match is not None and "..." not in line:
      found.append(shlex.split(match[1], comments=True)[1:])
  return found


_parser = functools.cache(main.parser)


def _refusal(words: list[str]) -> str:
  """The error of lagom-xla for a command line; "" if it is valid."""
  said = io.StringIO()
  with contextlib.redirect_stderr(said):
    try:
      _parser().parse_args(words)
    except SystemExit:
      *_, last = said.getvalue().splitlines()
      return last
  return ""


@_each_page
def test_every_command_on_a_page_is_valid(page):
  for words in _commands(_in_blocks(page.read_text())):
    assert not _refusal(words)


@_each_page
def test_every_command_in_a_sentence_has_valid_options(page):
  for words in _commands(_INLINE.findall(page.read_text())):
    refusal = _refusal(words)
    # A sentence may leave targets and values to the reader.
    assert not refusal or any(gap in refusal for gap in _GAPS)


@_each_page
def test_no_code_block_of_a_page_is_empty(page):
  blocks = _BLOCK.findall(page.read_text())
  assert all(block.strip() for _, block in blocks)


def test_pages_have_commands_to_check():
  lines = (line for page in _PAGES for line in _in_blocks(page.read_text()))
  assert {words[0] for words in _commands(lines)} >= {
    *("inspect", "tune", "verify", "report", "profile", "flags"),
    *("plugin", "doctor", "calibrate", "schema"),
  }


def test_extras_that_pages_install_exist():
  project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
  texts = [page.read_text() for page in _PAGES]
  named = {
    extra
    for text in texts
    for extras in _INSTALL.findall(text)
    for extra in extras.split(",")
  }
  assert named and named <= set(project["optional-dependencies"])


def test_the_picture_equals_the_output_of_its_program():
  drawn = subprocess.run(
    [sys.executable, _DOCS / "site/picture.py"],
    capture_output=True,
    text=True,
    check=True,
  )
  assert drawn.stdout == (_DOCS / "how_it_works.svg").read_text()


def test_the_api_page_has_every_public_name():
  text = (_DOCS / "api.md").read_text()
  listed = re.findall(r"^\.\. auto\w+:: lagom_xla\.(\w+)$", text, re.MULTILINE)
  assert sorted(listed) == sorted(lagom_xla._HOMES)


@_each_page
def test_every_page_is_in_the_table_of_contents(page):
  contents = (_DOCS / "index.md").read_text().splitlines()
  assert page.stem == "index" or page.stem in contents


def test_the_docs_have_at_most_20_000_words():
  assert sum(len(page.read_text().split()) for page in _PAGES) <= 20_000


# Paths of the repository that pages name.

_FOLDERS = ("benchmarks", "docs", "examples", "lagom_xla", "passes", "tests")
_TOP = ("README.md", "CONTRIBUTING.md")
_ALL_PAGES = sorted(
  [
    *(ROOT / name for name in _TOP),
    *(page for name in _FOLDERS for page in (ROOT / name).rglob("*.md")),
  ]
)
_each_of_all = pytest.mark.parametrize(
  "page", _ALL_PAGES, ids=lambda page: str(page.relative_to(ROOT))
)
_CODE = re.compile(r"`([^`\n]+)`")
_LINK = re.compile(r"\]\(([^)#\s]+)[^)\s]*\)")
_MODULE = re.compile(r"-m `?(benchmarks[\w.]*\w)")
# A file by its ending, or a path in one of our folders.
_FILE = re.compile(r"[\w*./-]+\.(?:c|csv|json|md|proto|py|svg|toml|xz)")
_IN_FOLDER = re.compile(rf"(?:{'|'.join(_FOLDERS)})/[\w*./-]*")
# Files of readers and their jobs, and files that others publish.
_NOT_OURS = frozenset(
  [
    *PLAN_FILES,
    *("FILE.json", "mycluster.json", "trace.json"),  # Made by commands.
    # Written by benchmarks.gpu on a machine with a GPU.
    *("gpu.json", "step.hlo.xz", "step.xplane.pb.xz"),
    *("model.py", "step.py"),  # In examples of output.
    *("maxtext_target.py", "train_compile.py"),  # MaxText, and a target for it.
    "lhs_cost_model.md",  # XLA's.
  ]
)


@functools.cache
def _tree() -> tuple[str, ...]:
  """Paths of all files and folders, relative to the root."""
  return tuple(
    path.relative_to(ROOT).as_posix()
    for name in _FOLDERS
    for path in (ROOT / name).rglob("*")
    if "__pycache__" not in path.parts
  ) + tuple(path.name for path in ROOT.iterdir())


def _named(text: str) -> Iterator[str]:
  """The paths in code, as readers would look for them."""
  for code in _CODE.findall(text):
    for word in code.split():
      word = word.partition(":")[0].removeprefix("--out=")
      if _FILE.fullmatch(word) or _IN_FOLDER.fullmatch(word):
        yield word.rstrip("/")


def _is_there(name: str, page: pathlib.Path = ROOT / "README.md") -> bool:
  """Whether a path exists, from the root or from the folder it refers to."""
  if name.startswith(".."):
    return (page.parent / name).exists()
  name = name.replace("NAME", "*")
  return any(
    fnmatch.fnmatchcase(path, name) or fnmatch.fnmatchcase(path, f"*/{name}")
    for path in _tree()
  )


@_each_of_all
def test_every_path_that_a_page_names_exists(page):
  names = set(_named(page.read_text())) - _NOT_OURS
  assert not [name for name in sorted(names) if not _is_there(name, page)]


@_each_of_all
def test_every_relative_link_of_a_page_leads_to_a_file(page):
  links = [it for it in _LINK.findall(page.read_text()) if "://" not in it]
  assert not [link for link in links if not (page.parent / link).exists()]


@_each_of_all
def test_every_benchmark_that_a_page_runs_exists(page):
  for name in _MODULE.findall(page.read_text()):
    assert importlib.util.find_spec(name) is not None


def test_pages_name_many_paths_and_missing_ones_are_detected():
  texts = [page.read_text() for page in _ALL_PAGES]
  assert len({name for text in texts for name in _named(text)}) > 100
  assert len({m for text in texts for m in _MODULE.findall(text)}) > 10
  assert list(_named("See `a/gone.csv`.")) == ["a/gone.csv"]
  assert not _is_there("a/gone.csv") and _is_there("benchmarks/*/results")
