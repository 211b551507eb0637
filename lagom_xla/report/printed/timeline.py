# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""A replayed step in JSON: its time, and whom it goes to."""

from __future__ import annotations

from collections.abc import Mapping
import dataclasses

from lagom_xla.costs import step as step_lib
from lagom_xla.costs.replay import timeline as timeline_lib
from lagom_xla.report.wording import instructions as instructions_lib


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class LostToCollective:
  """What a kernel loses to a collective beside it.

  Attributes:
    kernel: its name.
    collective: its name.
    slowdown_us: what the kernel loses per step.
  """

  kernel: str
  collective: str
  slowdown_us: float


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Timeline:
  """A replayed step; times are predicted, per step.

  Attributes:
    step_time_us: `kernel_us` + `slowdown_us` + `exposed_us` + `copy_wait_us` +
      `copy_slowdown_us`.
    kernel_us: kernels, each alone.
    collective_us: collectives, each alone.
    exposed_us: waits for collectives.
    slowdown_us: what kernels lose to collectives beside them.
    delay_us: what collectives lose to kernels beside them.
    copy_us: copies beside kernels, each alone: to and from the host's memory,
      and within the GPU's.
    copy_wait_us: waits for them.
    copy_slowdown_us: what kernels lose to them.
    exposed_us_by_collective: name -> its share of `exposed_us`.
    source_by_collective: name of every collective -> the line that it comes
      from, as `source` of `inspect`.
    slowdown_us_by_pair: who loses what of `slowdown_us` to whom.
  """

  step_time_us: float
  kernel_us: float
  collective_us: float
  exposed_us: float
  slowdown_us: float
  delay_us: float
  copy_us: float
  copy_wait_us: float
  copy_slowdown_us: float
  exposed_us_by_collective: Mapping[str, float]
  source_by_collective: Mapping[str, str]
  slowdown_us_by_pair: tuple[LostToCollective, ...]


def of_replay(replayed: timeline_lib.Timeline, step: step_lib.Step) -> Timeline:
  """What is to be said of the replay of a step."""
  told = instructions_lib.of_step(step)
  return Timeline(
    step_time_us=replayed.step_time_us,
    kernel_us=replayed.kernel_us,
    collective_us=replayed.collective_us,
    exposed_us=replayed.total_exposed_us,
    slowdown_us=replayed.total_slowdown_us,
    delay_us=replayed.total_delay_us,
    copy_us=replayed.copy_us,
    copy_wait_us=replayed.total_copy_wait_us,
    copy_slowdown_us=replayed.total_copy_slowdown_us,
    exposed_us_by_collective=replayed.exposed_us,
    source_by_collective={
      collective.name: str(told[collective.name].source)
      for collective in step.analysis.collectives
    },
    slowdown_us_by_pair=tuple(
      LostToCollective(
        kernel=kernel, collective=collective, slowdown_us=lost_us
      )
      for (kernel, collective), lost_us in replayed.slowdown_us.items()
    ),
  )
