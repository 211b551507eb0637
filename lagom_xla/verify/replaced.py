# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""What an XLA option replaces: its value as XLA runs today, XLA_FLAGS included.

The installed jaxlib tells.
"""

from __future__ import annotations

from collections.abc import Mapping
import functools
import os

from lagom_xla import errors
from lagom_xla.flags import debug_options
from lagom_xla.flags import probe


def of_option(name: str) -> str:
  """The value without a plan; "" for none, or why it is not known."""
  try:
    value = _options(os.environ.get("XLA_FLAGS", "")).get(name)
  except (errors.OptionsError, errors.ProbeError) as error:
    return f"what is not known, as {error}"
  return "" if value is None else str(value)


@functools.cache
def _options(xla_flags: str) -> Mapping[str, object]:
  """All options of the installed jaxlib that have a value, under XLA_FLAGS."""
  (answer,) = probe.ask([xla_flags])
  return debug_options.values(answer.compile_options)
