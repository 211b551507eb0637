# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""JSON schemas of dataclasses, as JSON, as words and as Markdown tables.

Field descriptions come from the "Attributes:" sections of docstrings.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
import functools
import inspect
import json
import re
from typing import Any

import pydantic
from pydantic import json_schema as pydantic_schema
from pydantic_core import core_schema

Schema = dict[str, Any]

_DIALECT = "https://json-schema.org/draft/2020-12/schema"
# An entry of an "Attributes:" section: its name, and its text up to the next.
_ATTRIBUTE = re.compile(r"^  (\w+): (.*(?:\n    .*)*)", re.MULTILINE)
_WORDS = {
  "array": "a list",
  "boolean": "true or false",
  "integer": "a whole number",
  "null": "null",
  "number": "a number",
  "object": "an object",
  "string": "text",
}


@functools.cache
def adapter(cls: Any) -> pydantic.TypeAdapter[Any]:
  """The pydantic TypeAdapter of a type, built once."""
  return pydantic.TypeAdapter(cls)


def schema(cls: Any) -> Schema:
  """The JSON schema of a dataclass, or of a tuple or union of dataclasses.

  Every field is required, even one with a default: defaults are for code.
  Callers may modify the result.
  """
  generated = adapter(cls).json_schema(schema_generator=_Generator)
  return {"$schema": _DIALECT, **generated}


class _Generator(pydantic_schema.GenerateJsonSchema):
  """Takes descriptions from docstrings; omits field titles and defaults."""

  def dataclass_schema(
    self, schema: core_schema.DataclassSchema
  ) -> pydantic_schema.JsonSchemaValue:
    result = super().dataclass_schema(schema)
    headline, attributes = _docstring(schema["cls"])
    result["description"] = headline
    for name, field in result["properties"].items():
      if name in attributes:
        field["description"] = attributes[name]
    return result

  def default_schema(
    self, schema: core_schema.WithDefaultSchema
  ) -> pydantic_schema.JsonSchemaValue:
    return self.generate_inner(schema["schema"])

  def field_is_required(self, field: Any, total: bool) -> bool:
    return True

  def field_title_should_be_set(self, schema: Any) -> bool:
    return False


def _docstring(cls: type[Any]) -> tuple[str, dict[str, str]]:
  """A class's headline and attribute descriptions, with None as null."""
  text = re.sub(r"\bNone\b", "null", inspect.getdoc(cls) or "")
  headline = text.partition("\n\n")[0]
  section = text.partition("\nAttributes:\n")[2].partition("\n\n")[0]
  attributes = {
    name: " ".join(description.split())
    for name, description in _ATTRIBUTE.findall(section)
  }
  return " ".join(headline.split()), attributes


def at(schema: Schema, path: Sequence[str | int]) -> Schema:
  """The part of a schema that applies to the value at a path."""
  part = schema
  for step in path:
    children = (_child(it, step) for it in _alternatives(schema, part))
    part = next((it for it in children if it is not None), {})
  return part


def known_fields(schema: Schema, path: Sequence[str | int]) -> list[str]:
  """The fields of the object at a path."""
  objects = _alternatives(schema, at(schema, path))
  return [field for it in objects for field in it.get("properties", {})]


def _alternatives(schema: Schema, part: Schema) -> list[Schema]:
  return [_resolve(schema, it) for it in part.get("anyOf", [part])]


def _resolve(schema: Schema, part: Schema) -> Schema:
  name = referred(part)
  return part if name is None else schema["$defs"][name]


def referred(part: Schema) -> str | None:
  """The name in `$defs` that a part of a schema refers to, if any."""
  reference = part.get("$ref")
  return None if reference is None else reference.removeprefix("#/$defs/")


def _child(part: Schema, step: str | int) -> Schema | None:
  if isinstance(step, int):
    items = part.get("prefixItems", [])
    return items[step] if step < len(items) else part.get("items")
  values = part.get("additionalProperties") or None
  return part.get("properties", {}).get(step, values)


def rule(schema: Schema, part: Schema) -> str:
  """What a value must be, in words that complete "it must be"."""
  if "anyOf" in part:
    rules = [rule(schema, it) for it in part["anyOf"]]
    return ", ".join(rules[:-1]) + " or " + rules[-1]
  part = _resolve(schema, part)
  if "enum" in part:
    return f"one of {', '.join(map(str, part['enum']))}"
  if "const" in part:
    return str(part["const"])
  words = _WORDS[part["type"]]
  if "prefixItems" in part:
    # Our fixed-length tuples have items of one type.
    item = _WORDS[part["prefixItems"][0]["type"]].removeprefix("a ")
    words = f"a list of {len(part['prefixItems'])} {item}s"
  return words + "".join(_limits(part))


def _limits(part: Schema) -> Iterator[str]:
  least, most = part.get("minimum"), part.get("maximum")
  if least is not None and most is not None:
    yield f" from {least:g} to {most:g}"
  elif least is not None:
    yield f", at least {least:g}"
  elif "exclusiveMinimum" in part:
    yield f" above {part['exclusiveMinimum']}, at most {most}"
  if "minLength" in part:
    yield ", not empty"
  if "examples" in part:
    yield f", such as {part['examples'][0]}"


def markdown(schema: Schema, *, elsewhere: Iterable[str] = ()) -> str:
  """The table of an object's fields, then those of the objects inside it.

  A list or union of objects gives the tables of its members. Objects named in
  `elsewhere`, and what only they contain, are left out: they are documented in
  another place.
  """
  tables = [_table(schema["title"], schema)] if "title" in schema else []
  seen = set(elsewhere)
  queue = _names(schema)
  while queue:
    name = queue.pop(0)
    if name not in seen:
      seen.add(name)
      part = schema["$defs"][name]
      tables.append(_table(name, part))
      queue += _names(part)
  return "\n".join(tables)


def _table(name: str, part: Schema) -> str:
  rows = [
    f"| `{field}` | {_type(rule)} | {rule['description']} |\n"
    for field, rule in part["properties"].items()
  ]
  headline = part["description"]
  return (
    f"`{name}`: {headline[0].lower()}{headline[1:]}\n\n"
    f"| field | type | meaning |\n|---|---|---|\n{''.join(rows)}"
  )


def _type(part: Schema) -> str:
  """A field's type, such as `list[Call] or null`, without limits."""
  if "anyOf" in part:
    return " or ".join(map(_type, part["anyOf"]))
  if "enum" in part or "const" in part:
    values = part.get("enum", [part.get("const")])
    return ", ".join(f"`{json.dumps(value)}`" for value in values)
  if name := referred(part):
    return f"`{name}`"
  if "prefixItems" in part:
    return f"list[{', '.join(map(_type, part['prefixItems']))}]"
  for container, inner in (("list", "items"), ("map", "additionalProperties")):
    if part.get(inner):
      return f"{container}[{_type(part[inner])}]"
  return part["type"]


def _names(part: Schema) -> list[str]:
  fields = part.get("properties", {"": part}).values()
  return [name for field in fields for name in _references(field)]


def _references(part: Schema) -> Iterator[str]:
  """Names in `$defs` of the objects that a field may be or contain."""
  if name := referred(part):
    yield name
  items = [part["items"]] if "items" in part else []
  for inner in (*part.get("anyOf", []), *items):
    yield from _references(inner)
