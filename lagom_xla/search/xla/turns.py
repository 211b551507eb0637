# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Turns: configs in the order in which a search looks at them, begun ahead.

What a search proposes together is compiled together, in as many workers as
there are, and looked at one by one in the order proposed. So what is found does
not depend on the number of workers. Where a search ends a batch early, what was
not begun never is; at most as many compiles as there are workers are wasted.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
import contextlib
import dataclasses

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


@dataclasses.dataclass(frozen=True, kw_only=True)
class Turns:
  """Turns in which a target's workers have the next configs begun.

  Attributes:
    target: what is compiled.
    is_to_the_end: whether to begin compiles to the end, as steps short of
      memory are judged by; they show their schedules on the way.
  """

  target: target_lib.Target
  is_to_the_end: bool = False

  @property
  def num_workers(self) -> int:
    """Compiles that can go on at once beside this process; 0 for none."""
    return self.target.num_workers

  @property
  def of_arms(self) -> Turns:
    """Turns for what is kept as it is, if nothing gains more.

    Whatever is kept is compiled to the end, in most cases little further.
    """
    is_near = self.target.ends_before_code
    return dataclasses.replace(
      self, is_to_the_end=self.is_to_the_end or is_near
    )

  @contextlib.contextmanager
  def begun(self, configs: Iterable[config_lib.XlaConfig]) -> Iterator[None]:
    """Begins configs, in this order, and lets go of them at the end."""
    with contextlib.ExitStack() as stack:
      for config in configs:
        stack.enter_context(self._begun(config))
      yield

  def ahead(
    self, configs: Sequence[config_lib.XlaConfig]
  ) -> Generator[config_lib.XlaConfig, None, None]:
    """The configs, with as many begun after each as there are workers."""
    with contextlib.ExitStack() as stack:
      num_begun = 0
      for position, config in enumerate(configs):
        # One more waits for whoever is done first.
        until = position + 1 + self.num_workers
        for begun in configs[num_begun:until]:
          stack.enter_context(self._begun(begun))
        num_begun = max(num_begun, until)
        yield config

  def _begun(
    self, config: config_lib.XlaConfig
  ) -> contextlib.AbstractContextManager[None]:
    if self.is_to_the_end:
      return self.target.compiling(config)
    return self.target.started([config])
