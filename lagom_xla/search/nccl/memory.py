# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""The memory of searches: what trials of a problem showed, for its equals.

Options that change a part of a schedule leave the overlaps of its other parts
as they were: of the 62 problems of the six candidates that are searched for the
Llama example, 26 were searched before. What a trial shows depends on the
problem's signature, the cluster, the profile and the scenario alone.
"""

from __future__ import annotations

import dataclasses
import functools

from lagom_xla import cluster as cluster_lib
from lagom_xla.costs import measured as measured_lib
from lagom_xla.costs import nccl
from lagom_xla.costs import scenario as scenario_lib
from lagom_xla.search.nccl import problem as problem_lib
from lagom_xla.search.nccl import searcher as searcher_lib

# Problems that are remembered: those of the last candidates.
_MAX_PROBLEMS = 1024


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Found:
  """What one search of a problem found.

  Attributes:
    configuration: the best.
    num_trials: trials that it took.
  """

  configuration: problem_lib.Configuration
  num_trials: int


@dataclasses.dataclass(frozen=True, slots=True)
class Memory:
  """What is known of one problem; whoever searches it adds to that.

  Attributes:
    found: what is best, by the scenario that was searched.
    assured_us: the assured gain over NCCL's own choices, by the settings of the
      problem's keys, in their order.
  """

  found: dict[scenario_lib.Scenario, Found] = dataclasses.field(
    default_factory=dict
  )
  assured_us: dict[tuple[nccl.Setting, ...], float] = dataclasses.field(
    default_factory=dict
  )


@functools.lru_cache(maxsize=_MAX_PROBLEMS)
def of(
  signature: problem_lib.Signature,
  searcher: searcher_lib.Searcher,
  cluster: cluster_lib.Cluster,
  measured: measured_lib.Measured | None,
  scenarios: tuple[scenario_lib.Scenario, ...],
) -> Memory:
  """What is known of a problem; nothing the first time.

  Args:
    signature: the problem's.
    searcher: that searches it.
    cluster: where it runs.
    measured: costs of a profile; None if all are predicted.
    scenarios: that a gain is assured in.
  """
  del signature, searcher, cluster, measured, scenarios  # Keys of the cache.
  return Memory()
