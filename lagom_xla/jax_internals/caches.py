# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""JAX's caches: detects when they are cleared, and disables the one on disk."""

from __future__ import annotations

from collections.abc import Iterator
import contextlib
import functools
import logging
from typing import Any

import jax
from jax._src import util
from jax.experimental.compilation_cache import compilation_cache

from lagom_xla.jax_internals import lowerings


@functools.lru_cache(maxsize=1)
def _latest_clearing() -> object:
  """An object that `jax.clear_caches` replaces."""
  return object()


# Makes `jax.clear_caches` clear this cache, too.
util.register_cache(_latest_clearing, "lagom_xla.latest_clearing")


class Clearings:
  """Detects calls of `jax.clear_caches`."""

  def __init__(self) -> None:
    self._latest = _latest_clearing()

  def has_come(self) -> bool:
    """Whether there was a call since the last check."""
    before, self._latest = self._latest, _latest_clearing()
    return before is not self._latest


def is_same_step(one: jax.stages.Lowered, other: jax.stages.Lowered) -> bool:
  """Whether two lowerings are of the same step and signature.

  False if this JAX keeps a lowering's metadata elsewhere.
  """
  try:
    if _outside(one) != _outside(other):
      return False
    return lowerings.digest_of(one) == lowerings.digest_of(other)
  except (AttributeError, KeyError):
    return False


def _outside(lowered: jax.stages.Lowered) -> object:
  """The metadata of a lowered step in JAX, besides its module."""
  lowering: Any = lowered._lowering
  known = lowering.compile_args
  return (
    lowered.in_tree,
    lowered.out_tree,
    lowered.args_info,
    lowering._device_list,
    known["committed"],
    known["in_shardings"],
    known["out_shardings"],
    known["global_out_avals"],
  )


@contextlib.contextmanager
def persistent_off() -> Iterator[None]:
  """Disables JAX's persistent compilation cache inside the block.

  Worthwhile even without a cache folder: JAX would hash the whole program.
  """
  config: Any = jax.config
  was_enabled = config.jax_enable_compilation_cache
  jax.config.update("jax_enable_compilation_cache", False)
  # JAX decides only once whether to use the cache, unless it is reset.
  _reset()
  try:
    yield
  finally:
    jax.config.update("jax_enable_compilation_cache", was_enabled)
    _reset()


def _reset() -> None:
  """Resets the cache without the line that JAX would log for each compile."""
  reset = compilation_cache.reset_cache
  logger = logging.getLogger(reset.__module__)
  was_disabled, logger.disabled = logger.disabled, True
  try:
    reset()
  finally:
    logger.disabled = was_disabled
