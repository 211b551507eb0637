# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""NCCL_ALGO and NCCL_PROTO, which stand in for rules where no plugin loads.

Both variables hold for every size on every communicator of the process, also
where no rule applies: one choice per function. So they are set only for a
function whose rules all agree, and never to what could end a job or corrupt its
data:
- Where NCCL can run none of the algorithms named, it fails. A ring runs
  everywhere, so it is always named beside another algorithm.
- Naming LL128 takes it as safe also on links where NCCL knows that it is not
  (src/graph/tuning.cc), and LL has half the bandwidth. Only Simple is named.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from lagom_xla.apply.nccl import rules as rules_lib

# A rule's kind -> the function as NCCL_ALGO and NCCL_PROTO name it.
_FUNCTIONS = {
  "collective-broadcast": "broadcast",
  "reduce": "reduce",
  "all-gather": "allgather",
  "reduce-scatter": "reducescatter",
  "all-reduce": "allreduce",
}


def variables(rules: Iterable[rules_lib.Rule]) -> Mapping[str, str]:
  """The variables that set what rules agree on.

  Args:
    rules: of a plan, in any order.

  Returns:
    NCCL environment variable -> value; {} where no function's rules agree on
    anything safe.

  Raises:
    RuleError: a rule is not usable, or two share a size.
  """
  by_kind: dict[str, list[rules_lib.Rule]] = {}
  for rule in rules_lib.ordered(rules):
    by_kind.setdefault(rule.kind, []).append(rule)
  algorithms, protocols = [], []
  for kind, same_kind in by_kind.items():
    function = _FUNCTIONS[kind]
    algorithm, *others = {rule.algorithm for rule in same_kind}
    if not others:
      names = algorithm if algorithm == "ring" else f"{algorithm},ring"
      algorithms.append(f"{function}:{names}")
    if {rule.protocol for rule in same_kind} == {"simple"}:
      protocols.append(f"{function}:simple")
  values = {"NCCL_ALGO": algorithms, "NCCL_PROTO": protocols}
  return {name: ";".join(sorted(v)) for name, v in values.items() if v}
