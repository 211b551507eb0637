# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""The XLA_FLAGS of this process, which is what runs today where it is set."""

from __future__ import annotations

import os

from lagom_xla import errors
from lagom_xla.flags import probe
from lagom_xla.flags import syntax

# Options that say nothing of how a step is compiled for GPUs.
NOT_OF_THE_STEP = ("xla_cpu_", "xla_dump_", "xla_force_host_", "xla_tpu_")

_ADVICE = (
  '`lagom-xla flags --check "$XLA_FLAGS"` says which flags, and what to write'
  " instead."
)


def xla_flags() -> str:
  """The flags that XLA is going to read, in one line; "" for none.

  Raises:
    FlagsError: the variable names a file that is not there. So do `value` and
      `is_set`.
  """
  text = os.environ.get("XLA_FLAGS", "")
  try:
    return " ".join(syntax.follow(text).split())
  except (OSError, ValueError) as error:
    raise errors.FlagsError(
      f"XLA_FLAGS is {text.strip()!r}, which is neither a flag nor a file with"
      f" flags. {_ADVICE}"
    ) from error


def value(name: str) -> str | None:
  """What the flags set an option to; None for nothing."""
  flags, _ = syntax.parse(xla_flags())
  # Of a plain value's the last one wins.
  return {flag.name: flag.value for flag in flags}.get(name)


def is_set() -> bool:
  """Whether a flag says how steps are compiled for GPUs."""
  flags, _ = syntax.parse(xla_flags())
  return any(not flag.name.startswith(NOT_OF_THE_STEP) for flag in flags)


def options_in_words() -> str:
  """What to call the options with which XLA starts in this process."""
  return "today's XLA_FLAGS" if is_set() else "XLA's defaults"


def check() -> None:
  """Checks that XLA would start, before it ends this process.

  Raises:
    FlagsError: it would not.
    ProbeError: the installed jaxlib could not be asked.
  """
  if not xla_flags():
    return
  (answer,) = probe.ask([os.environ["XLA_FLAGS"]])
  if answer.unknown:
    raise errors.FlagsError(f"{answer.error}. {_ADVICE}")
  if answer.is_fatal:
    raise errors.FlagsError(
      f"XLA_FLAGS has a value that XLA does not take. {_ADVICE}"
    )
