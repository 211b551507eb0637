# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Compiles that are watched: told to whoever shows what is going on.

    with watching.by(watch):
      target.schedule(config)  # Inside `watch(...)`.

Compiles that were begun ahead, in workers, are told of when they are waited
for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
import contextlib
import contextvars
import dataclasses
from typing import TYPE_CHECKING

if TYPE_CHECKING:
  from lagom_xla.compile import config as config_lib


@dataclasses.dataclass(frozen=True, kw_only=True)
class Compile:
  """A compile that goes on.

  Attributes:
    config: what XLA gets beside the program.
    cluster: the name of what it is compiled for.
    is_to_the_end: whether it goes on after the schedule.
  """

  config: config_lib.XlaConfig
  cluster: str
  is_to_the_end: bool = False


Watch = Callable[[Compile], contextlib.AbstractContextManager[None]]

_watch: contextvars.ContextVar[Watch | None]
_watch = contextvars.ContextVar("watch", default=None)


@contextlib.contextmanager
def by(watch: Watch) -> Iterator[None]:
  """Has `watch` entered around each compile of this thread inside."""
  token = _watch.set(watch)
  try:
    yield
  finally:
    _watch.reset(token)


def watched(
  config: config_lib.XlaConfig, cluster: str, *, is_to_the_end: bool = False
) -> contextlib.AbstractContextManager[None]:
  """What to be inside of while a compile goes on."""
  watch = _watch.get()
  if watch is None:
    return contextlib.nullcontext()
  return watch(
    Compile(config=config, cluster=cluster, is_to_the_end=is_to_the_end)
  )
