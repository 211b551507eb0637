# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Output of a command: its result on stdout, everything else on stderr.

A target's program may print, and so may the libraries that it loads, even below
Python or at exit. So a running command keeps the process's stdout to itself and
sends all other output to stderr. A command continues if its stderr is closed or
full.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable, Iterator
import contextlib
import io
import json
import logging
import os
import pathlib
import sys
from typing import TYPE_CHECKING, TextIO
import warnings

from lagom_xla import errors

if TYPE_CHECKING:
  import rich.console

# Default width, which fits mail, logs and editors.
_WIDTH = 80

# The folder of our own warnings.
_PACKAGE = pathlib.Path(__file__).parents[1]

# The stream for results; None for the process's stdout, before a command runs.
_results: TextIO | None = None
# Whether the running command is quiet, and its warnings so far.
_is_quiet = False
_warnings_said: set[str] = set()


@contextlib.contextmanager
def reserved() -> Iterator[None]:
  """Keeps stdout for results; a real file stays so until the process ends."""
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
  """Drops output that stderr cannot take, if stderr is a real file."""
  try:
    number = sys.stderr.fileno()
  except (io.UnsupportedOperation, AttributeError):  # In a test, or closed.
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
  """Prints a message on stderr, unless --quiet is set."""
  if not _is_quiet:
    print(f"lagom-xla: {text}", file=sys.stderr)


@contextlib.contextmanager
def warnings_said(*, is_quiet: bool) -> Iterator[None]:
  """Shows warnings inside the block; with `is_quiet`, only errors."""
  global _is_quiet
  _is_quiet = is_quiet
  disabled = logging.root.manager.disable
  if is_quiet:
    logging.disable(logging.WARNING)
  try:
    with warnings.catch_warnings():
      warnings.showwarning = _show_warning
      yield
  finally:
    _is_quiet = False
    logging.disable(disabled)
    _warnings_said.clear()


def _show_warning(
  message: Warning | str,
  category: type[Warning],
  filename: str,
  lineno: int,
  file: TextIO | None = None,
  line: str | None = None,
) -> None:
  """Shows our own warnings as messages, and others like Python."""
  if pathlib.Path(filename).is_relative_to(_PACKAGE):
    if str(message) not in _warnings_said:  # A cluster file is read twice.
      _warnings_said.add(str(message))
      say(str(message))
  elif not _is_quiet:
    text = warnings.formatwarning(message, category, filename, lineno, line)
    (file or sys.stderr).write(text)


def is_unread(error: errors.OutputError) -> bool:
  """Whether the reader of the result closed the pipe."""
  return isinstance(error.__cause__, BrokenPipeError)


def write(text: str) -> None:
  """Writes one or more lines of the result."""
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
  """Writes the result according to --format and --quiet.

  `result` returns the result for JSON, and `show` prints it as text. With
  --quiet, only the names of written `files` are printed.
  """
  if arguments.format == "json":
    write_json(result())
  elif arguments.quiet:
    for path in files:
      write(f"Wrote {path}")
  else:
    show(console())


def flush() -> None:
  """Flushes results, before the process ends at once."""
  _stream().flush()


def console() -> rich.console.Console:
  """The console for tables of the result.

  It prints [brackets] literally; styles are passed separately.
  """
  import rich.console

  stream = _stream()
  is_told = stream.isatty() or "COLUMNS" in os.environ
  return rich.console.Console(
    file=stream,
    markup=False,
    emoji=False,
    width=None if is_told else _WIDTH,
    # NO_COLOR turns bold off, too.
    color_system=None if os.environ.get("NO_COLOR") else "auto",
  )


def _stream() -> TextIO:
  return sys.stdout if _results is None else _results


class _Said(io.TextIOWrapper):
  """The process's stderr; drops all output after the first failure."""

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
      # Python would retry the rest at exit.
      os.dup2(os.open(os.devnull, os.O_WRONLY), self.fileno())
      self._fail(error)

  def _fail(self, error: OSError) -> None:
    """Ignores the error."""


class _Results(_Said):
  """The process's stdout; its failures are OutputErrors."""

  def _fail(self, error: OSError) -> None:
    raise errors.OutputError(
      f"Cannot write the result: {error.strerror}."
    ) from error


def _own_stdout() -> TextIO:
  """The process's original stdout; file descriptor 1 becomes stderr.

  Returns Python's stdout if it is not a real file, as in tests.
  """
  if sys.stdout is None:  # Closed.
    return open(os.devnull, "w", encoding="utf-8")
  try:
    number = sys.stdout.fileno()
  except io.UnsupportedOperation:
    return sys.stdout
  own = os.fdopen(os.dup(number), "wb")
  try:
    os.dup2(sys.stderr.fileno(), number)
  except (io.UnsupportedOperation, AttributeError):  # Closed, or in a test.
    os.dup2(os.open(os.devnull, os.O_WRONLY), number)
  return _Results(own, encoding=sys.stdout.encoding, errors="replace")
