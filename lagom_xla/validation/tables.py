# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""JSON schemas as Markdown tables of fields, one for each object."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
import json

from lagom_xla.validation import json_schema


def markdown(
  schema: json_schema.Schema, *, elsewhere: Iterable[str] = ()
) -> str:
  """The tables of an object and, after it, of those that it holds.

  Args:
    schema: the object's, as `json_schema.schema` returns it; of a list of
      objects, or of a choice of them, there are the tables of these.
    elsewhere: objects that have their tables, and those of what they hold, in
      another place.
  """
  tables = [_table(schema["title"], schema)] if "title" in schema else []
  seen = set(elsewhere)
  queue = _names(schema)
  while queue:
    name = queue.pop(0)
    if name in seen:
      continue
    seen.add(name)
    part = schema["$defs"][name]
    tables.append(_table(name, part))
    queue += _names(part)
  return "\n".join(tables)


def _table(name: str, part: json_schema.Schema) -> str:
  rows = [
    f"| `{field}` | {_type(rule)} | {rule['description']} |\n"
    for field, rule in part["properties"].items()
  ]
  headline = part["description"]
  return (
    f"`{name}`: {headline[0].lower()}{headline[1:]}\n\n"
    f"| field | type | meaning |\n|---|---|---|\n{''.join(rows)}"
  )


def _type(part: json_schema.Schema) -> str:
  """A field's type as `list[Call] or null`, without limits."""
  if "anyOf" in part:
    return " or ".join(map(_type, part["anyOf"]))
  if "enum" in part or "const" in part:
    values = part.get("enum", [part.get("const")])
    return ", ".join(f"`{json.dumps(value)}`" for value in values)
  if name := json_schema.referred(part):
    return f"`{name}`"
  if "prefixItems" in part:
    return f"list[{', '.join(map(_type, part['prefixItems']))}]"
  for container, inner in (("list", "items"), ("map", "additionalProperties")):
    if part.get(inner):
      return f"{container}[{_type(part[inner])}]"
  return part["type"]


def _names(part: json_schema.Schema) -> list[str]:
  fields = part.get("properties", {"": part}).values()
  return [name for field in fields for name in _references(field)]


def _references(part: json_schema.Schema) -> Iterator[str]:
  """The objects of `$defs` that a field is, or may be, or holds."""
  if name := json_schema.referred(part):
    yield name
  items = [part["items"]] if "items" in part else []
  for inner in (*part.get("anyOf", []), *items):
    yield from _references(inner)
