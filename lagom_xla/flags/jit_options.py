# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Checks that JAX and XLA accept the compiler_options of a step's `jax.jit`.

If they rejected one, a job would fail at its first call. Each option is tried
by itself, in a compile of an empty program.
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

# JAX's own options, and level O2 as JAX's versions spell it: by name, or as the
# number in xla.ExecutionOptions.EffortLevel.
_LEVELS = ("optimization_level", "memory_fitting_level")
_O2 = ("O2", 29)


def check(options: Mapping[Any, Any], place_of: Callable[[str], str]) -> None:
  """Checks that JAX and XLA accept the compiler_options of a step's jit.

  `place_of` returns the file and line in which the program has a word, or "".

  Raises:
    TargetError: they reject some; the message says what to write instead.
  """
  wrong = []
  for name, value in options.items():
    if refused := _refusal(name, value):
      place = place_of(str(name)) or "The program"
      wrong.append(
        f"{place} passes jax.jit compiler_options with {name!r}: {value!r}."
        f" {refused.rstrip('.')}. {_instead(str(name), value)}".rstrip()
      )
  if wrong:
    raise errors.TargetError("\n  ".join(wrong))


def _refusal(name: str, value: Any) -> str:
  """Why JAX or XLA rejects an option; "" if both accept it."""
  # Dump nothing, as the program is not the user's.
  options = {"xla_dump_hlo_module_re": "^$", name: value}
  with contextlib.ExitStack() as stack:
    stack.enter_context(caches.persistent_off())
    try:
      stack.enter_context(jax.default_device(jax.devices("cpu")[0]))
      jax.jit(lambda: 0).lower().compile(options)
    except (TypeError, ValueError) as error:
      what = errors.first_line(error)
      if isinstance(error, TypeError):  # From C++, with a list of all types.
        what = f"it does not accept a {type(value).__name__} here"
      return f"JAX {jax.__version__} rejects it: {what}"
    except RuntimeError as error:  # Also if JAX_PLATFORMS leaves out CPUs.
      what = errors.first_line(error).removeprefix("INVALID_ARGUMENT: ")
      if f"option {name}," in what or f"option: '{name}'" in what:
        return f"XLA rejects it: {what}"
  return ""


def _instead(name: str, value: Any) -> str:
  """A sentence that says what to write instead of a rejected option."""
  if name in _LEVELS:
    example = next((it for it in _O2 if not _refusal(name, it)), None)
    return f"For O2, for example, write {name!r}: {example!r}."
  translated = xla_options.translate(name, value)
  if isinstance(translated, str):
    is_known = debug_options.find(name) is not None
    return translated if is_known else xla_options.advice(name)
  new_name, new_value = translated
  return f"Write {new_name!r}: {new_value!r}."
