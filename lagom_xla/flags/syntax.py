# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
r"""XLA's syntax of XLA_FLAGS, which is neither a shell's nor absl's.

Flags are separated by white space. A value may be quoted, right after the `=`:
in "double quotes" a backslash escapes the next character, in 'single quotes'
nothing is escaped. There is no `--no` form, no value in the next word and no
--flagfile. XLA silently stops reading at the first word that does not start
with `-`. If that is the very first word, the variable is the path of a file
with flags (xla/parse_flags_from_env.cc).
"""

from __future__ import annotations

import dataclasses
import errno
import pathlib
import re

SPACE = " \t\r\n"
# A quote at the end may be missing.
_FLAG = re.compile(
  r"""(-*)(?:
    ([-\w]*)=(?:'([^']*)'?|"((?:\\.|[^"])*)"?)
    |([^ \t\r\n]*)
  )""",
  re.ASCII | re.DOTALL | re.VERBOSE,
)


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Flag:
  """One flag of an XLA_FLAGS.

  Attributes:
    name: the part before the `=`, without dashes.
    value: the part after the `=`, without quotes; None where there is no `=`.
    dashes: those before the name; XLA's flags have two.
  """

  name: str
  value: str | None
  dashes: str = "--"

  def __str__(self) -> str:
    """As it can stand in XLA_FLAGS."""
    if self.value is None:
      return f"{self.dashes}{self.name}"
    return f"{self.dashes}{self.name}={_quote(self.value)}"


def follow(text: str) -> str:
  """The flags in the file that XLA_FLAGS names, or the text itself.

  Raises:
    OSError, ValueError: there is no such file, or it is not text.
  """
  if not text or text.lstrip(SPACE).startswith("-"):
    return text
  path = pathlib.Path(text)
  if not path.is_file():  # A FIFO may never end.
    raise FileNotFoundError(errno.ENOENT, "there is no such file", text)
  return path.read_text(encoding="utf-8")


def parse(text: str) -> tuple[tuple[Flag, ...], str]:
  """The flags in a text, and the remainder that XLA does not read."""
  flags = []
  rest = text.lstrip(SPACE)
  while rest.startswith("-"):
    flag, length, _ = first(rest)
    flags.append(flag)
    rest = rest[length:].lstrip(SPACE)
  return tuple(flags), rest.rstrip(SPACE)


def first(text: str) -> tuple[Flag, int, bool]:
  """The flag that a text starts with, and its length.

  Also returns whether its value is between two quotes.
  """
  match = _FLAG.match(text)
  assert match is not None  # The pattern matches the empty string.
  dashes, name, single, double, word = match.groups()
  is_closed = False
  if word is None:
    inner = single if double is None else double
    value = inner if double is None else re.sub(r"(?s)\\(.)", r"\1", inner)
    # The name, an equals sign and the first quote come before the value.
    before = len(dashes) + len(name) + 2
    is_closed = match.end() == before + len(inner) + 1
  else:
    name, equals, value = word.partition("=")
    value = value if equals else None
  return Flag(name=name, value=value, dashes=dashes), match.end(), is_closed


def spelled(value: object) -> str:
  """A value as flags spell it: "true" or "false" for a bool."""
  return str(value).lower() if isinstance(value, bool) else str(value)


def _quote(value: str) -> str:
  """A value, in quotes if it needs them."""
  if value[:1] not in ("'", '"') and not any(c in SPACE for c in value):
    return value
  escaped = value.replace("\\", "\\\\").replace('"', '\\"')
  return f'"{escaped}"'
