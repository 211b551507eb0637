# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Reports compiles to code that shows progress.

    with watching.by(watch):
      target.schedule(config)  # Inside `watch(...)`.

Compiles that were started ahead, in workers, are reported when they are waited
for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
import contextlib
import contextvars
from typing import TYPE_CHECKING

if TYPE_CHECKING:
  from lagom_xla.compile import config as config_lib

# Entered while a config is compiled for a named cluster, to the end or to the
# schedule.
Watch = Callable[
  ["config_lib.XlaConfig", str, bool], contextlib.AbstractContextManager[None]
]

_watch: contextvars.ContextVar[Watch]
_watch = contextvars.ContextVar(
  "watch", default=lambda *_: contextlib.nullcontext()
)


@contextlib.contextmanager
def by(watch: Watch) -> Iterator[None]:
  """Enters `watch` around each compile of this thread inside."""
  token = _watch.set(watch)
  try:
    yield
  finally:
    _watch.reset(token)


def watched(
  config: config_lib.XlaConfig, cluster: str, *, is_to_the_end: bool = False
) -> contextlib.AbstractContextManager[None]:
  """The context to hold during a compile."""
  return _watch.get()(config, cluster, is_to_the_end)
