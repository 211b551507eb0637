# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Output of `lagom-xla knobs`: the XLA knobs that a search tries."""

from __future__ import annotations

from collections.abc import Iterator
import dataclasses

from lagom_xla import validation
from lagom_xla.flags import debug_options
from lagom_xla.flags import notes
from lagom_xla.flags import syntax
from lagom_xla.report import layout
from lagom_xla.search.xla import knobs


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Option:
  """An option of XLA.

  Attributes:
    name: name of the option in the installed jaxlib.
    default: default in the installed jaxlib, as text; "unset" if XLA decides;
      null if jaxlib lacks the option.
  """

  name: str
  default: str | None


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class KnownKnob:
  """A knob of XLA.

  Attributes:
    name: name of the knob.
    does: its effect.
    tried: when a search tries it.
    hurts: when it costs time or memory.
    options: the options that its values set.
  """

  __pydantic_config__ = validation.STRICT

  name: str
  does: str
  tried: str
  hurts: str
  options: tuple[Option, ...]


# The output of `lagom-xla knobs --format=json`.
KnownKnobs = tuple[KnownKnob, ...]


def known() -> KnownKnobs:
  """Every knob, for the installed jaxlib."""
  return tuple(
    KnownKnob(
      name=name,
      does=knob.does,
      tried=knob.tried,
      hurts=knob.hurts,
      options=tuple(map(_option, knob.options)),
    )
    for name, knob in knobs.KNOBS.items()
  )


def _option(name: str) -> Option:
  known = debug_options.options()
  if name not in known:
    name = notes.RENAMES.get(name, name)
  default = syntax.spelled(known[name].default) if name in known else None
  return Option(name=name, default=default)


def lines(known: KnownKnobs) -> Iterator[str]:
  """Knobs as text."""
  for knob in known:
    yield knob.name
    tried, hurts = f"tried if {knob.tried}", f"downside: {knob.hurts}"
    for said in (knob.does, tried, hurts):
      yield from layout.wrapped(said, indent=2)
    for option in knob.options:
      default = option.default
      told = "not in this jaxlib"
      if option.name in notes.DECIDED:
        told = notes.DECIDED[option.name]
      elif default is not None:
        told = f"default {default or 'empty'}"
      yield from layout.wrapped(f"--{option.name} ({told})", indent=4)
