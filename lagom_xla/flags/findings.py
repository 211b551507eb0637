# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Findings about one flag of an XLA_FLAGS, and what to write instead."""

from __future__ import annotations

import dataclasses
from typing import Literal

from lagom_xla.flags import debug_options
from lagom_xla.flags import notes
from lagom_xla.flags import options as xla_options
from lagom_xla.flags import reading as reading_lib
from lagom_xla.flags import syntax
from lagom_xla.flags import values

Kind = Literal[
  "unknown",
  "invalid",
  "crash",
  "not read",
  "renamed",
  "dead",
  "duplicate",
  "contradiction",
  "default",
]
# Kinds that end the process, or may end it.
_FATAL: frozenset[Kind] = frozenset(["unknown", "invalid", "crash"])


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Finding:
  """One thing to know about a flag.

  Attributes:
    flag: as it was written.
    kind: what is wrong with it.
    text: why, in sentences.
    instead: the flag to write in its place; "" for none.
  """

  flag: str
  kind: Kind
  text: str
  instead: str = ""

  @property
  def is_fatal(self) -> bool:
    """Whether it ends the process."""
    return self.kind in _FATAL


def explain(reading: reading_lib.Reading) -> Finding | None:
  """The finding about a flag by itself, without the others; None for none."""
  flag, name = reading.flag, reading.flag.name
  if reading.unknown:
    return _unknown(flag)
  option = debug_options.find(name)
  if reading.invalid:
    instead = _valid(flag)
    # compiler_options may spell it otherwise than XLA_FLAGS: not as the rule.
    text = "XLA_FLAGS takes this value in another spelling."
    if not instead:
      rule = f" It is {values.rule(option)}." if option else ""
      text = f"XLA does not take this value.{rule}"
    return Finding(flag=str(flag), kind="invalid", text=text, instead=instead)
  if name in notes.DEAD:
    return Finding(flag=str(flag), kind="dead", text=notes.DEAD[name].text)
  if name in reading.sets and name in notes.CRASHES:
    return Finding(flag=str(flag), kind="crash", text=notes.CRASHES[name].text)
  if reading.sets:
    return _renamed(reading) if option is None else None
  if not _is_default(flag):
    text = "XLA accepts it and sets nothing."
    return Finding(flag=str(flag), kind="dead", text=text)
  text = f"It is the default of jaxlib {debug_options.jaxlib_version()}."
  return Finding(flag=str(flag), kind="default", text=text)


def _unknown(flag: syntax.Flag) -> Finding:
  """The finding about a flag that XLA does not know."""
  text, instead = _reason(flag)
  if instead and reading_lib.read(syntax.parse(instead)[0])[0].is_fatal:
    instead = ""
  return Finding(flag=str(flag), kind="unknown", text=text, instead=instead)


def _reason(flag: syntax.Flag) -> tuple[str, str]:
  """Why XLA does not know a flag, and the flag that was meant; "" for none."""
  name, value = flag.name, flag.value
  option = debug_options.find(name)
  note = notes.REMOVED.get(name)
  if flag.dashes != "--":
    return "XLA's flags start with two dashes.", str(
      dataclasses.replace(flag, dashes="--")
    )
  if name == "flagfile":
    return (
      "XLA has no --flagfile: it reads a file where XLA_FLAGS is its path,"
      " without a dash and with nothing else.",
      "",
    )
  if note is not None:
    instead = note.instead.get((value or "").lower(), note.instead.get("", ""))
    return f"XLA no longer has it. {note.text}", instead
  if option is not None and value is None and option.type != "bool":
    return f"It needs a value: {values.rule(option)}.", ""
  if option is not None:
    return (
      "It is an option of compiler_options, with no flag.",
      "",
    )
  return _guess(flag)


def _guess(flag: syntax.Flag) -> tuple[str, str]:
  """What an unknown flag may have meant: as `_reason`."""
  name, value = flag.name, flag.value
  plain = name.removeprefix("no").replace("-", "_")
  if plain != name and debug_options.find(plain) is not None:
    if name.startswith("no"):
      return "XLA's flags have no such form.", f"--{plain}=false"
    return "XLA's flags have underscores.", str(
      syntax.Flag(name=plain, value=value)
    )
  translated = xla_options.translate(name, "true" if value is None else value)
  if isinstance(translated, str):
    return f"XLA has no such flag. {xla_options.advice(name)}".rstrip(), ""
  version = debug_options.jaxlib_version()
  return (
    f"jaxlib {version} has {translated[0]} instead.",
    xla_options.xla_flags({translated[0]: translated[1]}),
  )


def _valid(flag: syntax.Flag) -> str:
  """The flag in a spelling that XLA takes, or "" if its value has none."""
  return xla_options.xla_flags({flag.name: flag.value})


def _renamed(reading: reading_lib.Reading) -> Finding:
  """A flag that sets options of other names."""
  return Finding(
    flag=str(reading.flag),
    kind="renamed",
    text=(
      f"In jaxlib {debug_options.jaxlib_version()} it is"
      f" {' and '.join(reading.sets)}; the old name may be removed later."
    ),
    instead=xla_options.xla_flags(reading.sets),
  )


def _is_default(flag: syntax.Flag) -> bool:
  """Whether a flag that changes nothing sets an option to its default."""
  value = "true" if flag.value is None else flag.value
  translated = xla_options.translate(flag.name, value)
  if isinstance(translated, str):
    # XLA took the value, in a spelling that only its flags have.
    return debug_options.find(flag.name) is not None
  option = debug_options.find(translated[0])
  return option is not None and option.default == translated[1]
