# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""The persistent compilation cache of JAX, switched off for a compile."""

from __future__ import annotations

from collections.abc import Iterator
import contextlib
import logging
from typing import Any

import jax
from jax.experimental.compilation_cache import compilation_cache


@contextlib.contextmanager
def off() -> Iterator[None]:
  """Switches JAX's persistent compilation cache off for a compile.

  Also where it has no folder: JAX hashes the whole program for it all the same.
  """
  config: Any = jax.config
  was_enabled = config.jax_enable_compilation_cache
  jax.config.update("jax_enable_compilation_cache", False)
  # JAX decides once whether it has a cache; this makes it decide anew.
  _reset()
  try:
    yield
  finally:
    jax.config.update("jax_enable_compilation_cache", was_enabled)
    _reset()


def _reset() -> None:
  """Resets the cache without the line that JAX logs of it, once a compile."""
  reset = compilation_cache.reset_cache
  logger = logging.getLogger(reset.__module__)
  was_disabled, logger.disabled = logger.disabled, True
  try:
    reset()
  finally:
    logger.disabled = was_disabled
