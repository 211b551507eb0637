# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""What NCCL_ALGO and NCCL_PROTO can say of rules: one choice per function.

Both variables hold for every size on every communicator of the process, those
that no rule is about too, so they say something only of a function whose rules
all agree, and nothing that could end a job or spoil its data:
- Where NCCL can run none of the algorithms named, it fails. A ring runs
  everywhere, so it is always named beside another algorithm.
- Naming LL128 takes it as safe also on links where NCCL knows that it is not
  (src/graph/tuning.cc), and LL has half the bandwidth. Only Simple is named.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from lagom_xla.apply.nccl import nvidia_csv
from lagom_xla.apply.nccl import rules as rules_lib


def variables(rules: Iterable[rules_lib.Rule]) -> Mapping[str, str]:
  """The variables; {} where no function's rules agree on anything safe."""
  by_kind: dict[str, list[rules_lib.Rule]] = {}
  for rule in rules_lib.ordered(rules):
    by_kind.setdefault(rule.kind, []).append(rule)
  algorithms, protocols = [], []
  for kind, same_kind in by_kind.items():
    function = nvidia_csv.COLLECTIVES[kind]
    algorithm, *others = {rule.algorithm for rule in same_kind}
    if not others:
      names = algorithm if algorithm == "ring" else f"{algorithm},ring"
      algorithms.append(f"{function}:{names}")
    if {rule.protocol for rule in same_kind} == {"simple"}:
      protocols.append(f"{function}:simple")
  values = {"NCCL_ALGO": algorithms, "NCCL_PROTO": protocols}
  return {name: ";".join(sorted(v)) for name, v in values.items() if v}
