# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""What docs name of the repository is there: files, folders and modules."""

from __future__ import annotations

from collections.abc import Iterator
import fnmatch
import functools
import importlib.util
import pathlib
import re

import pytest

from commands import PLAN_FILES
from commands import ROOT

_FOLDERS = ("benchmarks", "docs", "examples", "lagom_xla", "passes", "tests")
_TOP = ("README.md", "CONTRIBUTING.md")
_PAGES = sorted(
  [
    *(ROOT / name for name in _TOP),
    *(page for name in _FOLDERS for page in (ROOT / name).rglob("*.md")),
  ]
)
_CODE = re.compile(r"`([^`\n]+)`")
_LINK = re.compile(r"\]\(([^)#\s]+)[^)\s]*\)")
_MODULE = re.compile(r"-m `?(benchmarks[\w.]*\w)")
# A file by its ending, or what is in a folder of ours.
_FILE = re.compile(r"[\w*./-]+\.(?:c|csv|json|md|proto|py|svg|toml|xz)")
_IN_FOLDER = re.compile(rf"(?:{'|'.join(_FOLDERS)})/[\w*./-]*")
# What readers and their jobs have, and what others publish.
_NOT_OURS = frozenset(
  [
    *PLAN_FILES,
    *("FILE.json", "mycluster.json", "trace.json"),  # Made by commands.
    # What benchmarks.gpu writes on a machine with a GPU.
    *("gpu.json", "step.hlo.xz", "step.xplane.pb.xz"),
    *("model.py", "step.py"),  # In examples of output.
    *("maxtext_target.py", "train_compile.py"),  # MaxText, and a target for it.
    "lhs_cost_model.md",  # XLA's.
  ]
)


@functools.cache
def _tree() -> tuple[str, ...]:
  """Paths of all files and folders, from the root on."""
  return tuple(
    path.relative_to(ROOT).as_posix()
    for name in _FOLDERS
    for path in (ROOT / name).rglob("*")
    if "__pycache__" not in path.parts
  ) + tuple(path.name for path in ROOT.iterdir())


def _named(text: str) -> Iterator[str]:
  """The paths in code, as a reader would look for them."""
  for code in _CODE.findall(text):
    for word in code.split():
      word = word.partition(":")[0].removeprefix("--out=")
      if _FILE.fullmatch(word) or _IN_FOLDER.fullmatch(word):
        yield word.rstrip("/")


def _is_there(name: str, page: pathlib.Path = ROOT / "README.md") -> bool:
  """Whether a path ends so, from the root or from the folder that is meant."""
  if name.startswith(".."):
    return (page.parent / name).exists()
  name = name.replace("NAME", "*")
  return any(
    fnmatch.fnmatchcase(path, name) or fnmatch.fnmatchcase(path, f"*/{name}")
    for path in _tree()
  )


@pytest.mark.parametrize("page", _PAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_every_path_that_a_page_names_exists(page):
  names = set(_named(page.read_text())) - _NOT_OURS
  assert not [name for name in sorted(names) if not _is_there(name, page)]


@pytest.mark.parametrize("page", _PAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_every_link_to_a_file_of_ours_leads_there(page):
  links = [it for it in _LINK.findall(page.read_text()) if "://" not in it]
  assert not [link for link in links if not (page.parent / link).exists()]


@pytest.mark.parametrize("page", _PAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_every_benchmark_that_a_page_runs_exists(page):
  for name in _MODULE.findall(page.read_text()):
    assert importlib.util.find_spec(name) is not None


def test_pages_name_paths_to_check():
  texts = [page.read_text() for page in _PAGES]
  assert len({name for text in texts for name in _named(text)}) > 100
  assert len({m for text in texts for m in _MODULE.findall(text)}) > 10


def test_a_path_that_is_gone_is_found_out():
  assert list(_named("See `benchmarks/gone.py` and `a/gone.csv`.")) == [
    "benchmarks/gone.py",
    "a/gone.csv",
  ]
  assert not _is_there("benchmarks/gone.py")
  assert _is_there("benchmarks/*/results")
