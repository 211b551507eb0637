# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""The pages of docs/: what they tell a reader to type is real."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
import contextlib
import io
import re
import shlex
import subprocess
import sys
import tomllib

import pytest

from commands import ROOT
import lagom_xla
from lagom_xla.cli import main

_DOCS = ROOT / "docs"
_PAGES = sorted(_DOCS.glob("*.md"))
_BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_INDENTED = re.compile(r"^    (.*)$", re.MULTILINE)
_INLINE = re.compile(r"`([^`\n]+)`")
_INSTALL = re.compile(r"pip install '(?:lagom_xla|\.)\[([\w,]+)\]'")
_GAPS = ("required", "expected one argument")
# What precedes a command in a line of shell.
_BEFORE = re.compile(r"^(?:[A-Z_]+=(?:\"[^\"]*\"|\S*) )*(lagom-xla .*)$")


def _in_blocks(text: str) -> Iterator[str]:
  """Lines of code that stand alone."""
  for kind, block in _BLOCK.findall(text):
    if kind in ("", "sh"):
      yield from block.replace("\\\n", "").splitlines()
  yield from _INDENTED.findall(text)


def _commands(lines: Iterable[str]) -> list[list[str]]:
  """The commands of lagom-xla among lines of shell, as words."""
  found = []
  for line in lines:
    match = _BEFORE.match(line.strip())
    # Whoever writes "..." says that it is not whole.
    if match is not None and "..." not in line:
      found.append(shlex.split(match[1], comments=True)[1:])
  return found


def _refusal(words: list[str]) -> str:
  """What lagom-xla would say of a command line; "" where it takes it."""
  said = io.StringIO()
  with contextlib.redirect_stderr(said):
    try:
      main.parser().parse_args(words)
    except SystemExit:
      *_, last = said.getvalue().splitlines()
      return last
  return ""


@pytest.mark.parametrize("page", _PAGES, ids=lambda page: page.stem)
def test_every_command_in_a_page_is_one_that_lagom_xla_takes(page):
  for words in _commands(_in_blocks(page.read_text())):
    assert not _refusal(words)


@pytest.mark.parametrize("page", _PAGES, ids=lambda page: page.stem)
def test_every_command_in_a_sentence_has_options_that_exist(page):
  for words in _commands(_INLINE.findall(page.read_text())):
    refusal = _refusal(words)
    # A sentence may leave targets and values to the reader.
    assert not refusal or any(gap in refusal for gap in _GAPS)


def test_pages_have_commands_to_check():
  lines = (line for page in _PAGES for line in _in_blocks(page.read_text()))
  assert {words[0] for words in _commands(lines)} >= {
    *("inspect", "tune", "verify", "report", "profile", "flags"),
    *("plugin", "doctor", "calibrate"),
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


def test_the_picture_is_what_its_program_draws():
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


@pytest.mark.parametrize("page", _PAGES, ids=lambda page: page.stem)
def test_every_page_is_in_the_table_of_contents(page):
  contents = (_DOCS / "index.md").read_text().splitlines()
  assert page.stem == "index" or page.stem in contents
