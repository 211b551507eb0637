# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Turns: configs in the order in which a search looks at them, begun ahead.

What a search proposes together is compiled together, in as many workers as
there are, and looked at one by one in the order proposed. So what is found does
not depend on the number of workers. Where a search ends a batch early, what was
not begun never is; at most one compile fewer than there are workers is wasted.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
import contextlib
import functools

from lagom_xla.compile import config as config_lib
from lagom_xla.compile import target as target_lib

InTurn = Callable[
  [Sequence[config_lib.XlaConfig]],
  Generator[config_lib.XlaConfig, None, None],
]


def one_by_one(
  configs: Sequence[config_lib.XlaConfig],
) -> Generator[config_lib.XlaConfig, None, None]:
  """The configs, with none of them begun ahead."""
  yield from configs


def ahead(target: target_lib.Target) -> InTurn:
  """Turns in which a target's workers have the next configs begun."""
  return functools.partial(_ahead, target)


def _ahead(
  target: target_lib.Target, configs: Sequence[config_lib.XlaConfig]
) -> Generator[config_lib.XlaConfig, None, None]:
  num_at_once = max(target.num_workers, 1)
  with contextlib.ExitStack() as begun:
    begun.enter_context(target.started(configs[: num_at_once - 1]))
    for position, config in enumerate(configs):
      last = position + num_at_once
      begun.enter_context(target.started(configs[last - 1 : last]))
      yield config
