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
from typing import TYPE_CHECKING

if TYPE_CHECKING:
  from lagom_xla.compile import config as config_lib

# Entered while a config is compiled for the cluster of a name, to the end or up
# to the schedule.
Watch = Callable[
  ["config_lib.XlaConfig", str, bool], contextlib.AbstractContextManager[None]
]

_watch: contextvars.ContextVar[Watch]
_watch = contextvars.ContextVar(
  "watch", default=lambda *_: contextlib.nullcontext()
)


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
  return _watch.get()(config, cluster, is_to_the_end)
