# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Touch with the job's store: a call that fails is made again for a while.

A network does fail for a moment, and a process that is alone with that would
part from the others. Python acts on Ctrl-C between two calls, so none is long.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
import dataclasses
import time
from typing import TypeVar

from lagom_xla import errors
from lagom_xla.jax_internals import store as store_lib

# In seconds. JAX ends a process from which it has heard nothing for 100 s.
TOUCH_S = 120.0
# The longest call, in seconds.
_LOOK_S = 0.5
# Between two tries of a call: the first pause, and the longest, in seconds.
_PAUSES_S = (0.05, 1.0)
# How many calls it may take to read what is known to be set.
_NUM_LOOKS = 120

_Result = TypeVar("_Result")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Store:
  """A store of JAX that is asked again where it cannot be reached.

  Attributes:
    store: JAX's.
    touch_s: Seconds in which it is asked again.
  """

  store: store_lib.Store
  touch_s: float = TOUCH_S

  @property
  def process_id(self) -> int:
    """This process."""
    return self.store.process_id

  def put(self, key: str, value: bytes) -> bytes:
    """Sets a key that nobody has set; returns what stands.

    That is the value also where it came through and only the answer was lost.

    Raises:
      ProcessesError: The store cannot be reached, or does not show the key.
    """
    if self._reach(lambda: self.store.put(key, value)):
      return value
    for _ in range(_NUM_LOOKS):
      found = self._look(key, _LOOK_S)
      if found is not None:  # As is to be expected: it could not be set.
        return found
    raise errors.ProcessesError(
      f"JAX's distributed client has {key}, and did not show it within"
      f" {_NUM_LOOKS * _LOOK_S:g} s."
    )

  def get(self, key: str, *, timeout_s: float) -> bytes | None:
    """Waits for a key; None if it is not set within the time.

    Raises:
      ProcessesError: The store cannot be reached.
    """
    deadline = time.monotonic() + timeout_s
    while True:
      left_s = max(deadline - time.monotonic(), 0)
      found = self._look(key, min(left_s, _LOOK_S))
      if found is not None or left_s <= _LOOK_S:
        return found

  def in_folder(self, folder: str) -> Mapping[str, bytes]:
    """The keys that are set so far below `folder`/, without it, and values.

    Raises:
      ProcessesError: The store cannot be reached.
    """
    return self._reach(lambda: self.store.in_folder(folder))

  def _look(self, key: str, timeout_s: float) -> bytes | None:
    return self._reach(lambda: self.store.get(key, timeout_s=timeout_s))

  def _reach(self, call: Callable[[], _Result]) -> _Result:
    """What a call of the store comes to, made again while it fails."""
    deadline = time.monotonic() + self.touch_s
    pause_s, longest_s = _PAUSES_S
    while True:
      try:
        return call()
      except errors.ProcessesError:
        if time.monotonic() + pause_s > deadline:
          raise
      time.sleep(pause_s)
      pause_s = min(2 * pause_s, longest_s)
