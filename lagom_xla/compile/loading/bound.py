# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Jitted steps that are bound: by `functools.partial`, or to an object.

A partial has no `lower`, and a method has that of its function, which does not
know the object. What `nnx.jit` makes of a method is a partial, too.
"""

from __future__ import annotations

from collections.abc import Mapping
import dataclasses
import functools
import types
from typing import Any


@dataclasses.dataclass(frozen=True)
class Bound:
  """A step, and the arguments that it is bound to.

  Attributes:
    step: it, whose `lower` takes all arguments.
    args: those that it is called with first.
    kwargs: those that it is called with by name, unless others are given.
  """

  step: Any
  args: tuple[Any, ...] = ()
  kwargs: Mapping[str, Any] = dataclasses.field(default_factory=dict)


def of(step: Any) -> Bound:
  """A step as it was before it was bound; any other one as it is."""
  if isinstance(step, functools.partial):
    inner = of(step.func)
    return Bound(
      inner.step, inner.args + step.args, {**inner.kwargs, **step.keywords}
    )
  if isinstance(step, types.MethodType):
    inner = of(step.__func__)
    return Bound(inner.step, (*inner.args, step.__self__), inner.kwargs)
  return Bound(step)
