# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Single overlaps of real modules as problems of their own.

An overlap with one or two tuning keys is small enough to be searched to the
end. Overlaps with equal kernels and keys are one case.
"""

from __future__ import annotations

import collections
from collections.abc import Iterator
import copy
import dataclasses

from lagom_xla.costs import nccl
from lagom_xla.costs import step as step_lib
from lagom_xla.costs.replay import program as program_lib
from lagom_xla.search.nccl import problem as problem_lib

_MOST_KEYS = 2


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Case:
  """One overlap, tuned alone.

  Attributes:
    module: name of the module that it is from.
    step: the step, in which only this overlap's collectives count.
    problem: the overlap.
    num_collectives: that it runs, those of loops inside it once.
  """

  module: str
  step: step_lib.Step
  problem: problem_lib.Problem
  num_collectives: int


def of_step(
  module: str, step: step_lib.Step, seen: set[object]
) -> Iterator[Case]:
  """The different overlaps of a step that have one or two keys to tune.

  Args:
    module: its name.
    step: where to look.
    seen: overlaps that are not wanted again; those that are found join them.
  """
  for overlap in step.analysis.overlaps:
    program = program_lib.of_overlap(step.analysis, overlap)
    runs: collections.Counter[problem_lib.Key] = collections.Counter()
    names = set()
    for collective, repeats in program_lib.collectives_in(program):
      runs[step.key_of[collective.name]] += repeats
      names.add(collective.name)
    is_tunable = any(key.kind not in nccl.SEND_RECV for key in runs)
    kernels = tuple(step.kernel_cost(kernel) for kernel in overlap.kernels)
    keys = tuple(step.key_of[c.name] for c in overlap.collectives)
    alike = (step.cluster.name, kernels, keys)
    if not is_tunable or len(runs) > _MOST_KEYS or alike in seen:
      continue
    seen.add(alike)
    yield Case(
      module=module,
      step=_excerpt(step, runs),
      problem=problem_lib.Problem(
        keys=tuple(sorted(runs)),
        programs=((program, 1),),
        program_keys=(frozenset(runs),),
      ),
      num_collectives=len(names),
    )


def _excerpt(
  step: step_lib.Step, runs: collections.Counter[problem_lib.Key]
) -> step_lib.Step:
  """The step with the same costs, of which only some collectives run."""
  excerpt = copy.copy(step)
  vars(excerpt)["executions"] = dict(runs)  # In place of the cached property.
  return excerpt
