# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""What there is to choose about combining: XLA's three byte thresholds.

XLA's combiners join collectives of one kind and one set of groups until the
joint one would pass a threshold.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from lagom_xla.passes import collectives as collectives_lib

# Kind of collective -> how many bytes of them XLA may combine into one.
OPTIONS = {
  "all-gather": "xla_gpu_all_gather_combine_threshold_bytes",
  "all-reduce": "xla_gpu_all_reduce_combine_threshold_bytes",
  "reduce-scatter": "xla_gpu_reduce_scatter_combine_threshold_bytes",
}

# DebugOptions' default of all three (xla/debug_options_flags.cc: 30 MiB + 7 B).
DEFAULT_BYTES = 31457287


_MIB = 2**20
# Thresholds that are tried: nothing combined, and powers of two around what
# the published recipes use (128 MiB to 8 GiB; none explains its choice).
CHOICES_BYTES = (0, 8 * _MIB, 128 * _MIB, 512 * _MIB, 2048 * _MIB)


def combined_bytes(collective: collectives_lib.Collective) -> int:
  """Bytes of a collective as XLA's combiners count them.

  All-gather counts what is gathered, reduce-scatter what is left after
  scattering, all-reduce the tensor (xla/service/gpu/gpu_*_combiner.cc).
  """
  return collective.result_bytes


def worth_trying(
  collectives: Sequence[collectives_lib.Collective], kind: str
) -> Iterator[int]:
  """Thresholds that can change how this kind is combined.

  Args:
    collectives: of the module as XLA combines it by default.
    kind: a key of OPTIONS.
  """
  alike = [c for c in collectives if c.kind == kind]
  sizes = sorted(map(combined_bytes, alike))
  for threshold in CHOICES_BYTES:
    if threshold < DEFAULT_BYTES:
      if any(c.num_operands > 1 for c in alike):
        yield threshold
      continue
    # Two collectives must fit under it that are apart so far.
    if len(sizes) > 1 and sum(sizes[:2]) <= threshold:
      yield threshold
    if sum(sizes) <= threshold:
      return
