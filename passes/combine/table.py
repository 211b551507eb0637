# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""The table of XLA's combiners: kinds, options, defaults and bytes.

A combiner joins collectives of its kind until the joint one would pass a
threshold in bytes, or one in their count that holds for all kinds (`rule`).
"""

from __future__ import annotations

from collections.abc import Mapping
import dataclasses

from lagom_xla.passes import collectives as collectives_lib

# DebugOptions' default of every threshold in bytes: 30 MiB + 7 B
# (xla/debug_options_flags.cc, kDefaultThreshold). Any other value switches off
# XLA's own heuristics.
DEFAULT_BYTES = 31457287

# Collectives that may be combined into one, whatever their kind and size.
COUNT_OPTION = "xla_gpu_collective_combine_threshold_count"


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Combiner:
  """XLA's combiner for one kind of collective.

  Attributes:
    option: XLA's option for how many bytes it may combine into one.
    default_bytes: the option's default.
  """

  option: str
  default_bytes: int = DEFAULT_BYTES


# By kind, which is an HLO opcode.
COMBINERS: Mapping[str, Combiner] = {
  "all-gather": Combiner(option="xla_gpu_all_gather_combine_threshold_bytes"),
  "all-reduce": Combiner(option="xla_gpu_all_reduce_combine_threshold_bytes"),
  "collective-permute": Combiner(
    option="xla_gpu_collective_permute_combine_threshold_bytes"
  ),
  "reduce-scatter": Combiner(
    option="xla_gpu_reduce_scatter_combine_threshold_bytes"
  ),
}


def combined_bytes(collective: collectives_lib.Collective) -> int:
  """Bytes of a collective as XLA's combiners count them: what it returns.

  For an all-gather that is what is gathered, for a reduce-scatter what is left
  after scattering, for an all-reduce the tensor
  (xla/service/gpu/gpu_*_combiner.cc).
  """
  return collective.result_bytes
