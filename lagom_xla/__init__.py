# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Tunes how the collectives of a JAX train step share its GPUs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
  from lagom_xla.decorator import tune as tune

__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
  """Imports `tune`, and JAX with it, when it is asked for."""
  if name == "tune":
    from lagom_xla import decorator

    return decorator.tune
  raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
