# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Registration of passes with XLA; no other module talks to it about them.

XLA calls a registered pass in every compile of the process, so registrations
here last as long as a `with` block, and belong to one thread at a time, which
may have one pass before the scheduler and one after it together. Compiles of
other threads would be caught too: callers must filter by module name.

    with registry.transformation(
        callback, stage=registry.Stage.POST_SCHEDULER, platform="cuda"
    ):
      lowered.compile()

A pass that returns a module makes jaxlib 0.10.2 forget which inputs were
donated (`keeps_donation`); passes that only read return None and are harmless
everywhere.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
import contextlib
import enum
import itertools
import threading

import jax
from jax.extend import xla

from lagom_xla.passes import pjrt_transform

Callback = Callable[[bytes], bytes | None]

_lock = threading.RLock()
_serial = itertools.count()


class Stage(enum.Enum):
  """Where in XLA's pipeline a pass runs."""

  # After partitioning, before the collective passes, combiners and fusion.
  PRE_SCHEDULER = 0
  # After scheduling and copy insertion, before code generation.
  POST_SCHEDULER = 1


def keeps_donation() -> bool:
  """Whether inputs stay donated in a module that a pass returns.

  XLA carries input_output_alias and buffer_donor over since openxla/xla
  815875fd3c, which JAX 0.11 was the first to have.
  """
  return jax.__version_info__ >= (0, 11)


@contextlib.contextmanager
def transformation(
  callback: Callback, *, stage: Stage, platform: str
) -> Iterator[None]:
  """Adds an HLO pass to every compile inside the `with` block.

  Args:
    callback: takes a serialized HloModuleProto; returns a changed one, or None
      to leave the module alone. Newer XLA also compiles small modules per
      kernel: tell them apart by name. An exception fails the compile.
    stage: when to run.
    platform: "cpu", or "cuda" for live GPUs and ahead-of-time compiles.

  Raises:
    UnsupportedError: this installation cannot add passes.
  """
  with _lock:
    name = f"lagom_xla_{next(_serial)}"
    register, clear = _functions(platform)
    register(callback, name=name, stage=stage)
    try:
      yield
    finally:
      clear(name=name, stage=stage)


def _functions(platform: str):
  """The functions that register and clear a pass, in this version of JAX."""
  if platform == "cuda" and jax.__version_info__ < (0, 11):
    return _register_with_plugin, _clear_from_plugin

  def register(callback: Callback, *, name: str, stage: Stage) -> None:
    xla.register_hlo_module_transformation(
      callback,
      name=name,
      stage=xla.PipelineStage[stage.name],
      platforms=platform,
    )

  def clear(*, name: str, stage: Stage) -> None:
    xla.clear_hlo_module_transformation(
      name, stage=xla.PipelineStage[stage.name], platforms=platform
    )

  return register, clear


def _register_with_plugin(
  callback: Callback, *, name: str, stage: Stage
) -> None:
  pjrt_transform.register(callback, name=name, stage=stage.value)


def _clear_from_plugin(*, name: str, stage: Stage) -> None:
  pjrt_transform.clear(name=name, stage=stage.value)
