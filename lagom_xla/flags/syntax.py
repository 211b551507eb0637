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

_SPACE = " \t\r\n"
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
  if not text.strip() or text.lstrip(_SPACE).startswith("-"):
    return text
  path = pathlib.Path(text)
  if not path.is_file():  # A FIFO may never end.
    raise FileNotFoundError(errno.ENOENT, "there is no such file", text)
  return path.read_text(encoding="utf-8")


def parse(text: str) -> tuple[tuple[Flag, ...], str]:
  """The flags in a text, and its remainder, which XLA does not read."""
  flags = []
  rest = text.lstrip(_SPACE)
  while rest.startswith("-"):
    match = _FLAG.match(rest)
    assert match is not None  # The pattern matches the empty string.
    dashes, name, single, double, word = match.groups()
    if word is None:
      value = single if double is None else re.sub(r"(?s)\\(.)", r"\1", double)
    else:
      name, equals, value = word.partition("=")
      value = value if equals else None
    flags.append(Flag(name=name, value=value, dashes=dashes))
    rest = rest[match.end() :].lstrip(_SPACE)
  return tuple(flags), rest.rstrip(_SPACE)


def _quote(value: str) -> str:
  """A value, in quotes if it needs them."""
  if value[:1] not in ("'", '"') and not any(c in _SPACE for c in value):
    return value
  escaped = value.replace("\\", "\\\\").replace('"', '\\"')
  return f'"{escaped}"'
