# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Sentences in which a compile fails: what was asked for, and why not."""

from __future__ import annotations

from collections.abc import Iterator
import contextlib

from lagom_xla import errors
from lagom_xla.compile import config as config_lib
from lagom_xla.compile.lowering import lowered as lowered_lib
from lagom_xla.compile.lowering import rewriting
from lagom_xla.passes.schedule import orders as orders_lib

# What XLA says of a program that it compiles where GPUs time kernels, and what
# to do about it where there are none.
_REMEDIES = {
  "Couldn't find output tile sizes": (
    "where nothing is autotuned, XLA takes Triton for this product and has no"
    " tiles for its shape: set XLA_FLAGS=--xla_gpu_enable_triton_gemm=false,"
    " which leaves products to cuBLAS"
  ),
}


def asked_for(
  lowered: lowered_lib.Lowered, config: config_lib.XlaConfig
) -> str:
  """The beginning of an error message about a compile.

  Raises:
    CompileError: an option has a value of a type that XLA has no options of.
  """
  asked = [f"{name}={value!r}" for name, value in config.options.items()]
  if config.scheduler_profile is not None:
    asked.append("a scheduler profile")
  if config.combine_groups is not None:
    asked.append(f"{len(config.combine_groups)} combine groups")
  if not config.program.is_as_written:
    asked.append(rewriting.in_words(config.program))
  if config.orders:
    asked.append(orders_lib.in_words(config.orders))
  text = f"XLA could not compile for {lowered.cluster.name}"
  if asked:
    text += f" with {', '.join(asked)}"
  for name, value in config.options.items():
    if not isinstance(value, bool | int | float | str):
      raise errors.CompileError(
        f"{text}: {name} must be a bool, int, float or str, and is of type"
        f" {type(value).__name__}."
      )
  return text


@contextlib.contextmanager
def on_failure(asked_for: str) -> Iterator[None]:
  """Says of whatever a compile raises what was asked for, and why not."""
  try:
    yield
  except errors.CompileAbortedError as error:
    raise errors.CompileAbortedError(f"{asked_for}: {error}") from error
  except (
    errors.CombineError,
    errors.CompileError,
    errors.ScheduleError,
    errors.WorkerError,
  ):
    raise
  except errors.DonationLostError as error:
    raise errors.CompileError(str(error)) from error
  except Exception as error:
    remedies = "".join(
      f"\n  [{remedy}]"
      for symptom, remedy in _REMEDIES.items()
      if symptom in str(error)
    )
    raise errors.CompileError(
      f"{asked_for}: {errors.message(error)}{remedies}"
    ) from error
