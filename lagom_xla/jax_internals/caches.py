# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Caches of JAX: whether they were cleared, and what stays the same."""

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
  """An object that is another one after each `jax.clear_caches`."""
  return object()


# Has JAX clear this cache with its own.
util.register_cache(_latest_clearing, "lagom_xla.latest_clearing")


class Clearings:
  """Those of JAX's caches by `jax.clear_caches`, from now on."""

  def __init__(self) -> None:
    self._latest = _latest_clearing()

  def has_come(self) -> bool:
    """Whether there was one since the last time that this was asked."""
    before, self._latest = self._latest, _latest_clearing()
    return before is not self._latest


def is_same_step(one: jax.stages.Lowered, other: jax.stages.Lowered) -> bool:
  """Whether jit lowered the same step twice, for the same signature.

  A JAX that keeps what it knows of a step elsewhere does not tell: False.
  """
  try:
    return _outside(one) == _outside(other) and _digest(one) == _digest(other)
  except (AttributeError, KeyError):
    return False


def _digest(lowered: jax.stages.Lowered) -> str:
  module: Any = lowered.compiler_ir("stablehlo")
  return lowerings.digest(module)


def _outside(lowered: jax.stages.Lowered) -> object:
  """What jit knows of a step beside its module."""
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
