# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""What XLA does for nothing where no GPU is there, and is told to leave out.

From JAX 0.12 on XLA compiles every fusion on its own, to time the kernels of
its two emitters against each other. Without a GPU it then takes the first that
compiles, which is what it takes if it is not asked; a third to half of the time
of `inspect` goes there.
"""

from __future__ import annotations

import functools

import jax

from lagom_xla.compile.lowering import lowered as lowered_lib

_FUSION_AUTOTUNER = "xla_gpu_experimental_enable_fusion_autotuner"


def is_compile_only(lowered: lowered_lib.Lowered) -> bool:
  """Whether nothing in this process takes part, neither GPUs nor CPUs.

  A GPU that is here times kernels, though it is compiled for others.
  """
  return lowered.platform == "cuda" and jax.default_backend() != "gpu"


def asked(
  lowered: lowered_lib.Lowered, options: lowered_lib.Options
) -> lowered_lib.Options:
  """What XLA is asked with these options, which have the last word."""
  if not (is_compile_only(lowered) and _is_option(_FUSION_AUTOTUNER)):
    return options
  return {_FUSION_AUTOTUNER: False, **options}


@functools.cache
def _is_option(name: str) -> bool:
  """Whether the installed XLA has an option, which its CPU compiler knows."""
  nothing = jax.jit(lambda x: x).trace(0.0).lower(lowering_platforms=("cpu",))
  try:
    nothing.compile(compiler_options={name: False})
  except jax.errors.JaxRuntimeError:
    return False
  return True
