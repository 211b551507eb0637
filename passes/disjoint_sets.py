# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Disjoint sets: what was joined, directly or by way of others, is one set."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Generic, TypeVar

_T = TypeVar("_T", bound=Hashable)


class DisjointSets(Generic[_T]):
  """Sets of items; one that was never joined is a set of its own."""

  def __init__(self) -> None:
    self._parent: dict[_T, _T] = {}

  def find(self, item: _T) -> _T:
    """The item that stands for all in the set of this one."""
    parents = self._parent
    while (parent := parents.get(item, item)) != item:
      parents[item] = item = parents.get(parent, parent)
    return item

  def join(self, item: _T, other: _T) -> None:
    """Adds the set of an item to that of another, whose item stands for all."""
    self._parent[self.find(item)] = self.find(other)
