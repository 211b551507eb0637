# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Names of the Python functions in a call."""

from __future__ import annotations

from collections.abc import Callable
import sys
from typing import Any


def of(function: Callable[..., Any], *args: Any) -> list[str]:
  """The qualified names of the called Python functions, in order."""
  called: list[str] = []

  def profile(frame: Any, event: str, unused_arg: Any) -> None:
    if event == "call":
      called.append(frame.f_code.co_qualname)

  sys.setprofile(profile)
  try:
    function(*args)
  finally:
    sys.setprofile(None)
  return called
