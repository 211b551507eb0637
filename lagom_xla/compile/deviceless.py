# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""What XLA does for nothing where no GPU is there, and is told to leave out.

From JAX 0.12 on XLA compiles every fusion on its own, to time the kernels of
its two emitters against each other, and every matrix product, to see which
tiles compile. Without a GPU it times nothing, and takes what compiles first.
Neither changes which kernels there are; a schedule is made without both.

Tiles also cost XLA time while it fuses. Without their propagation it fuses the
same in half the time, and counts some bitcasts otherwise. So it stays on where
instructions are known by XLA's own names. For some programs it then fuses what
no tiles compile for: a worker compiles XLA's defaults with tiles to see that,
and where XLA refuses them tiles are propagated.

Nor are files written that XLA_FLAGS ask for, as trainers make them do: a search
compiles dozens of times what a job compiles once.

`benchmarks/schedules.py` holds what comes of it beside what JAX has XLA make.
"""

from __future__ import annotations

import jax

from lagom_xla import errors
from lagom_xla.compile import fused
from lagom_xla.compile import lowered as lowered_lib
from lagom_xla.compile import xla

_FUSION_AUTOTUNER = "xla_gpu_experimental_enable_fusion_autotuner"
_TILING_PROPAGATION = "xla_gpu_experimental_enable_tiling_propagation"
_NO_MODULE = "^$"
# Before, XLA compiles no product to choose its tiles.
_CHOOSES_TILES = jax.__version_info__ >= (0, 12)
# What XLA says of a product that no tiles compile for.
_REFUSAL = "No supported config found"
# Programs for which it said so without propagation, by name and cluster.
_propagating: set[tuple[str, str]] = set()


def is_compile_only(lowered: lowered_lib.Lowered) -> bool:
  """Whether nothing in this process takes part, neither GPUs nor CPUs.

  A GPU that is here times kernels, though it is compiled for others.
  """
  return lowered.platform == "cuda" and jax.default_backend() != "gpu"


def asked(
  lowered: lowered_lib.Lowered,
  options: lowered_lib.Options,
  *,
  keeps_names: bool,
  generates_code: bool,
  chooses_tiles: bool = False,
) -> lowered_lib.Options:
  """What XLA is asked with these options, which have the last word.

  With all names that a job sees, where `keeps_names`; with tiles, where it
  generates code or chooses them all the same.
  """
  if not is_compile_only(lowered):
    return options
  left_out: dict[str, bool | int | float | str] = {_FUSION_AUTOTUNER: False}
  if generates_code:
    return {**left_out, **options}
  if not _is_left_to_us(xla.DUMPS, lowered):
    left_out[xla.DUMPED_MODULES] = _NO_MODULE
  propagates = keeps_names or _key(lowered) in _propagating
  if not propagates and _is_left_to_us(_TILING_PROPAGATION, lowered):
    left_out[_TILING_PROPAGATION] = False
  together = {**left_out, **options}
  if not chooses_tiles and _is_left_to_us("hlo_pass", lowered):
    disabled = filter(None, (options.get(fused.DISABLE), fused.CONFIGS))
    together[fused.DISABLE] = ",".join(map(str, disabled))
  return together


def tiles_may_be_refused(lowered: lowered_lib.Lowered) -> bool:
  """Whether XLA may have no tiles for what it fuses without propagation."""
  return (
    _CHOOSES_TILES
    and _key(lowered) not in _propagating
    and is_compile_only(lowered)
  )


def note_refusal(
  error: errors.CompileError, lowered: lowered_lib.Lowered
) -> bool:
  """Whether XLA refused tiles, which are propagated from then on."""
  is_refusal = _REFUSAL in str(error)
  if is_refusal:
    _propagating.add(_key(lowered))
  return is_refusal


def _key(lowered: lowered_lib.Lowered) -> tuple[str, str]:
  return lowered.name, lowered.cluster.name


def _is_left_to_us(word: str, lowered: lowered_lib.Lowered) -> bool:
  """Whether nothing that a user sets names an option with this word in it."""
  handed = lowered.handed
  passes = (fused.DISABLE,) if handed.disabled else ()
  return not xla.may_name([word], (*handed.jit, *passes))
