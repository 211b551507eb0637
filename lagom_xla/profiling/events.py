# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Events of a step: one run of an instruction, and what ran beside it.

A kernel's time is its cost only if no collective ran at the same time: then it
is lone. Otherwise the trace shows the kernel's loss to the collective.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
import dataclasses


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Event:
  """One run of an instruction; times count from the start of the trace.

  Attributes:
    name: the instruction's.
    begin_us: when its first kernel began.
    end_us: when its last kernel ended.
    num_blocks: thread blocks of its largest kernel, a NCCL kernel's channels;
      None if unknown.
  """

  name: str
  begin_us: float
  end_us: float
  num_blocks: int | None = None

  @property
  def time_us(self) -> float:
    """How long it ran."""
    return self.end_us - self.begin_us

  def common_us(self, other: Event) -> float:
    """How long it ran at the same time as another; 0 if it did not."""
    begin_us = max(self.begin_us, other.begin_us)
    return max(min(self.end_us, other.end_us) - begin_us, 0.0)


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class KernelRun:
  """One run of a kernel.

  Attributes:
    name: the kernel's.
    time_us: how long it ran.
    gap_us: from its end to the next kernel's start, negative if they overlap;
      None for the last kernel of a step.
    collective: the collective that ran for most of its time; "" for none.
    share: share of its time in which the collective ran, 0 to 1.
  """

  name: str
  time_us: float
  gap_us: float | None
  collective: str
  share: float

  @property
  def is_lone(self) -> bool:
    """Whether it did not run beside a collective."""
    return not self.share


def kernel_runs(
  kernels: Sequence[Event], collectives: Sequence[Event]
) -> Iterator[KernelRun]:
  """The kernels of a step, with the collectives that ran beside them.

  Both are of one step of one rank, by start time.
  """
  first = 0
  for kernel, following in zip(kernels, [*kernels[1:], None], strict=True):
    while (
      first < len(collectives) and collectives[first].end_us <= kernel.begin_us
    ):
      first += 1
    common_us, collective = 0.0, ""
    for other in collectives[first:]:
      if other.begin_us >= kernel.end_us:
        break
      common_us, collective = max(
        (common_us, collective), (kernel.common_us(other), other.name)
      )
    yield KernelRun(
      name=kernel.name,
      time_us=kernel.time_us,
      gap_us=following.begin_us - kernel.end_us if following else None,
      collective=collective if common_us else "",
      share=common_us / kernel.time_us if kernel.time_us else 0.0,
    )
