# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Likeness of a tuned step to the jitted one: all but what a call does."""

from __future__ import annotations

import abc
from collections.abc import Callable
import functools
import types
from typing import Any

from lagom_xla import dispatch


class Likeness(abc.ABC):
  """Has the attributes of a jitted step, binds as a method and pickles.

  Args:
    jitted: The step.
    report: Tells what tuning came to, which is how it is shown.
    remake: Makes the same step in the process that unpickles it.
  """

  def __init__(
    self,
    jitted: dispatch.Jitted,
    report: Callable[[], str],
    remake: Callable[[], Any],
  ):
    self._jitted = jitted
    self._report = report
    self._remake = remake
    functools.update_wrapper(self, jitted.function, updated=())
    self.__wrapped__ = jitted.wrapped

  @abc.abstractmethod
  def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
    """As the jitted step."""

  def __get__(self, instance: Any, owner: Any = None) -> Any:
    return self if instance is None else types.MethodType(self, instance)

  def __repr__(self) -> str:
    return self._report()

  def __reduce__(self) -> tuple[Callable[[], Any], tuple[()]]:
    return self._remake, ()

  def __dir__(self) -> set[str]:
    return {*super().__dir__(), *dir(self._jitted.function)}

  def __getattr__(self, name: str) -> Any:
    if name.startswith("__") or "_jitted" not in self.__dict__:
      raise AttributeError(name)
    return getattr(self._jitted.function, name)
