# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Values of XLA options: from what users write to what compiler_options takes.

compiler_options is strict: it takes True but not "true", names of enums in full
but not in lower case, text but no list. XLA_FLAGS is strict in other ways. Here
any unambiguous spelling becomes the one that compiler_options takes.
"""

from __future__ import annotations

from collections.abc import Sequence
import itertools
import math

from lagom_xla.flags import debug_options

_BOOLS = {
  **dict.fromkeys(("true", "on", "yes", "1"), True),
  **dict.fromkeys(("false", "off", "no", "0"), False),
}


class ValueRuleError(ValueError):
  """An option does not take a value; the message says what it takes."""


def convert(option: debug_options.Option, value: object) -> debug_options.Value:
  """A value of an option, as compiler_options takes it.

  Args:
    option: the option.
    value: bool, number or text; of a repeated option also a sequence. Enums by
      number, or by name with or without the prefix that all names share, in any
      case: WHILE_LOOP_UNROLLING_FULL_UNROLL is "full_unroll". A list of enums
      may add to and remove from the default: "+COLLECTIVES,-CUBLAS".

  Returns:
    The value: a bool, a number, or text; of a repeated option "A,B".

  Raises:
    ValueRuleError: the option does not take it.
  """
  if option.is_repeated:
    return _repeated(option, value)
  try:
    return _convert(option, value)
  except (ValueError, KeyError, TypeError, OverflowError):
    raise ValueRuleError(
      f"{option.name} cannot be {_show(value)}: it is {rule(option)}"
    ) from None


def rule(option: debug_options.Option) -> str:
  """What values an option takes, in words."""
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
  """Shorter spellings of an enum's value, in lower case, the longest first.

  COLLECTIVES_PEER_MEMORY of an option whose values all start with COLLECTIVES
  is peer_memory, and peer: XLA's parsers of flags take one or the other.
  """
  columns = zip(*(v.split("_") for v in option.enum_values), strict=False)
  shared = list(
    itertools.takewhile(lambda words: len(set(words)) == 1, columns)
  )
  short = "_".join(name.split("_")[len(shared) :]).lower()
  return tuple(dict.fromkeys((short, short.partition("_")[0])))


def _convert(
  option: debug_options.Option, value: object
) -> debug_options.Value:
  """One value; raises whatever Python's conversions raise."""
  match option.type:
    case "bool":
      return _BOOLS[str(value).lower()]
    case "int":
      return _int(option, value)
    case "float" if isinstance(value, int | float | str):
      number = float(value)
      if math.isnan(number) or isinstance(value, bool):
        raise ValueError
      return number
    case "enum":
      return _enum(option, value)
    case "string" | "message" if isinstance(value, str):
      return value
  raise TypeError


def _int(option: debug_options.Option, value: object) -> int:
  if isinstance(value, float) and value.is_integer():
    value = int(value)
  if isinstance(value, bool) or not isinstance(value, int | str):
    raise TypeError
  number = int(value)
  assert option.int_range is not None
  least, greatest = option.int_range
  if not least <= number <= greatest:
    raise ValueError
  return number


def _enum(option: debug_options.Option, value: object) -> str:
  """The full name of an enum's value; True and False are its ON and OFF."""
  if isinstance(value, bool):
    value = "on" if value else "off"
  text = str(value).strip()
  if text.isdecimal():
    text = option.enum_values[option.enum_numbers.index(int(text))]
  for name in option.enum_values:
    if text.lower() in (name.lower(), short_names(option, name)[0]):
      return name
  raise KeyError


def _repeated(option: debug_options.Option, value: object) -> str:
  """Several values, as "A,B"."""
  if isinstance(value, str):
    items: Sequence[object] = [i for i in value.split(",") if i.strip()]
  elif isinstance(value, list | tuple):
    items = value
  else:
    items = [value]
  try:
    if option.type == "enum" and any(str(i)[:1] in ("+", "-") for i in items):
      return _changed_default(option, list(map(str, items)))
    return ",".join(str(_convert(option, item)) for item in items)
  except (ValueError, KeyError, TypeError):
    raise ValueRuleError(
      f"{option.name} cannot be {_show(value)}: it is {rule(option)}"
    ) from None


def _changed_default(option: debug_options.Option, items: list[str]) -> str:
  """A list's default after the changes that "+A,-B" asks for."""
  chosen = [name for name in str(option.default).split(",") if name]
  for item in items:
    sign, name = item.strip()[:1], _enum(option, item.strip()[1:])
    if sign == "+" and name not in chosen:
      chosen.append(name)
    elif sign == "-" and name in chosen:
      chosen.remove(name)
    elif sign not in ("+", "-"):
      raise ValueError
  return ",".join(chosen)


def _show(value: object) -> str:
  return f'"{value}"' if isinstance(value, str) else str(value)
