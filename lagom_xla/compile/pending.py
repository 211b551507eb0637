# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Pending compiles: begun, where there are workers, and waited for later."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
import contextlib
import dataclasses
from typing import Any, Generic, TypeVar

_T = TypeVar("_T")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Pending(Generic[_T]):
  """A compile that was begun, where there are workers.

  Attributes:
    result: waits for it; without workers, compiles only now.
    drop: lets go of it, and keeps it from being begun if it is not yet.
  """

  result: Callable[[], _T]
  drop: Callable[[], None] = lambda: None


@contextlib.contextmanager
def dropped_at_the_end(pending: Iterable[Pending[Any]]) -> Iterator[None]:
  """Drops compiles at the end of a block."""
  try:
    yield
  finally:
    for one in pending:
      one.drop()
