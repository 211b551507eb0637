# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""What a command says: its result alone on stdout, all else on stderr.

A target is a program of its own: it prints, and so do the libraries that it
loads, some of them below Python or when the process ends. So a command that
runs has the process's stdout to itself, and everybody else's goes to stderr.
Nobody need read that: a command goes on where its stderr is closed or full.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable, Iterator
import contextlib
import io
import json
import os
import pathlib
import sys
from typing import TYPE_CHECKING, TextIO
import warnings

from lagom_xla import errors

if TYPE_CHECKING:
  import rich.console

# Where nobody tells: what mail, logs and editors show.
_WIDTH = 80

# Where warnings of ours come from.
_PACKAGE = pathlib.Path(__file__).parents[1]

# Where results go; the process's stdout until a command has it to itself.
_results: TextIO | None = None
# Of the command that runs: whether nothing is said, and what was warned of.
_is_quiet = False
_warnings_said: set[str] = set()


@contextlib.contextmanager
def reserved() -> Iterator[None]:
  """Keeps stdout to results, to the end of the process where it is a file."""
  global _results
  results = _own_stdout()
  with contextlib.redirect_stdout(sys.stderr):
    _results = results
    try:
      yield
    finally:
      _results = None
      results.flush()


@contextlib.contextmanager
def unread_said() -> Iterator[None]:
  """Drops what cannot be written to stderr, where that is a file."""
  try:
    number = sys.stderr.fileno()
  except (io.UnsupportedOperation, AttributeError):  # A test's, or closed.
    yield
    return
  said = _Said(
    open(number, "wb", buffering=0, closefd=False),
    encoding=sys.stderr.encoding,
    errors="backslashreplace",
    line_buffering=True,
    write_through=True,
  )
  with contextlib.redirect_stderr(said):
    yield


def say(text: str) -> None:
  """Says something to the user beside the result, unless it shall be quiet."""
  if not _is_quiet:
    print(f"lagom-xla: {text}", file=sys.stderr)


@contextlib.contextmanager
def warnings_said(*, is_quiet: bool) -> Iterator[None]:
  """Says warnings inside, or with `is_quiet` nothing but errors."""
  global _is_quiet
  _is_quiet = is_quiet
  try:
    with warnings.catch_warnings():
      warnings.showwarning = _show_warning
      yield
  finally:
    _is_quiet = False
    _warnings_said.clear()


def _show_warning(
  message: Warning | str,
  category: type[Warning],
  filename: str,
  lineno: int,
  file: TextIO | None = None,
  line: str | None = None,
) -> None:
  """Shows a warning: one of ours as what we say, others as Python does."""
  if pathlib.Path(filename).is_relative_to(_PACKAGE):
    if str(message) not in _warnings_said:  # A cluster file is read twice.
      _warnings_said.add(str(message))
      say(str(message))
  elif not _is_quiet:
    text = warnings.formatwarning(message, category, filename, lineno, line)
    (file or sys.stderr).write(text)


def is_unread(error: errors.OutputError) -> bool:
  """Whether the reader of the result has seen enough, and went away."""
  return isinstance(error.__cause__, BrokenPipeError)


def write(text: str) -> None:
  """Writes a line, or lines, of the result."""
  print(text, file=_stream())


def write_json(value: object) -> None:
  """Writes the result, made of dataclasses, as one JSON object."""
  from lagom_xla import validation

  write(json.dumps(validation.write(value), indent=2))


def write_result(
  arguments: argparse.Namespace,
  result: Callable[[], object],
  show: Callable[[rich.console.Console], None],
  files: Iterable[object] = (),
) -> None:
  """Writes what --format and --quiet ask for.

  `result` makes what JSON is of, and `show` prints it for people. Where it is
  quiet, the `files` that were written are named and nothing else.
  """
  if arguments.format == "json":
    write_json(result())
  elif arguments.quiet:
    for path in files:
      write(f"Wrote {path}")
  else:
    show(console())


def flush() -> None:
  """Hands on what was written so far, as where the process ends at once."""
  _stream().flush()


def console() -> rich.console.Console:
  """Where tables of the result go.

  A name in [brackets] is a name there: styles are given beside the text.
  """
  import rich.console

  stream = _stream()
  is_told = stream.isatty() or "COLUMNS" in os.environ
  return rich.console.Console(
    file=stream,
    markup=False,
    emoji=False,
    width=None if is_told else _WIDTH,
    # Bold is no color, and no less in the way of a program.
    color_system=None if os.environ.get("NO_COLOR") else "auto",
  )


def _stream() -> TextIO:
  return sys.stdout if _results is None else _results


class _Said(io.TextIOWrapper):
  """The process's stderr, which leads nowhere once nobody reads it."""

  def write(self, text: str) -> int:
    with self._guarded():
      super().write(text)
    return len(text)

  def flush(self) -> None:
    with self._guarded():
      super().flush()

  @contextlib.contextmanager
  def _guarded(self) -> Iterator[None]:
    try:
      yield
    except OSError as error:
      # What is left is lost; Python would try once more when it ends.
      os.dup2(os.open(os.devnull, os.O_WRONLY), self.fileno())
      self._fail(error)

  def _fail(self, error: OSError) -> None:
    """Says nothing: nobody need read it."""


class _Results(_Said):
  """The process's stdout, which fails in errors of ours."""

  def _fail(self, error: OSError) -> None:
    raise errors.OutputError(
      f"The result cannot be written: {error.strerror}."
    ) from error


def _own_stdout() -> TextIO:
  """The stdout that the process came with; its number 1 is stderr's from now.

  Where Python's stdout is no file, as in tests, it is that.
  """
  if sys.stdout is None:  # It is closed.
    return open(os.devnull, "w", encoding="utf-8")
  try:
    number = sys.stdout.fileno()
  except io.UnsupportedOperation:
    return sys.stdout
  own = os.fdopen(os.dup(number), "wb")
  try:
    os.dup2(sys.stderr.fileno(), number)
  except (io.UnsupportedOperation, AttributeError):  # Closed, or a test's.
    os.dup2(os.open(os.devnull, os.O_WRONLY), number)
  return _Results(own, encoding=sys.stdout.encoding, errors="replace")
