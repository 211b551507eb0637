# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Costs measured in a profile, in place of predictions.

    with measured.pricing(costs):
      step = step_lib.of_module(module, cluster)

A kernel costs its time alone in the profile. It is found by its name if the
kernel of that name does the same work, else by its work, because another
compile of the step renames kernels. A kernel that is not in the profile costs
its prediction, times the ratio of measured to predicted time of its category.
Collectives are found by their tuning key. Those not in the profile are scaled
by the ratio of their kind and reach. Settings that NCCL did not choose in the
profile are scaled like the one that it chose. A kernel's loss beside a
collective is the model's, times the ratio of measured to predicted loss of such
a pair. The uncertainty of measured costs is their spread over steps, and that
of all others the errors of the model (`uncertainty.py`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
import contextlib
import contextvars
import dataclasses
import functools
import itertools

from lagom_xla import cluster as cluster_lib
from lagom_xla.costs import collective as collective_lib
from lagom_xla.costs import contention
from lagom_xla.costs import kernel as kernel_lib
from lagom_xla.passes import kernels as kernels_lib

# Equal for kernels of equal work.
Work = tuple[object, ...]
# Kernels of equal work beside collectives of a key.
Pair = tuple[Work, collective_lib.TuningKey]
# A collective's kind, and whether it spans nodes.
Reach = tuple[str, bool]
# Factors that bound 90 % of the errors of a time, the larger one first.
Factors = tuple[float, float]


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Run:
  """The traced run in which costs were measured.

  Attributes:
    name: name of its first process.
    began_ns: start of its profile, since 1970; None if the profile has none.
    num_steps: whole steps in the trace, summed over devices.
    num_devices: number of traced devices.
  """

  name: str
  began_ns: int | None
  num_steps: int
  num_devices: int


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Measured:
  """Costs of kernels and collectives alone, from a profile.

  Attributes:
    kernel_us: run time of each kernel, without the gap after it, by its name.
    work_of: the work of each of these kernels, by its name.
    work_us: run time by work.
    categories: measured over predicted run time, by category of kernels.
    gap_us: gap between one kernel and the next; None if unknown.
    keys: measured over predicted time of collectives, by tuning key.
    reaches: measured over predicted time of collectives, by kind and reach.
    run: the traced run.
    routed: the `keys` to which NCCL's settings did not apply in the run.
    losses: measured over predicted loss of kernels beside collectives.
    kernel_factors: spread of a step's measured kernels around their costs here;
      None if the run is too short.
    collective_factors: `kernel_factors` for measured collectives; also None if
      their times may include waits for other ranks.
    step_factors: spread of the run's steps around their replay; None if the run
      is too short.
  """

  kernel_us: Mapping[str, float]
  work_of: Mapping[str, Work]
  work_us: Mapping[Work, float]
  categories: Mapping[str, float]
  gap_us: float | None
  keys: Mapping[collective_lib.TuningKey, float]
  reaches: Mapping[Reach, float]
  run: Run
  routed: frozenset[collective_lib.TuningKey] = frozenset()
  losses: Mapping[Pair, float] = dataclasses.field(default_factory=dict)
  kernel_factors: Factors | None = None
  collective_factors: Factors | None = None
  step_factors: Factors | None = None

  def knows_kernel(self, cost: kernel_lib.KernelCost) -> bool:
    """Whether a cost from `kernel` is measured, with a known spread."""
    return cost.source == "measured" and self.kernel_factors is not None

  def knows_collective(self, key: collective_lib.TuningKey) -> bool:
    """Whether a key's collectives are measured, with a known spread."""
    return key in self.keys and self.collective_factors is not None

  def beside(
    self,
    kernel: kernel_lib.KernelCost,
    collective: collective_lib.CollectiveCost,
    gpu: cluster_lib.Gpu,
  ) -> contention.Beside:
    """The slowdown of a kernel and a collective by each other.

    The costs must be from `self.kernel` and `self.collective`.
    """
    pair = kernel.pairing, collective.pairing
    return contention.beside(
      kernel, collective, gpu, slowdown_scale=self._losses.get(pair, 1.0)
    )

  # Works and keys of pairs as integers, which hash faster.
  @functools.cached_property
  def _numbers(self) -> Mapping[Work | collective_lib.TuningKey, int]:
    parts = itertools.chain.from_iterable(self.losses)
    return {part: n for n, part in enumerate(dict.fromkeys(parts))}

  @functools.cached_property
  def _losses(self) -> Mapping[tuple[int | None, int | None], float]:
    number = self._numbers
    return {(number[w], number[k]): x for (w, k), x in self.losses.items()}

  def kernel(
    self, kernel: kernels_lib.Kernel, predicted: kernel_lib.KernelCost
  ) -> kernel_lib.KernelCost:
    """The cost of a kernel alone, given its prediction."""
    work = work_of(kernel)
    run_us = self.work_us.get(work)
    if self.work_of.get(kernel.name) == work:
      run_us = self.kernel_us[kernel.name]
    source = "measured"
    if run_us is None:
      run_us = predicted.run_us * self.categories.get(kernel.category, 1.0)
      source = predicted.source
    gap_us = predicted.gap_us if self.gap_us is None else self.gap_us
    factor = run_us / predicted.run_us if predicted.run_us else 1.0
    return dataclasses.replace(
      predicted,
      time_us=run_us + gap_us,
      gap_us=gap_us,
      memory_us=predicted.memory_us * min(factor, 1.0),
      threads_us=predicted.threads_us * factor,
      source=source,
      pairing=self._numbers.get(work),
    )

  def collective(
    self,
    key: collective_lib.TuningKey,
    predicted: collective_lib.CollectiveCost,
  ) -> collective_lib.CollectiveCost:
    """The cost of a key's collective alone, given its prediction."""
    reach = (key.kind, key.num_nodes > 1)
    factor = self.keys.get(key, self.reaches.get(reach, 1.0))
    return self._scaled(key, predicted, factor)

  def in_own_kernel(
    self,
    key: collective_lib.TuningKey,
    predicted: collective_lib.CollectiveCost,
  ) -> collective_lib.CollectiveCost:
    """The cost in one of XLA's own kernels, which `reaches` do not cover."""
    return self._scaled(key, predicted, self.keys.get(key, 1.0))

  def _scaled(
    self,
    key: collective_lib.TuningKey,
    predicted: collective_lib.CollectiveCost,
    factor: float,
  ) -> collective_lib.CollectiveCost:
    # The bytes stay the same.
    return dataclasses.replace(
      predicted,
      time_us=predicted.time_us * factor,
      memory_gbps=predicted.memory_gbps / factor,
      pairing=self._numbers.get(key),
    )


_pricing: contextvars.ContextVar[Measured | None] = contextvars.ContextVar(
  "_pricing", default=None
)


@contextlib.contextmanager
def pricing(measured: Measured | None) -> Iterator[None]:
  """Prices all steps that are created inside by measured costs.

  A search creates steps in many places, and must price all of them alike to
  compare them.
  """
  token = _pricing.set(measured)
  try:
    yield
  finally:
    _pricing.reset(token)


def now_pricing() -> Measured | None:
  """The measured costs that price new steps; None for predictions."""
  return _pricing.get()


def work_of(kernel: kernels_lib.Kernel) -> Work:
  """The work of a kernel; equal for kernels of equal work."""
  return (
    kernel.category,
    kernel.pattern,
    kernel.flops,
    kernel.num_bytes,
    kernel.num_element_operations,
    kernel.result_elements,
    kernel.matrix_shape,
    kernel.arithmetic,
  )
