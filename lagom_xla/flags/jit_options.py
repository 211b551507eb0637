# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""The compiler_options of a step's `jax.jit`: whether JAX and XLA take them.

A job would end at its first call over one that they refuse. They are asked one
by one, with an empty program.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
import contextlib
from typing import Any

import jax

from lagom_xla import errors
from lagom_xla.flags import debug_options
from lagom_xla.flags import options as xla_options
from lagom_xla.jax_internals import caches

# JAX's own among them, and how its versions have a level there: by name, or as
# the number of xla.ExecutionOptions.EffortLevel.
_LEVELS = ("optimization_level", "memory_fitting_level")
_O2 = ("O2", 29)


def check(options: Mapping[Any, Any], place_of: Callable[[str], str]) -> None:
  """Checks that JAX and XLA take the compiler_options of a step's jit.

  `place_of` returns the line in which the program has a word, or "".

  Raises:
    TargetError: they do not take them; with what to write instead.
  """
  wrong = []
  for name, value in options.items():
    if refused := _refusal(name, value):
      place = place_of(str(name)) or "The program"
      wrong.append(
        f"{place} gives jax.jit compiler_options with {name!r}: {value!r}."
        f" {refused.rstrip('.')}. {_instead(str(name), value)}".rstrip()
      )
  if wrong:
    raise errors.TargetError("\n  ".join(wrong))


def _refusal(name: str, value: Any) -> str:
  """Why JAX or XLA does not take an option; "" where both do."""
  # Nothing is dumped of a program that is not the user's.
  options = {"xla_dump_hlo_module_re": "^$", name: value}
  with contextlib.ExitStack() as stack:
    stack.enter_context(caches.persistent_off())
    try:
      stack.enter_context(jax.default_device(jax.devices("cpu")[0]))
      jax.jit(lambda: 0).lower().compile(options)
    except (TypeError, ValueError) as error:
      what = errors.first_line(error)
      if isinstance(error, TypeError):  # Of C++, with a list of all types.
        what = f"it takes no {type(value).__name__} there"
      return f"JAX {jax.__version__} refuses that: {what}"
    except RuntimeError as error:  # Also where JAX_PLATFORMS leaves out CPUs.
      what = errors.first_line(error).removeprefix("INVALID_ARGUMENT: ")
      if f"option {name}," in what or f"option: '{name}'" in what:
        return f"XLA refuses that: {what}"
  return ""


def _instead(name: str, value: Any) -> str:
  """What to write in place of an option that is refused, in a sentence."""
  if name in _LEVELS:
    example = next((it for it in _O2 if not _refusal(name, it)), None)
    return f"For O2, for example, write {name!r}: {example!r}."
  translated = xla_options.translate(name, value)
  if isinstance(translated, str):
    is_known = debug_options.find(name) is not None
    return translated if is_known else xla_options.advice(name)
  new_name, new_value = translated
  return f"Write {new_name!r}: {new_value!r}."
