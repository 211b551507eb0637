# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Values of knobs: what each sets, as the installed jaxlib has it.

A value is a few XLA options, and says as `changes` what it does to the
dependency graph, where that is known. Which options a jaxlib accepts, how it
spells them and what it does by itself differ from version to version.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
import dataclasses

from lagom_xla import errors
from lagom_xla.flags import debug_options
from lagom_xla.flags import options as xla_options
from lagom_xla.xla_schedule import reschedule

XlaOptions = Mapping[str, bool | int | str]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Value:
  """One value of a knob.

  Attributes:
    label: in a few words.
    options: what it sets, as the installed jaxlib spells it.
    changes: what it does to the dependency graph; None where that is not
      known without compiling.
    is_first: whether to compile it before all that is predicted.
    is_last: whether to compile it after all others.
  """

  label: str
  options: XlaOptions
  changes: reschedule.Changes | None = None
  is_first: bool = False
  is_last: bool = False


def offered(values: Iterable[Value]) -> tuple[Value, ...]:
  """Those that the installed jaxlib has and does not do by itself."""
  values = tuple(values)
  try:
    debug_options.options()
  except errors.OptionsError:
    return values  # XLA refuses what it lacks, and that is recorded.
  found = []
  for value in values:
    options = _as_installed(value.options)
    if options is not None and not _is_default(options):
      found.append(dataclasses.replace(value, options=options))
  return tuple(found)


def _as_installed(options: XlaOptions) -> XlaOptions | None:
  """Options as the installed jaxlib has them; None where it lacks one."""
  translated: dict[str, bool | int | str] = {}
  for name, value in options.items():
    match xla_options.translate(name, value):
      case str():
        return None
      case known, converted:
        assert not isinstance(converted, float)  # No knob and no plan has one.
        translated[known] = converted
  return translated


def _is_default(options: XlaOptions) -> bool:
  """Whether the installed jaxlib does all of this by itself."""
  found = {name: debug_options.find(name) for name in options}
  return all(
    o is not None and o.default == options[n] for n, o in found.items()
  )
