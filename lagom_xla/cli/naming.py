# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Short names of the configs that a command compiles.

A config without a name gets its differences from the most similar earlier
config, because a search changes one thing at a time.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
import functools

from lagom_xla.compile import config as config_lib
from lagom_xla.compile import rewriting
from lagom_xla.compile import target as target_lib
from lagom_xla.costs import in_words
from lagom_xla.flags import environment
from lagom_xla.passes.schedule import orders as orders_lib
from lagom_xla.search.xla import arms as arms_lib

_PREFIX = "xla_gpu_"
# Most differences in a name; the others are counted.
_MOST_PARTS = 2


class Names:
  """Names of configs: the given ones, today's, and all that were looked up."""

  def __init__(self, named: Iterable[tuple[config_lib.XlaConfig, str]] = ()):
    self._named = named

  @functools.cached_property
  def _known(self) -> list[tuple[config_lib.XlaConfig, str]]:
    today = (config_lib.DEFAULT, environment.options_in_words())
    return [*self._named, today]

  def __call__(self, config: config_lib.XlaConfig) -> str:
    """A config's name, or its differences from the most similar one so far."""
    for other, name in self._known:
      if other == config:
        return name
    differences = min(
      (_differences(config, other) for other, _ in self._known), key=len
    )
    # A search changed the last options most recently.
    words = ", ".join(differences[-_MOST_PARTS:])
    if len(differences) > _MOST_PARTS:
      words += f" and {len(differences) - _MOST_PARTS} more"
    self._known.append((config, words))
    return words


def of_arms(
  target: target_lib.Target,
) -> Iterator[tuple[config_lib.XlaConfig, str]]:
  """The configs that a search tries first.

  Looked up while the first one compiles.
  """
  if not target.is_read_only:
    for arm in arms_lib.known(target.cluster).arms:
      yield arm.config, arm.title


def _differences(
  config: config_lib.XlaConfig, other: config_lib.XlaConfig
) -> list[str]:
  """The differences between two configs."""
  differences = [
    f"{name.removeprefix(_PREFIX)}={_value(name, str(value))}"
    for name, value in config.options.items()
    if other.options.get(name) != value
  ]
  differences += [
    f"without {name.removeprefix(_PREFIX)}"
    for name in other.options
    if name not in config.options
  ]
  if config.program != other.program:
    differences.append(rewriting.in_words(config.program))
  for title, part, before in (
    ("combine groups", config.combine_groups, other.combine_groups),
    (
      "costs for the scheduler",
      config.scheduler_profile,
      other.scheduler_profile,
    ),
  ):
    if part != before:
      differences.append(f"XLA's {title}" if part is None else f"our {title}")
  if config.orders != other.orders:
    differences.append(
      orders_lib.in_words(config.orders) if config.orders else "XLA's order"
    )
  return differences


def _value(name: str, value: str) -> str:
  """A value in words; numbers of bytes are in MB."""
  if name.endswith("_bytes") and value.isdecimal():
    return in_words.megabytes(int(value))
  return in_words.option(name, value)
