# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Records how a program sets XLA_FLAGS itself, as JAX's guides show.

If a program overwrites the variable, a launcher's flags are lost. After XLA has
read it, changes have no effect. So while a target is loaded, each change is
recorded with its line. A change that would make XLA end the process raises an
error at that line.
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator
import contextlib
import linecache
import os
import sys
from typing import Any
import warnings

from lagom_xla import errors
from lagom_xla.flags import environment
from lagom_xla.flags import syntax
from lagom_xla.jax_internals import request

_NAME = "XLA_FLAGS"
# Files through which a mapping is set: CPython's and this one.
_OF_MAPPINGS = (
  *("os.py", "<frozen os>", "_collections_abc.py"),
  *("<frozen _collections_abc>", __file__),
)

_NEEDED = object()
_changes: list[environment.Own] = []


class _Watched(type(os.environ)):
  """The environment while a program is loaded."""

  def __setitem__(self, key: str, value: str) -> None:
    if key != _NAME:
      super().__setitem__(key, value)
      return
    before = self.get(_NAME)
    super().__setitem__(key, value)
    if value == before:
      return
    change = _change(before or "", value)
    if not change.is_late:
      try:
        environment.check()
      except errors.LagomError:
        _restore(before)
        raise
    if _changes and not _changes[-1].names:
      _changes.pop()  # It was removed to be set again.
    _changes.append(change)

  def pop(self, key: str, default: Any = _NEEDED) -> Any:
    if key == _NAME and key not in self:  # With env.sh it would be there.
      _changes.append(_change("", ""))
    return super().pop(key) if default is _NEEDED else super().pop(key, default)

  def __delitem__(self, key: str) -> None:
    before = self.get(_NAME, "")
    super().__delitem__(key)
    if key == _NAME:
      _changes.append(_change(before, ""))


@contextlib.contextmanager
def watched() -> Iterator[list[environment.Own]]:
  """Yields a list that at the end has the changes made inside.

  Changes that came too late are undone, with a RuntimeWarning.
  """
  environ: Any = os.environ
  changes: list[environment.Own] = []
  before, had_started = os.environ.get(_NAME), request.has_started()
  own, environ.__class__ = type(environ), _Watched
  _changes.clear()
  try:
    yield changes
  finally:
    environ.__class__ = own
    changes += [change for change in _changes if not change.is_late]
  late = [change for change in _changes if change.is_late]
  if late and not changes:
    _restore(before)
  # Dumps change no step: MaxText asks for some where nothing is set.
  places = [change.place for change in late if change.is_of_the_step]
  if places:
    advice = "set it before JAX is first used"
    if had_started:
      advice = "this process had already used JAX"
    warnings.warn(
      f"{places[0]} sets {_NAME} after XLA has read it, which has no effect:"
      f" {advice}.",
      RuntimeWarning,
      stacklevel=3,
    )


def as_read() -> str:
  """XLA_FLAGS as XLA has read it, even if this process changed it since."""
  return environment.text_read(request.read())


def _restore(value: str | None) -> None:
  if value is None:
    os.environ.pop(_NAME, None)
  else:
    os.environ[_NAME] = value


def _change(before: str, after: str) -> environment.Own:
  """The change by the caller that set the mapping."""
  frame = sys._getframe(2)
  is_default = False
  while frame.f_code.co_filename.endswith(_OF_MAPPINGS) and frame.f_back:
    is_default |= frame.f_code.co_name == "setdefault"
    frame = frame.f_back
  file, line = frame.f_code.co_filename, frame.f_lineno
  if not after:
    keeps = False
  elif words := before.split():
    keeps = set(words) <= set(after.split())
  else:
    keeps = not is_default and _reads(file, line)
  flags, _ = syntax.parse(after)
  return environment.Own(
    place=f"{os.path.relpath(file)}:{line}",
    does="keeps" if keeps else "yields" if is_default else "drops",
    names=tuple(f.name for f in flags if f"--{f.name}" not in before),
    is_late=request.has_started(),
  )


def _reads(file: str, line: int) -> bool:
  """Whether the statement in a line uses the variable's current value.

  Includes names in the file whose values use it.
  """
  try:
    tree = ast.parse("".join(linecache.getlines(file)))
  except SyntaxError:
    return False
  taken: set[str] = set()
  for node in ast.walk(tree):
    match node:
      case ast.AugAssign(value=value):
        reads, targets = True, []
      case ast.Assign(value=value, targets=targets):
        reads = _num_mentions(value, taken) > 0
      case ast.Expr(value=value):  # A call that names it, too.
        reads, targets = _num_mentions(value, taken) > 1, []
      case _:
        continue
    if node.lineno <= line <= (node.end_lineno or line):
      return reads
    if reads:
      taken |= {it.id for it in targets if isinstance(it, ast.Name)}
  return False


def _num_mentions(value: ast.expr, names: Collection[str]) -> int:
  """How often an expression mentions the variable or one of these names."""
  return sum(
    (isinstance(node, ast.Constant) and node.value == _NAME)
    or (isinstance(node, ast.Name) and node.id in names)
    for node in ast.walk(value)
  )
