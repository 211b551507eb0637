# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""XLA options: as compiler_options per compile, as XLA_FLAGS per process.

Options may come from another version of JAX. Before use they are fitted to the
installed jaxlib: renamed if it has another name for one, and left out, with a
message, if it has none. XLA_FLAGS gets only flags that jaxlib was seen to
accept, as XLA ends the process over any other.

compiler_options is strict: it accepts True but not "true", full enum names but
not in lower case, text but no list. Here any unambiguous spelling is converted.
"""

from __future__ import annotations

from collections.abc import Mapping
import difflib
import itertools
import math
from typing import NamedTuple

from lagom_xla import errors
from lagom_xla.flags import debug_options
from lagom_xla.flags import notes
from lagom_xla.flags import probe
from lagom_xla.flags import syntax

_BOOLS = {
  **dict.fromkeys(("true", "on", "yes", "1"), True),
  **dict.fromkeys(("false", "off", "no", "0"), False),
}


class ValueRuleError(ValueError):
  """An option does not accept a value; the message says what it accepts."""


def convert(option: debug_options.Option, value: object) -> debug_options.Value:
  """A value of an option as compiler_options accepts it; "A,B" for a list.

  It may be a bool, a number or text. Enum values may lack their common prefix,
  in any case: WHILE_LOOP_UNROLLING_FULL_UNROLL is "full_unroll".

  Raises:
    ValueRuleError: the option does not accept it.
  """
  try:
    if not option.is_repeated:
      return _convert(option, value)
    items = [item for item in str(value).split(",") if item.strip()]
    return ",".join(str(_convert(option, item)) for item in items)
  except (ValueError, KeyError, TypeError, OverflowError):
    shown = f'"{value}"' if isinstance(value, str) else value
    raise ValueRuleError(
      f"{option.name} cannot be {shown}: it must be {value_rule(option)}"
    ) from None


def value_rule(option: debug_options.Option) -> str:
  """The values that an option accepts, in words."""
  match option.type:
    case "bool":
      words = "true or false"
    case "enum":
      words = "one of " + ", ".join(option.enum_values)
    case "int":
      assert option.int_range is not None
      words = "a whole number from {} to {}".format(*option.int_range)
    case "float":
      words = "a number"
    case "message":
      words = "a list such as NAME=VALUE,NAME=VALUE"
    case _:
      words = "text"
  return f"a list, A,B, of: {words}" if option.is_repeated else words


def short_names(option: debug_options.Option, name: str) -> tuple[str, ...]:
  """Shorter spellings of an enum's value, in lower case, longest first.

  If all values start with COLLECTIVES, COLLECTIVES_PEER_MEMORY is peer_memory
  and peer: XLA's flag parsers accept one or the other.
  """
  columns = zip(*(v.split("_") for v in option.enum_values), strict=False)
  shared = itertools.takewhile(lambda words: len(set(words)) == 1, columns)
  short = "_".join(name.split("_")[len(list(shared)) :]).lower()
  return tuple(dict.fromkeys((short, short.partition("_")[0])))


def _convert(
  option: debug_options.Option, value: object
) -> debug_options.Value:
  """One value; raises whatever Python's conversions raise."""
  match option.type:
    case "bool":
      return _BOOLS[str(value).lower()]
    case "enum":
      if isinstance(value, bool):
        value = "on" if value else "off"
      text = str(value).strip().lower()
      for name in option.enum_values:
        if text in (name.lower(), short_names(option, name)[0]):
          return name
    case "string" | "message" if isinstance(value, str):
      return value
    case "int" | "float" if isinstance(value, bool):
      pass
    case "float" if isinstance(value, int | float | str):
      if not math.isnan(number := float(value)):
        return number
    case "int" if isinstance(value, int | float | str):
      if isinstance(value, str):  # "1e9", too, but nothing beyond 53 bits.
        value = float(value) if "e" in value.lower() else int(value)
      whole = int(value)
      assert option.int_range is not None
      least, greatest = option.int_range
      if whole == value and least <= whole <= greatest:
        return whole
  raise ValueError


class Fitted(NamedTuple):
  """Options for the installed jaxlib, and a sentence on each change."""

  options: dict[str, debug_options.Value]
  messages: tuple[str, ...]


class Flags(NamedTuple):
  """Flags in the order of option names, with messages as in `Fitted`."""

  flags: tuple[syntax.Flag, ...]
  messages: tuple[str, ...]


def translate(
  name: str, value: object
) -> tuple[str, debug_options.Value] | str:
  """Translates an option of any version to the installed jaxlib's.

  Returns its name and value, or a sentence that says why it has none. The value
  may have any spelling that `convert` accepts.

  Raises:
    OptionsError: the options of jaxlib cannot be read.
  """
  try:
    option = debug_options.find(name)
    if option is not None:
      return name, convert(option, value)
    for names in notes.RENAMES.items():
      if name in names:
        return _renamed(name, value, *(set(names) - {name}))
  except ValueRuleError as error:
    return f"{error}."
  return f"{name} is not an option of {_jaxlib()}. {advice(name)}".rstrip()


def advice(name: str) -> str:
  """Advice on an option that the installed jaxlib lacks, or ""."""
  if note := {**notes.REMOVED, **notes.REMOVED_SINCE}.get(name):
    return note.text
  if added := notes.ADDED.get(name):
    return f"jaxlib {added} has it."
  if name.startswith("xla_tpu_"):
    return "It is a TPU flag: put it into LIBTPU_INIT_ARGS."
  if name.startswith("tf_"):
    return "It is a TensorFlow flag: put it into TF_XLA_FLAGS."
  near = difflib.get_close_matches(name, debug_options.options(), 1, 0.85)
  return f"Did you mean {near[0]}?" if near else ""


def fit(options: Mapping[str, object]) -> Fitted:
  """Options as the installed jaxlib accepts them per compile.

  Raises:
    OptionsError: the options of jaxlib cannot be read.
  """
  fitted: dict[str, debug_options.Value] = {}
  messages = []
  for name, value in options.items():
    if name in notes.DEAD:
      messages.append(f"{name} was left out. {notes.DEAD[name]}")
    elif isinstance(translated := translate(name, value), str):
      messages.append(f"{translated} It was left out.")
    else:
      new_name, new_value = translated
      fitted[new_name] = new_value
      if new_name != name:
        messages.append(
          f"{name}={value} is now {new_name}={new_value}, its name in"
          f" {_jaxlib()}."
        )
  return Fitted(options=fitted, messages=tuple(messages))


def flags(options: Mapping[str, object]) -> Flags:
  """Options as flags, each seen to be accepted by the installed jaxlib.

  If its options cannot be read they are spelled as given, with a message.
  """
  try:
    fitted = fit(options)
    spelled = {n: _spell(n, v) for n, v in sorted(fitted.options.items())}
  except (errors.OptionsError, errors.ProbeError) as error:
    return Flags(
      flags=tuple(_plain(n, v) for n, v in sorted(options.items())),
      messages=(f"These flags were not checked. {error}",),
    )
  missing = [
    f"{name} was left out: no flag of {_jaxlib()} sets this value."
    for name, flag in spelled.items()
    if flag is None
  ]
  return Flags(
    flags=tuple(flag for flag in spelled.values() if flag is not None),
    messages=(*fitted.messages, *missing),
  )


def xla_flags(options: Mapping[str, object]) -> str:
  """Options in the syntax of the XLA_FLAGS environment variable."""
  return " ".join(map(str, flags(options).flags))


def _jaxlib() -> str:
  return f"jaxlib {debug_options.jaxlib_version()}"


def _renamed(
  name: str, value: object, other: str
) -> tuple[str, debug_options.Value] | str:
  """An option under its other name, if the installed jaxlib has that."""
  option = debug_options.find(other)
  if option is None:
    return f"{name} is not an option of {_jaxlib()}."
  word = str(value).lower().rpartition("_")[2]  # It may be an enum value.
  if word not in _BOOLS:
    return f"{_jaxlib()} calls {name} {other}, which cannot be {value}."
  return other, convert(option, _BOOLS[word])


def _plain(name: str, value: object) -> syntax.Flag:
  return syntax.Flag(name=name, value=syntax.spelled(value))


def _spell(name: str, value: debug_options.Value) -> syntax.Flag | None:
  """The flag that sets an option to a value, if there is one."""
  option = debug_options.find(name)
  assert option is not None  # It was fitted.
  ways = [_plain(name, value)]
  if option.type == "enum" and not option.is_repeated:
    ways += [_plain(name, way) for way in short_names(option, str(value))]
  answers = probe.ask(list(map(str, ways)))
  for way, answer in zip(ways, answers, strict=True):
    if answer.is_fatal:
      continue
    if not option.is_scalar:
      return way  # XLA expands lists and completes maps.
    found = debug_options.under(str(way))[name]
    if isinstance(found, float) and isinstance(value, float):
      is_set = math.isclose(found, value, rel_tol=1e-6)  # XLA keeps 32 bits.
    else:
      is_set = found == value
    if is_set:
      return way
  return None
