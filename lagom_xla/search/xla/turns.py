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

_Begin = Callable[
  [config_lib.XlaConfig], contextlib.AbstractContextManager[None]
]


def one_by_one(
  configs: Sequence[config_lib.XlaConfig],
) -> Generator[config_lib.XlaConfig, None, None]:
  """The configs, with none of them begun ahead."""
  yield from configs


def ahead(target: target_lib.Target, *, is_to_the_end: bool = False) -> InTurn:
  """Turns in which a target's workers have the next configs begun.

  Args:
    target: what is compiled.
    is_to_the_end: whether to begin compiles to the end, as steps short of
      memory are judged by; they show their schedules on the way.
  """
  begin = target.compiling if is_to_the_end else _scheduling(target)
  return functools.partial(_ahead, max(target.num_workers, 1), begin)


def _scheduling(target: target_lib.Target) -> _Begin:
  return lambda config: target.started([config])


def _ahead(
  num_at_once: int, begin: _Begin, configs: Sequence[config_lib.XlaConfig]
) -> Generator[config_lib.XlaConfig, None, None]:
  with contextlib.ExitStack() as begun:
    for config in configs[: num_at_once - 1]:
      begun.enter_context(begin(config))
    for position, config in enumerate(configs):
      for following in configs[position + num_at_once - 1 :][:1]:
        begun.enter_context(begin(following))
      yield config
