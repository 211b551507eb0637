# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Makes XLA skip work that is useless without a GPU.

From JAX 0.12 on XLA compiles every fusion by itself, to time the kernels of its
two emitters, and every matrix product, to find tiles that compile. Without a
GPU it times nothing and takes the first that compiles. Neither changes the
kernels, so schedules are made without both.

Tiles also slow fusion down. Without tiling propagation the same fusions take
half the time, but some bitcasts are numbered differently, so it stays on if
instructions are referred to by XLA's names. For some programs XLA then makes
fusions without tiles that compile. So a worker compiles XLA's defaults with
tiles, and if XLA fails, tiles are propagated.

XLA_FLAGS of trainers may ask for dumps. They are not written, as a search
compiles dozens of times what a job compiles once.

`benchmarks/schedules.py` compares the results with those of JAX's compiles.
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
# XLA's error for a product that no tiles compile for.
_REFUSAL = "No supported config found"
# Programs with that error without propagation, by name and cluster.
_propagating: set[tuple[str, str]] = set()


def is_compile_only(lowered: lowered_lib.Lowered) -> bool:
  """Whether no device of this process takes part.

  A live GPU times kernels, even in compiles for other GPUs.
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
  """Options for XLA, which these override.

  Keeps the names that a job sees if `keeps_names`; chooses tiles if it
  generates code or `chooses_tiles`.
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
  """Whether XLA may lack tiles for its fusions without propagation."""
  return (
    _CHOOSES_TILES
    and _key(lowered) not in _propagating
    and is_compile_only(lowered)
  )


def note_refusal(
  error: errors.CompileError, lowered: lowered_lib.Lowered
) -> bool:
  """Whether XLA lacked tiles; if so, they are propagated from now on."""
  is_refusal = _REFUSAL in str(error)
  if is_refusal:
    _propagating.add(_key(lowered))
  return is_refusal


def _key(lowered: lowered_lib.Lowered) -> tuple[str, str]:
  return lowered.name, lowered.cluster.name


def _is_left_to_us(word: str, lowered: lowered_lib.Lowered) -> bool:
  """Whether the user sets no option with this word in its name."""
  handed = lowered.handed
  passes = (fused.DISABLE,) if handed.disabled else ()
  return not xla.may_name([word], (*handed.jit, *passes))
