# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Debug callbacks, left out where JAX lowers a step."""

from __future__ import annotations

from collections.abc import Iterator
import contextlib
from typing import Any
import warnings

from jax._src import debugging
from jax._src.interpreters import mlir


@contextlib.contextmanager
def without_callbacks() -> Iterator[None]:
  """Lowers for GPUs without `jax.debug.print` and `jax.debug.callback`.

  They call into a process that has the GPUs, which this one may not. Warns
  where something is left out.
  """
  left_out: list[str] = []
  rules = mlir._platform_specific_lowerings["cuda"]
  primitives = [
    getattr(debugging, name)
    for name in ("debug_callback_p", "debug_print_p")
    if hasattr(debugging, name)
  ]
  known = {p: rules[p] for p in primitives if p in rules}

  def leave_out(context: Any, *args: Any, **params: Any) -> list[Any]:
    del args, params
    left_out.append(str(context.primitive))
    return []

  for primitive in primitives:
    mlir.register_lowering(primitive, leave_out, platform="cuda")
  try:
    yield
  finally:
    for primitive in primitives:
      rules.pop(primitive, None)
    rules.update(known)
  if left_out:
    is_one = len(left_out) == 1
    what = "jax.debug call is" if is_one else "jax.debug calls are"
    warnings.warn(
      f"{len(left_out)} {what} left out: jax.debug acts only where the GPUs"
      " are, and may gather what it shows.",
      RuntimeWarning,
      stacklevel=3,
    )
