# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Shapes that pass for arrays, for steps that filter their arguments.

Equinox's `filter_jit` and Haliax's `named_jit` trace each `jax.Array` and keep
the rest constant. They hand the arrays to `jax.jit` in tuples of their own, so
JAX's names of them say nothing to users.
"""

from __future__ import annotations

from collections.abc import Iterator
import contextlib
from typing import Any

import jax
from jax._src import core

_asked: list[str] = []


class Shape(jax.ShapeDtypeStruct):
  """A named shape; `isinstance` takes it for a `jax.Array`."""

  name: str

  @property
  def __class__(self) -> type:
    return jax.Array


def named(name: str, leaf: Any) -> Any:
  """The leaf, if it is a `jax.ShapeDtypeStruct` as a `Shape` with a name."""
  if type(leaf) is not jax.ShapeDtypeStruct:
    return leaf
  shape = Shape(
    leaf.shape, leaf.dtype, sharding=leaf.format, weak_type=leaf.weak_type
  )
  object.__setattr__(shape, "name", name)
  return shape


@contextlib.contextmanager
def asked() -> Iterator[list[str]]:
  """Yields the names of the shapes that JAX reads in the block, in order.

  `jax.jit` reads its flat arguments in their order, the step's own last.
  """
  _asked.clear()
  yield _asked


def _read(shape: Shape) -> Any:
  _asked.append(shape.name)
  return core.pytype_aval_mappings[jax.ShapeDtypeStruct](shape)


core.pytype_aval_mappings[Shape] = _read
