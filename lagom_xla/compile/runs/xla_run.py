# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""A run of XLA, in a worker (`sending.py`) or in this process."""

from __future__ import annotations

from collections.abc import Callable
import contextlib
import dataclasses
from typing import TypeVar

from lagom_xla import errors
from lagom_xla.compile import devices as devices_lib
from lagom_xla.compile import pending as pending_lib
from lagom_xla.compile.lowering import lowered as lowered_lib
from lagom_xla.compile.runs import asked as asked_lib
from lagom_xla.compile.runs import deviceless
from lagom_xla.compile.runs import sending
from lagom_xla.compile.runs import sentences
from lagom_xla.compile.workers import job as job_lib
from lagom_xla.jax_internals import persistent_cache
from lagom_xla.passes import hlo
from lagom_xla.passes import in_compile
from lagom_xla.passes import registry

_T = TypeVar("_T")


def start_to(
  stage: registry.Stage, asked: asked_lib.Asked
) -> pending_lib.Pending[hlo.Module]:
  """Starts a compile up to a stage, with a config's groups but not its orders.

  Raises:
    CompileError: XLA refuses the options.
  """

  def of_worker(result: job_lib.Result) -> hlo.Module:
    if result.module is None:
      return _scheduled(asked, None)
    return _scheduled(
      asked, hlo.hlo_pb2.HloModuleProto.FromString(result.module)
    )

  return _there_or_here(
    sending.send(stage, asked), of_worker, lambda: _to_here(stage, asked)
  )


def start_to_the_end(
  asked: asked_lib.Asked, *, shown_with: lowered_lib.Options
) -> pending_lib.Pending[lowered_lib.Compilation]:
  """Starts a compile to the end, with a config's groups and orders.

  A worker shows its schedule on the way, to whoever starts that (`start_to`).

  Args:
    asked: what to compile; with the options but for those that code needs.
      What generates code always begins.
    shown_with: what a schedule has on top of these options.

  Raises:
    CompileError: XLA refuses the options.
  """
  lowered = asked.lowered
  generates_code = sending.generates_code(lowered, asked.options)
  with_code = dataclasses.replace(
    asked, options={**lowered.options_to_the_end, **asked.options}
  )
  there = with_code if generates_code else asked
  sent = sending.send(
    None,
    dataclasses.replace(
      there,
      options={**shown_with, **there.options},
      must_begin=asked.must_begin or generates_code,
    ),
  )

  def of_worker(result: job_lib.Result) -> lowered_lib.Compilation:
    assert result.module is not None
    return lowered_lib.uncalled(
      result.module, lowered.cluster, result.peak_bytes
    )

  return _there_or_here(sent, of_worker, lambda: _to_the_end_here(with_code))


def _there_or_here(
  sent: pending_lib.Pending[job_lib.Result] | None,
  of_worker: Callable[[job_lib.Result], _T],
  here: Callable[[], _T],
) -> pending_lib.Pending[_T]:
  """What a worker comes to; what is done here where there is none, or none now.

  Args:
    sent: what was sent to a worker; None where it could not be.
    of_worker: what its result means.
    here: compiles the same in this process.
  """
  if sent is None:
    return pending_lib.Pending(result=here)

  def result() -> _T:
    try:
      found = sent.result()
    except errors.WorkerError:
      return here()
    return of_worker(found)

  return pending_lib.Pending(result=result, drop=sent.drop)


def _to_here(stage: registry.Stage, asked: asked_lib.Asked) -> hlo.Module:
  name = asked.lowered.name
  # What comes out of the cache is not scheduled any more.
  with persistent_cache.off(), sentences.on_failure(asked.words):
    with in_compile.grouped(name, asked.config.combine_groups):
      proto = in_compile.run_to(
        stage, lambda: _run(asked, generates_code=False), name
      )
  return _scheduled(asked, proto)


def _scheduled(
  asked: asked_lib.Asked, proto: hlo.hlo_pb2.HloModuleProto | None
) -> hlo.Module:
  if proto is None:
    raise errors.CompileError(
      f"{asked.words}: XLA finished without scheduling a module called"
      f" {asked.lowered.name}."
    )
  return hlo.Module(proto, asked.lowered.cluster.num_devices)


def _to_the_end_here(asked: asked_lib.Asked) -> lowered_lib.Compilation:
  lowered, config = asked.lowered, asked.config
  if config.orders:
    lowered = lowered.copied()  # What JAX remembers has another order.
    asked = dataclasses.replace(asked, lowered=lowered)
  # The executable of a compile-only device can be stored, but not loaded.
  can_load = devices_lib.is_live(lowered.cluster) and not config.orders
  cache = contextlib.nullcontext() if can_load else persistent_cache.off()
  with cache, sentences.on_failure(asked.words):
    with (
      in_compile.grouped(
        lowered.name,
        config.combine_groups,
        platform=lowered.platform,
        must_keep_donation=True,
      ),
      in_compile.reordered(
        lowered.name, config.orders, platform=lowered.platform
      ),
    ):
      executable = _run(asked, generates_code=True)
  return lowered.compilation(executable)


def _run(asked: asked_lib.Asked, *, generates_code: bool) -> object:
  """Runs XLA's compiler in this process."""
  profile = sending.profile(asked.config)
  options = deviceless.asked(
    asked.lowered,
    asked.options,
    keeps_names=asked.keeps_names,
    chooses_tiles=asked.chooses_tiles,
    generates_code=generates_code,
  )
  return asked.lowered.run_compiler(options, profile)
