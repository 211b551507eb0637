# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Passes that take part in a compile: one that stops it, one that combines.

A compile for a schedule has nothing to do after the scheduler, so a pass there
keeps the module and raises. Combine groups are a pass before the scheduler. One
compile can have both.

    with in_compile.grouped("jit_step", groups):
      module = in_compile.run_to(
        registry.Stage.POST_SCHEDULER, compile_fn, "jit_step"
      )

Only the module with the given name is touched.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
import contextlib
from typing import Any

from lagom_xla import errors
from lagom_xla.passes import combine
from lagom_xla.passes import donation
from lagom_xla.passes import hlo
from lagom_xla.passes import hlo_pb2
from lagom_xla.passes import registry
from lagom_xla.passes.combine import merge


class _StageReached(Exception):  # noqa: N818
  """Ends a compile from inside, once its module is there."""


def run_to(
  stage: registry.Stage, compile_fn: Callable[[], Any], name: str
) -> hlo_pb2.HloModuleProto | None:
  """Runs a compile for GPUs up to a stage.

  Returns:
    The module of that name; None where the compile ended without it.
  """
  reached: list[hlo_pb2.HloModuleProto] = []

  def stop(serialized: bytes) -> None:
    module = hlo_pb2.HloModuleProto.FromString(serialized)
    if module.name == name:
      reached.append(module)
      raise _StageReached

  try:
    with registry.transformation(stop, stage=stage, platform="cuda"):
      compile_fn()
  except Exception:
    if not reached:
      raise
  return reached[0] if reached else None


@contextlib.contextmanager
def grouped(
  name: str,
  groups: combine.Groups | None,
  *,
  platform: str = "cuda",
  must_keep_donation: bool = False,
) -> Iterator[None]:
  """Has XLA combine a module's collectives in these groups.

  The compiles inside need `combine.options(groups)`.

  Args:
    name: of the module.
    groups: None leaves it to XLA.
    platform: "cuda"; or "cpu", where the collectives themselves are merged.
    must_keep_donation: whether to refuse a module with donated inputs where
      JAX cannot keep them so.

  Raises:
    CombineError: the module cannot have these groups.
    DonationLostError: it donates, and this JAX would forget that.
  """
  if groups is None:
    yield
    return
  refusals: list[Exception] = []
  regroup = merge.rewrite if platform == "cpu" else combine.rewrite

  def rewrite(serialized: bytes) -> bytes | None:
    proto = hlo_pb2.HloModuleProto.FromString(serialized)
    if proto.name != name:
      return None
    try:
      rewritten = regroup(hlo.Module(proto), groups)
      if must_keep_donation:
        donation.check(hlo.Module(proto), "sets combine groups")
      return rewritten
    except (errors.CombineError, errors.DonationLostError) as error:
      refusals.append(error)
      raise

  try:
    with registry.transformation(
      rewrite, stage=registry.Stage.PRE_SCHEDULER, platform=platform
    ):
      yield
  except Exception as error:
    # On its way through XLA an error becomes text.
    if refusals and refusals[0] is not error:
      raise refusals[0] from None
    raise
