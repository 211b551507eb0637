# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Rules as the file that NVIDIA's example tuner plugin reads.

The format is that of plugins/tuner/example in NCCL's sources, named by its
variable NCCL_TUNER_CONFIG_FILE. It has no column for the chunk size. That
plugin also asks for one channel wherever no line matches, which makes all other
collectives slow: it takes a change of that default in its source.
"""

from __future__ import annotations

from collections.abc import Iterable

from lagom_xla.apply.nccl import rules as rules_lib

COLLECTIVES = {
  "collective-broadcast": "broadcast",
  "reduce": "reduce",
  "all-gather": "allgather",
  "reduce-scatter": "reducescatter",
  "all-reduce": "allreduce",
}
_ALGORITHMS = {"nvlstree": "nvls_tree"}

# The example cuts lines at 255 characters.
_HEADER = """\
# For NVIDIA's example tuner plugin (NCCL_TUNER_CONFIG_FILE). It knows no chunk
# sizes, and runs every collective that no line matches on one channel: change
# nChannels there to start from 0 first, or use lagom_xla's own plugin.
# collective,minBytes,maxBytes,algorithm,protocol,channels,nNodes,nRanks
"""


def text(rules: Iterable[rules_lib.Rule]) -> str:
  """The file."""
  lines = [
    ",".join(
      [
        COLLECTIVES[rule.kind],
        str(rule.min_bytes),
        str(rule.max_bytes),
        _ALGORITHMS.get(rule.algorithm, rule.algorithm),
        rule.protocol,
        str(rule.num_channels or -1),
        str(rule.num_nodes),
        str(rule.num_ranks),
      ]
    )
    for rule in rules_lib.ordered(rules)
  ]
  return _HEADER + "".join(f"{line}\n" for line in lines)
