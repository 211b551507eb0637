# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Memory kinds that JAX loses: of shardings over devices that are not here.

Compile-only devices cannot say which memories they have. So a sharding over
them that asks for pinned_host is made without it, and nothing says so.
"""

from __future__ import annotations

from collections.abc import Iterator
import contextlib
from typing import Any

import jax
from jax._src import named_sharding

_NamedSharding: Any = jax.sharding.NamedSharding
# Where programs find the class, and where its own methods do.
_PLACES = [
  place
  for place in (jax, jax.sharding, named_sharding)
  if hasattr(place, "NamedSharding")
]
# Programs keep the class that they imported, so what it notices is here.
_lost: set[str] = set()


class _Noticing(type):
  """All that JAX's class is asked for, by whoever has the other one."""

  def __call__(cls, *args: Any, **kwargs: Any) -> Any:
    made = _NamedSharding(*args, **kwargs)
    kind = kwargs.get("memory_kind", args[2] if len(args) > 2 else None)
    if made.memory_kind is None and kind not in (None, "device"):
      _lost.add(kind)
    return made

  def __getattr__(cls, name: str) -> Any:
    return getattr(_NamedSharding, name)

  def __instancecheck__(cls, instance: Any) -> bool:
    return isinstance(instance, _NamedSharding)

  def __subclasscheck__(cls, other: type) -> bool:
    return issubclass(other, _NamedSharding)


class _Stand(metaclass=_Noticing):
  """What has the name of JAX's class, and makes objects of JAX's."""


@contextlib.contextmanager
def noticed() -> Iterator[set[str]]:
  """Yields the kinds that are lost inside, as they are.

  JAX makes the objects in C++, where nobody can look on, so inside another
  class has the name of its own.
  """
  _lost.clear()
  for place in _PLACES:
    setattr(place, "NamedSharding", _Stand)  # noqa: B010
  try:
    yield _lost
  finally:
    for place in _PLACES:
      setattr(place, "NamedSharding", _NamedSharding)  # noqa: B010
