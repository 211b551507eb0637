# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Events of a step: runs of instructions, and the collectives beside them.

A kernel is lone if no collective ran at the same time. Only then is its time
its cost. Otherwise the trace shows its loss to the collective.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
import dataclasses


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Event:
  """One run of an instruction; times count from the start of the trace.

  Attributes:
    name: the instruction's name.
    begin_us: start of its first kernel.
    end_us: end of its last kernel.
    num_blocks: thread blocks of its largest kernel, in a NCCL kernel its
      channels; None if unknown.
  """

  name: str
  begin_us: float
  end_us: float
  num_blocks: int | None = None

  @property
  def time_us(self) -> float:
    """Its duration in microseconds."""
    return self.end_us - self.begin_us

  def common_us(self, other: Event) -> float:
    """The time that it overlaps another event, in microseconds."""
    begin_us = max(self.begin_us, other.begin_us)
    return max(min(self.end_us, other.end_us) - begin_us, 0.0)


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class KernelRun:
  """One run of a kernel.

  Attributes:
    name: the kernel's name.
    time_us: its duration.
    gap_us: time from its end to the next kernel's start, negative if they
      overlap; None for the last kernel of a step.
    collective: the collective that overlapped it longest; "" for none.
    share: share of its time that the collective overlapped, 0 to 1.
  """

  name: str
  time_us: float
  gap_us: float | None
  collective: str
  share: float

  @property
  def is_lone(self) -> bool:
    """Whether no collective overlapped it."""
    return not self.share


def kernel_runs(
  kernels: Sequence[Event], collectives: Sequence[Event]
) -> Iterator[KernelRun]:
  """The kernels of a step, with the collectives that overlapped them.

  Both arguments are of one step of one rank, by start time.
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
