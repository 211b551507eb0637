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
_WORD = re.compile(r"(-*)([-\w]*)", re.ASCII)


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
  at = _skip_space(text, 0)
  while at < len(text) and text[at] == "-":
    flag, at = _flag(text, at)
    flags.append(flag)
    at = _skip_space(text, at)
  return tuple(flags), text[at:].rstrip(_SPACE)


def _flag(text: str, at: int) -> tuple[Flag, int]:
  """The flag at a position, and where it ends."""
  match = _WORD.match(text, at)
  assert match is not None  # The pattern matches the empty string.
  dashes, name = match.groups()
  end = match.end()
  if text[end : end + 2] in ("='", '="'):
    value, after = _quoted(text, end + 2, text[end + 1])
    return Flag(name=name, value=value, dashes=dashes), after
  after = end
  while after < len(text) and text[after] not in _SPACE:
    after += 1
  more, equals, value = text[end:after].partition("=")
  return Flag(
    name=name + more, value=value if equals else None, dashes=dashes
  ), after


def _quoted(text: str, at: int, quote: str) -> tuple[str, int]:
  """A quoted value, and where it ends; the closing quote may be missing.

  Args:
    text: holds the value.
    at: just after the opening quote.
    quote: which of the two kinds it is.
  """
  value = []
  while at < len(text) and text[at] != quote:
    if quote == '"' and text[at] == "\\" and at + 1 < len(text):
      at += 1
    value.append(text[at])
    at += 1
  return "".join(value), at + 1


def _skip_space(text: str, at: int) -> int:
  while at < len(text) and text[at] in _SPACE:
    at += 1
  return at


def _quote(value: str) -> str:
  """A value, in quotes if it needs them."""
  if value[:1] not in ("'", '"') and not any(c in _SPACE for c in value):
    return value
  escaped = value.replace("\\", "\\\\").replace('"', '\\"')
  return f'"{escaped}"'
