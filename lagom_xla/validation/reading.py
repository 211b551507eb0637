# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Reads dataclasses from JSON, and writes them.

An error names the field, shows its value and quotes its rule. Most numbers are
physical quantities: above zero, and small enough for the integers of the protos
and tables that they end up in.
"""

from __future__ import annotations

from collections.abc import Sequence
import dataclasses
import json
import pathlib
from typing import Annotated, Any, TypeVar, cast

import pydantic
import pydantic_core

from lagom_xla.validation import json_schema
from lagom_xla.validation import whole_files

# The `__pydantic_config__` of a dataclass that `read` takes; dataclasses inside
# it inherit it.
STRICT = pydantic.ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)

# pydantic's error type for rules that JSON Schema cannot express; the message
# completes "it must be".
BROKEN_RULE = "broken_rule"


def _printable(text: str) -> str:
  if not text.isprintable():
    raise pydantic_core.PydanticCustomError(
      BROKEN_RULE, "one line of printable text"
    )
  return text


Count = Annotated[int, pydantic.Field(gt=0, le=2**31 - 1)]
Bytes = Annotated[int, pydantic.Field(gt=0, le=2**63 - 1)]
# In 1e9/s; the maximum, 1e18/s, fits an int64.
Rate = Annotated[float, pydantic.Field(ge=1e-6, le=1e9)]
TimeUs = Annotated[float, pydantic.Field(ge=0)]

# Text that fits in a comment of a shell script.
Line = Annotated[str, pydantic.AfterValidator(_printable)]
Text = Annotated[
  str, pydantic.Field(min_length=1), pydantic.AfterValidator(_printable)
]


_T = TypeVar("_T")

_UNKNOWN = "unexpected_keyword_argument"
_MISSING = "missing"


class InvalidError(ValueError):
  """Data violates a rule; the message names the field, value and rule."""


class MissingError(InvalidError):
  """Data lacks a field."""


def read_file(path: pathlib.Path) -> object:
  """The JSON value in a file.

  Raises:
    InvalidError: the file cannot be read, or is not JSON; the message names the
      line.
  """
  try:
    return json.loads(whole_files.read_bytes(path).decode("utf-8-sig"))
  except OSError as e:
    raise InvalidError(f"cannot be read: {e.strerror}") from e
  except json.JSONDecodeError as e:
    raise InvalidError(f"line {e.lineno} is not JSON: {e.msg}") from e
  except UnicodeDecodeError as e:
    raise InvalidError(f"is not UTF-8 text (at byte {e.start})") from e
  except (ValueError, RecursionError) as e:
    raise InvalidError(f"is not usable JSON: {e}") from e


def read(cls: type[_T], raw: object) -> _T:
  """Converts a JSON value to a dataclass.

  Args:
    cls: a dataclass whose `__pydantic_config__` is `STRICT`. Fields with
      defaults must be given, too.
    raw: the value, as returned by json.loads.

  Raises:
    InvalidError: a field is unknown, of the wrong type or out of range.
    MissingError: a field is missing.
  """
  try:
    # In strict mode pydantic converts lists to tuples, and objects to
    # dataclasses, only when it parses JSON.
    value = json_schema.adapter(cls).validate_json(json.dumps(raw))
  except pydantic.ValidationError as e:
    raise _explained(e, raw, json_schema.schema(cls)) from e
  defaulted = _first_missing(raw, write(value))
  if defaulted is not None:
    raise MissingError(f"{_dotted(defaulted)} is missing")
  return value


def write(value: Any) -> dict[str, Any]:
  """Converts a dataclass to JSON data with all fields, for `read`."""
  return json_schema.adapter(type(value)).dump_python(value, mode="json")


def convert(to: type[_T], source: object, /, **others: object) -> _T:
  """Makes a dataclass from `others` and same-named attributes of `source`."""
  fields = dataclasses.fields(cast(Any, to))
  names = (field.name for field in fields if field.name not in others)
  return to(**{name: getattr(source, name) for name in names}, **others)


def show(value: object) -> str:
  """A value as JSON, cut to 60 characters."""
  text = json.dumps(value, default=repr)
  return text if len(text) <= 60 else text[:57] + "..."


def _explained(
  error: pydantic.ValidationError, raw: object, schema: json_schema.Schema
) -> InvalidError:
  """Converts the most helpful of pydantic's errors to one of ours."""
  # A misspelled field also makes another one missing, so it comes first.
  first = max(
    error.errors(include_url=False),
    key=lambda it: (it["type"] == _UNKNOWN, it["type"] == _MISSING),
  )
  kind, path = first["type"], first["loc"]
  if kind == _MISSING:
    return MissingError(f"{_dotted(path)} is missing")
  if kind == _UNKNOWN:
    known = json_schema.known_fields(schema, path[:-1])
    return InvalidError(
      f"{_dotted(path)} is unknown; known: {', '.join(known)}"
    )
  if kind == "value_error":  # From the dataclass, with a complete message.
    return InvalidError(str(first["ctx"]["error"]))
  if kind == "json_invalid":
    return InvalidError(f"is not usable JSON: {first['ctx']['error']}")
  path, value = _found(path, raw)
  rule = first["msg"]
  if kind != BROKEN_RULE:
    rule = json_schema.rule(schema, json_schema.at(schema, path))
  name = _dotted(path)
  return InvalidError(
    f"{name + ' ' if name else ''}is {show(value)}; it must be {rule}"
  )


def _found(
  path: Sequence[str | int], raw: Any
) -> tuple[Sequence[str | int], object]:
  """A value and its path, without steps that pydantic adds.

  It adds steps for alternatives of a union and for keys of a mapping.
  """
  for depth, step in enumerate(path):
    try:
      raw = raw[step]
    except (KeyError, IndexError, TypeError):
      return path[:depth], raw
  return path, raw


def _first_missing(
  raw: Any, written: Any, path: tuple[str | int, ...] = ()
) -> tuple[str | int, ...] | None:
  """The path of the first field that was not given but took its default."""
  if isinstance(written, dict):
    if missing := [key for key in written if key not in raw]:
      return (*path, missing[0])
    steps = list(written)
  elif isinstance(written, list):
    steps = list(range(len(written)))
  else:
    return None
  below = (_first_missing(raw[s], written[s], (*path, s)) for s in steps)
  return next((it for it in below if it is not None), None)


def _dotted(path: Sequence[str | int]) -> str:
  """A path, such as `calls[0].num_bytes`."""
  steps = (f"[{s}]" if isinstance(s, int) else f".{s}" for s in path)
  return "".join(steps).removeprefix(".")
