# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Parts of replays, random programs, and costs without a model.

Kernel "k40" takes 40 us alone, collective "c50" 50 us, copy "h60" 60 us.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
import itertools

from hypothesis import strategies as st

from lagom_xla.costs import collective as collective_lib
from lagom_xla.costs import contention
from lagom_xla.costs import kernel as kernel_lib
from lagom_xla.costs.replay import program as program_lib
from lagom_xla.costs.replay import timeline
from lagom_xla.passes import collectives as collectives_lib
from lagom_xla.passes import copies
from lagom_xla.passes import kernels as kernels_lib


def kernel(name: str) -> kernels_lib.Kernel:
  return kernels_lib.Kernel(
    name=name,
    category="gemm",
    computation="main",
    instruction_id=0,
    executions=1,
    flops=0,
    num_bytes=0,
    element_type="bf16",
    result_elements=1,
    matrix_shape=None,
    backend_config={},
  )


def collective(
  name: str, stream: str = collectives_lib.COMMUNICATION
) -> collectives_lib.Collective:
  return collectives_lib.Collective(
    name=name,
    kind="all-gather",
    form="async",
    computation="main",
    start_id=0,
    done_id=None,
    num_operands=1,
    operand_bytes=1,
    result_bytes=8,
    array_bytes=(8,),
    element_type="bf16",
    groups=(),
    pairs=(),
    executions=1,
    is_pipelined=False,
    stream=stream,
  )


def copy(name: str, stream: str = "to host") -> copies.Copy:
  return copies.Copy(
    name=name,
    to_host=True,
    computation="main",
    start_id=0,
    done_id=None,
    num_bytes=1,
    stream=stream,
    executions=1,
  )


def costs(
  *,
  slowdown: float = 2.0,
  collective_factor: float = 1.0,
  wait_us: float = 0.0,
) -> timeline.Costs:
  """Times by name, with fixed slowdowns of kernels and collectives."""

  def beside(
    k: kernel_lib.KernelCost, moving: collective_lib.CollectiveCost
  ) -> contention.Beside:
    is_copy = not moving.num_channels
    return contention.Beside(
      kernel_us=k.time_us * (1.1 if is_copy else slowdown),
      collective_factor=1.0 if is_copy else collective_factor,
      wait_us=0.0 if is_copy else wait_us,
    )

  return costs_by_name(beside)


def slowing(
  slowdown: Callable[[float, float], float],
  *,
  collective_factor: float = 1.0,
  wait_us: float = 0.0,
) -> timeline.Costs:
  """Times by name; `slowdown` takes a kernel's and a collective's time."""
  return costs_by_name(
    lambda kernel, collective: contention.Beside(
      kernel_us=kernel.time_us * slowdown(kernel.time_us, collective.time_us),
      collective_factor=collective_factor,
      wait_us=wait_us,
    )
  )


def costs_by_name(beside: timeline.Beside) -> timeline.Costs:
  """Times by name; `beside` gives the effect of two on each other."""

  def moved(name: str, num_channels: int) -> collective_lib.CollectiveCost:
    return collective_lib.CollectiveCost(
      time_us=float(name[1:]), num_channels=num_channels, memory_gbps=0.0
    )

  return timeline.Costs(
    kernel=lambda k: kernel_lib.KernelCost(
      time_us=float(k.name[1:]),
      memory_us=0.0,
      num_blocks=1,
      blocks_per_sm=1,
      source="measured",
    ),
    collective=lambda c: moved(c.name, 4),
    copy=lambda c: moved(c.name, 0),
    beside=beside,
    together=sharing,
  )


def sharing(
  costs: tuple[collective_lib.CollectiveCost, ...],
) -> contention.Together:
  """Collectives that only share the SMs of the kernel beside them."""
  return contention.Together(cost=costs[0], factors=(1.0,) * len(costs))


@st.composite
def programs(
  draw: st.DrawFn,
  depth: int = 2,
  ids: Iterator[int] | None = None,
  streams: Sequence[str] = (collectives_lib.COMMUNICATION,),
) -> program_lib.Program:
  """Kernels, collectives, copies and loops, each started before its wait.

  The next trip of a loop may wait for a start, or nothing may. Names are
  unique, as in a module.
  """
  ids = ids or itertools.count(1)
  parts: list[program_lib.Part] = []
  for _ in range(draw(st.integers(1, 6))):
    number = f"{draw(st.integers(1, 90))}.{next(ids)}"
    choice = draw(st.sampled_from("kkssswwhHl" if depth else "kkssswwhH"))
    if choice == "k":
      parts.append(program_lib.Launch(kernel(f"k{number}")))
    elif choice == "s":
      stream = draw(st.sampled_from(streams))
      parts.append(program_lib.Start(collective(f"c{number}", stream)))
    elif choice == "h":
      parts.append(program_lib.StartCopy(copy(f"h{number}")))
    elif choice == "l":
      body = draw(programs(depth - 1, ids, streams))
      parts.append(program_lib.Loop(body, draw(st.integers(1, 9))))
    else:
      started = [p for p in parts if isinstance(p, program_lib.Start)]
      copied = [p for p in parts if isinstance(p, program_lib.StartCopy)]
      if choice == "w" and started:
        parts.append(
          program_lib.Wait(draw(st.sampled_from(started)).collective)
        )
      if choice == "H" and copied:
        parts.append(program_lib.WaitCopy(draw(st.sampled_from(copied)).copy))
  return tuple(parts)
