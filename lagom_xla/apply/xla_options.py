# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""XLA options: as compiler_options per compile, as XLA_FLAGS per process."""

from __future__ import annotations

from collections.abc import Mapping
import shlex


def xla_flags(options: Mapping[str, bool | int | str]) -> str:
  """Options in the syntax of the XLA_FLAGS environment variable."""
  return " ".join(
    f"--{name}={str(value).lower() if isinstance(value, bool) else value}"
    for name, value in sorted(options.items())
  )


def export_line(options: Mapping[str, bool | int | str]) -> str:
  """A shell line that adds the options to XLA_FLAGS.

  They come after what is there already, and XLA takes the last occurrence.
  """
  flags = xla_flags(options)
  if not flags:
    return "# XLA's default options are as good as any that were tried."
  return f'export XLA_FLAGS="${{XLA_FLAGS:-}} "{shlex.quote(flags)}'
