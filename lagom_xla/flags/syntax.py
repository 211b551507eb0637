# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
r"""The syntax of XLA_FLAGS in XLA, which is neither a shell's nor absl's.

Flags are separated by white space. A value may be quoted, right after the `=`:
in "double quotes" a backslash escapes the next character, in 'single quotes'
nothing is escaped. There is no `--no` form, no value in the next word and no
--flagfile. At the first word that does not start with `-` XLA stops reading,
without a message. A variable whose first word does not is the path of a file
that holds the flags (xla/parse_flags_from_env.cc).
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
    dashes: those before the name; XLA knows flags with two.
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
  """The flags in the file that XLA_FLAGS names, or the text if it names none.

  Raises:
    OSError, ValueError: there is no such file, or it holds no text.
  """
  if not text.strip() or text.lstrip(SPACE).startswith("-"):
    return text
  path = pathlib.Path(text)
  if not path.is_file():  # A FIFO may never end.
    raise FileNotFoundError(errno.ENOENT, "there is no such file", text)
  return path.read_text(encoding="utf-8")


def parse(text: str) -> tuple[tuple[Flag, ...], str]:
  """The flags in a text, and its remainder, which XLA does not read."""
  flags = []
  rest = text.lstrip(SPACE)
  while rest.startswith("-"):
    flag, length, _ = first(rest)
    flags.append(flag)
    rest = rest[length:].lstrip(SPACE)
  return tuple(flags), rest.rstrip(SPACE)


def first(text: str) -> tuple[Flag, int, bool]:
  """The flag with which a text begins, and its length.

  Returns whether its value is between two quotes, too.
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


def _quote(value: str) -> str:
  """A value, in quotes if it needs them."""
  if value[:1] not in ("'", '"') and not any(c in SPACE for c in value):
    return value
  escaped = value.replace("\\", "\\\\").replace('"', '\\"')
  return f'"{escaped}"'
