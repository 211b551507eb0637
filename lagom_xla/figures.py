# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Reads JSON into dataclasses of figures, and refuses whatever does not fit.

The annotation of a field is its rule: there is no schema beside the dataclass.
Every number is a physical figure (a count, a size, a rate), so it must be above
zero and small enough for the integers of the protos that it ends up in.
"""

from __future__ import annotations

from collections.abc import Mapping
import dataclasses
import json
import pathlib
import types
import typing
from typing import Any, Literal, TypeVar

_MAX_INT32 = 2**31 - 1
_MAX_INT64 = 2**63 - 1
_MIN_FLOAT, _MAX_FLOAT = 1e-6, 1e9  # In 1e9/s, so rates also fit an int64.

_T = TypeVar("_T")


class FigureError(ValueError):
  """Data that does not fit; the message names the field, value and rule."""


def read(path: pathlib.Path) -> object:
  """The JSON value in a file.

  Raises:
    FigureError: the file cannot be read, or its text is not JSON; the message
      has the line.
  """
  try:
    return json.loads(path.read_text(encoding="utf-8"))
  except OSError as e:
    raise FigureError(f"cannot be read: {e.strerror}") from e
  except json.JSONDecodeError as e:
    raise FigureError(f"line {e.lineno} is not JSON: {e.msg}") from e
  except UnicodeDecodeError as e:
    raise FigureError(f"is not UTF-8 text (at byte {e.start})") from e
  except (ValueError, RecursionError) as e:
    raise FigureError(f"is not usable as JSON: {e}") from e


def merge(base: object, over: object) -> object:
  """`over` on top of `base`, object by object; any other value replaces."""
  if not (isinstance(base, dict) and isinstance(over, dict)):
    return over
  merged = {k: merge(base.get(k), v) for k, v in over.items()}
  return {**base, **merged}


def decode(cls: type[_T], raw: object, path: str = "") -> _T:
  """A JSON object as an instance of a dataclass, with no field left over.

  Args:
    cls: a dataclass whose fields are bool, int, float, str, a Literal of str, a
      tuple of two int, a Mapping from str to float, a dataclass, or a dataclass
      or None.
    raw: the object, as json.loads returns it.
    path: the object's own place, to start the names of fields with.

  Raises:
    FigureError: a field is missing, unknown, of the wrong type or out of
      range.
  """
  hints = typing.get_type_hints(cls)
  prefix = f"{path}." if path else ""
  if not isinstance(raw, dict):
    raise FigureError(f"{path} is {show(raw)}; it must be an object")
  for key in raw:
    if key not in hints:
      raise FigureError(f"{prefix}{key} is unknown; known: {', '.join(hints)}")
  for key in hints:
    if key not in raw:
      raise FigureError(f"{prefix}{key} is missing")
  return cls(**{k: _value(h, raw[k], prefix + k) for k, h in hints.items()})


def show(value: object) -> str:
  """A value as JSON, short enough for one line of a message."""
  text = json.dumps(value, default=repr)
  return text if len(text) <= 60 else text[:57] + "..."


def _value(hint: Any, value: Any, path: str) -> Any:
  args, origin = typing.get_args(hint), typing.get_origin(hint)
  if dataclasses.is_dataclass(hint):
    return decode(typing.cast("type[Any]", hint), value, path)
  if origin is types.UnionType:
    return None if value is None else _value(args[0], value, path)
  if origin is Mapping:
    if not isinstance(value, dict):
      raise FigureError(f"{path} is {show(value)}; it must be an object")
    return {k: _value(args[1], v, f"{path}.{k}") for k, v in value.items()}
  if origin is tuple:
    ok = isinstance(value, list) and len(value) == 2
    ok = ok and all(type(v) is int and 0 <= v <= _MAX_INT32 for v in value)
    rule = "two whole numbers, such as [9, 0]"
  elif origin is Literal:
    ok, rule = value in args, f"one of {', '.join(args)}"
  elif hint is int:
    most = _MAX_INT64 if path.endswith("_bytes") else _MAX_INT32
    ok = type(value) is int and 0 < value <= most
    rule = f"a whole number above 0, at most {most}"
  elif hint is float:
    ok = type(value) in (int, float) and _MIN_FLOAT <= value <= _MAX_FLOAT
    rule = f"a number above 0, from {_MIN_FLOAT:g} to {_MAX_FLOAT:g}"
  else:
    ok = type(value) is hint and value != ""
    rule = "true or false" if hint is bool else "text, not empty"
  if not ok:
    raise FigureError(f"{path} is {show(value)}; it must be {rule}")
  if origin is tuple:
    return tuple(value)
  return float(value) if hint is float else value
