# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Names of the configs that a command compiles, in a few words each.

A config that differs from one with a name in a part or two is named by these.
"""

from __future__ import annotations

from collections.abc import Callable
import functools

from lagom_xla.compile import config as config_lib
from lagom_xla.compile import rewriting
from lagom_xla.compile import target as target_lib
from lagom_xla.compile import watching
from lagom_xla.costs import in_words
from lagom_xla.flags import environment
from lagom_xla.passes.schedule import orders as orders_lib
from lagom_xla.search.xla import arms as arms_lib

_PREFIX = "xla_gpu_"
_WITHOUT = "without "
# More are counted.
_MOST_PARTS = 2


class Names:
  """The configs that were named, to which others are compared."""

  def __init__(self):
    self._named: list[tuple[config_lib.XlaConfig, str]] = []
    self._others: list[tuple[config_lib.XlaConfig, str]] = []

  def add(self, config: config_lib.XlaConfig, name: str) -> None:
    """Names a config, and with it those that lack some of its parts."""
    self._named.append((config, name))

  def of(self, config: config_lib.XlaConfig) -> str:
    """A config's name, or how it differs from the most similar one so far."""
    known = [*self._named, *self._others]
    for other, name in known:
      if other == config:
        return name
    known = known or [(config_lib.DEFAULT, "")]
    differences, name = min(
      ((_differences(config, other), name) for other, name in known),
      key=lambda one: len(one[0]),
    )
    # Of many the last are those that a search has come to.
    words = ", ".join(differences[-_MOST_PARTS:])
    if len(differences) > _MOST_PARTS:
      words += f" and {len(differences) - _MOST_PARTS} more"
    lacks = all(part.startswith(_WITHOUT) for part in differences)
    if lacks and name in (named for _, named in self._named):
      words = f"{name} {words}"
    self._others.append((config, words))
    return words


def of_today(
  names: Names | None = None,
) -> Callable[[watching.Compile], str]:
  """Names compiles, with today's flags as what the others are compared with."""
  names = names or Names()
  names.add(config_lib.DEFAULT, environment.options_in_words())
  return lambda compile_: names.of(compile_.config)


def of_arms(
  target: target_lib.Target,
) -> Callable[[watching.Compile], str]:
  """The same of a search, which tries the arms of a target's cluster, too."""

  @functools.cache  # When the first is named, which then compiles already.
  def of_known() -> Callable[[watching.Compile], str]:
    names = Names()
    if not target.is_read_only:
      for arm in arms_lib.known(target.cluster).arms:
        names.add(arm.config, arm.name)
    return of_today(names)

  return lambda compile_: of_known()(compile_)


def _differences(
  config: config_lib.XlaConfig, other: config_lib.XlaConfig
) -> list[str]:
  """What a config has that another has not, and the other way around."""
  found = [
    f"{name.removeprefix(_PREFIX)}={_value(name, str(value))}"
    for name, value in config.options.items()
    if other.options.get(name) != value
  ]
  found += [
    f"{_WITHOUT}{name.removeprefix(_PREFIX)}"
    for name in other.options
    if name not in config.options
  ]
  if config.program != other.program:
    found.append(rewriting.in_words(config.program))
  if config.combine_groups != other.combine_groups:
    own = "our" if config.combine_groups is not None else "XLA's"
    found.append(f"{own} combine groups")
  if config.scheduler_profile != other.scheduler_profile:
    own = "our" if config.scheduler_profile is not None else "XLA's"
    found.append(f"{own} costs for the scheduler")
  if config.orders != other.orders:
    found.append(
      orders_lib.in_words(config.orders) if config.orders else "XLA's order"
    )
  return found


def _value(name: str, value: str) -> str:
  """A value, in MB alone where it is a number of bytes."""
  if name.endswith("_bytes") and value.isdecimal():
    return in_words.megabytes(int(value))
  return in_words.option(name, value)
