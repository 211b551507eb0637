# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Passes inside a compile, which stop it, combine collectives, or reorder.

If only the schedule is needed, a pass keeps the module and raises to end the
compile. A pass before the scheduler sets combine groups, and one after it sets
orders. One compile can have one pass at each stage.

    with in_compile.grouped("jit_step", groups):
      module = in_compile.run_to(
        registry.Stage.POST_SCHEDULER, compile_fn, "jit_step"
      )

Passes touch only the module with the given name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
import contextlib
from typing import Any

from lagom_xla import errors
from lagom_xla.passes import combine
from lagom_xla.passes import hlo
from lagom_xla.passes import hlo_pb2
from lagom_xla.passes import registry
from lagom_xla.passes.schedule import orders as orders_lib


class _StageReached(Exception):  # noqa: N818
  """Ends a compile from inside, after its module was kept."""


def run_to(
  stage: registry.Stage,
  compile_fn: Callable[[], Any],
  name: str,
  *,
  platform: str = "cuda",
) -> hlo_pb2.HloModuleProto | None:
  """Returns the module of this name at a stage, and ends its compile there.

  None if the compile ended before XLA ran the pass on it.
  """
  reached: list[hlo_pb2.HloModuleProto] = []

  def stop(module: hlo_pb2.HloModuleProto) -> None:
    reached.append(module)
    raise _StageReached

  try:
    with shown(stage, stop, name, platform=platform):
      compile_fn()
  except Exception:
    if not reached:
      raise
  return reached[0] if reached else None


@contextlib.contextmanager
def shown(
  stage: registry.Stage,
  show: Callable[[hlo_pb2.HloModuleProto], None],
  name: str,
  *,
  platform: str = "cuda",
) -> Iterator[None]:
  """Shows the module of this name at a stage to `show`; the compile goes on."""
  with rewritten(name, lambda module: show(module.proto), stage, platform):
    yield


@contextlib.contextmanager
def grouped(
  name: str,
  groups: combine.Groups | None,
  *,
  must_keep_donation: bool = False,
) -> Iterator[None]:
  """Makes XLA combine a module's collectives in these groups.

  Compiles in the block need `combine.options(groups)`. None leaves combining to
  XLA. Raises CombineError if the module cannot have these groups, and
  DonationLostError if inputs must stay donated and this JAX would drop
  donation.
  """
  if groups is None:
    yield
    return

  def rewrite(module: hlo.Module) -> bytes:
    rewritten = combine.rewrite(module, groups)
    if must_keep_donation:
      registry.check_donation(module, "sets combine groups")
    return rewritten

  with rewritten(name, rewrite, registry.Stage.PRE_SCHEDULER, "cuda"):
    yield


@contextlib.contextmanager
def reordered(
  name: str, orders: orders_lib.Orders, *, platform: str = "cuda"
) -> Iterator[None]:
  """Makes XLA run instructions in these orders; {} leaves them to XLA.

  Raises CompileError if XLA ran the pass on no module of this name,
  ScheduleError if the orders are not for this module or not legal, and
  DonationLostError if this JAX would drop donation.
  """
  if not orders:
    yield
    return
  shown: list[str] = []

  def rewrite(module: hlo.Module) -> bytes:
    shown.append(module.name)
    rewritten = orders_lib.apply(module, orders)
    registry.check_donation(module, "orders instructions")
    return rewritten.proto.SerializeToString()

  with rewritten(name, rewrite, registry.Stage.POST_SCHEDULER, platform):
    yield
  if not shown:
    raise errors.CompileError(
      f"XLA compiled {name} without running the pass that orders its"
      " instructions; make the plan without orders."
    )


@contextlib.contextmanager
def rewritten(
  name: str,
  rewrite: Callable[[hlo.Module], bytes | None],
  stage: registry.Stage,
  platform: str,
) -> Iterator[None]:
  """Makes XLA continue with the rewritten module of this name.

  The rewrite returns None to keep the module. The block re-raises a LagomError
  of the rewrite.
  """
  refusals: list[errors.LagomError] = []

  def callback(serialized: bytes) -> bytes | None:
    proto = hlo_pb2.HloModuleProto.FromString(serialized)
    if proto.name != name:
      return None
    try:
      return rewrite(hlo.Module(proto))
    except errors.LagomError as error:
      refusals.append(error)
      raise

  try:
    with registry.transformation(callback, stage=stage, platform=platform):
      yield
  except Exception as error:
    # XLA converts errors that pass through it into text.
    if refusals and refusals[0] is not error:
      raise refusals[0] from None
    raise
