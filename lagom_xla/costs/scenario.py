# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Scenarios of errors in the cost model, and the prices in them.

A scenario has a factor on the times of each part of the model; all are 1 in
`AS_PREDICTED`. `uncertainty.py` makes scenarios from the model's known errors,
and `step.Step.under` prices a step in one. `settings.py` has the effect of
errors in the predictions of settings.

Schedules of a step launch mostly the same kernels and collectives, so all steps
that are priced alike share their prices, which are computed once.
"""

from __future__ import annotations

import dataclasses
import functools

from lagom_xla import cluster as cluster_lib
from lagom_xla.costs import collective as collective_lib
from lagom_xla.costs import contention
from lagom_xla.costs import kernel as kernel_lib
from lagom_xla.costs import measured as measured_lib
from lagom_xla.costs import nccl
from lagom_xla.costs import settings
from lagom_xla.costs import xla_kernels
from lagom_xla.passes import kernels as kernels_lib

# Below this size, launches and noise of the host dominate the errors
# (docs/cost_model.md).
SMALL_BYTES = 64 * 1024


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Scenario:
  """Factors on the times of each part of the model.

  Attributes:
    name: its name in reports.
    part: the part with an error, as named in errors.json; "" for none.
    small_collectives: collectives of less than `SMALL_BYTES`; 0 makes them
      free.
    within_nodes: larger collectives that stay on NVLink or PCIe.
    between_nodes: larger collectives over the network.
    few_channels: time per channel, with fewer channels than NCCL would use.
    short_settings: algorithms, protocols and chunks that NCCL does not choose,
      for collectives with short parts.
    long_settings: `short_settings` for collectives with long parts.
    contention: losses of kernels and collectives to each other.
    products: matrix products.
    other_kernels: all other kernels.
    measured_kernels: kernels in a profile; replaces `products` and
      `other_kernels`.
    measured_collectives: collectives in a profile; replaces
      `small_collectives`, `within_nodes` and `between_nodes`.
    scattered_reads: reads across the order of memory, in other kernels.
    unmeasured: 0 if routes without any measurement (`routes.Route`) gain
      nothing, else 1.
  """

  name: str = "as predicted"
  part: str = ""
  small_collectives: float = 1.0
  within_nodes: float = 1.0
  between_nodes: float = 1.0
  few_channels: float = 1.0
  short_settings: float = 1.0
  long_settings: float = 1.0
  contention: float = 1.0
  products: float = 1.0
  other_kernels: float = 1.0
  measured_kernels: float = 1.0
  measured_collectives: float = 1.0
  scattered_reads: float = 1.0
  unmeasured: float = 1.0

  def of_collective(
    self, key: collective_lib.TuningKey, *, is_measured: bool
  ) -> float:
    """The factor on the time of a key's collectives with NCCL's choice."""
    if is_measured:
      return self.measured_collectives
    if is_small(key):
      return self.small_collectives
    return self.between_nodes if key.num_nodes > 1 else self.within_nodes


AS_PREDICTED = Scenario()
SURE = Scenario(
  name="unmeasured mechanisms gain nothing",
  part="unmeasured",
  unmeasured=0.0,
)


def is_small(key: collective_lib.TuningKey) -> bool:
  """Whether a key's collectives are too small to predict well."""
  return key.num_bytes < SMALL_BYTES


# Enough for the prices of one cluster in all scenarios.
_MAX_PRICES = 32


class Prices:
  """Costs on a cluster, in a scenario.

  Equal costs of kernels are the same object, which makes look-ups fast.
  """

  def __init__(
    self,
    cluster: cluster_lib.Cluster,
    measured: measured_lib.Measured | None,
    scenario: Scenario,
  ):
    self._cluster = cluster
    self._measured = measured
    self._scenario = scenario
    self._distinct: dict[kernel_lib.KernelCost, kernel_lib.KernelCost] = {}
    self.collective = functools.cache(self._collective)
    self.in_own_kernel = functools.cache(self._in_own_kernel)
    self.routed = functools.cache(self._routed)
    self.beside = functools.cache(self._beside)
    self.together = functools.cache(self._together)
    self.kernel_in_scenario = functools.cache(self._kernel_in_scenario)

  def kernel(self, kernel: kernels_lib.Kernel) -> kernel_lib.KernelCost:
    """Cost of a kernel alone, as predicted or measured."""
    cost = kernel_lib.predict(kernel, self._cluster.gpu)
    if self._measured is not None:
      cost = self._measured.kernel(kernel, cost)
    return self._distinct.setdefault(cost, cost)

  def _kernel_in_scenario(
    self, cost: kernel_lib.KernelCost, *, is_product: bool
  ) -> kernel_lib.KernelCost:
    """The cost of a kernel in the scenario, given its cost from `kernel`."""
    scenario = self._scenario
    factor = scenario.products if is_product else scenario.other_kernels
    more_us = (scenario.scattered_reads - 1) * cost.scattered_us
    if self._measured is not None and self._measured.knows_kernel(cost):
      factor, more_us = scenario.measured_kernels, 0.0
    if factor == 1 and not more_us:
      return cost
    return dataclasses.replace(
      cost,
      time_us=cost.time_us * factor + more_us,
      memory_us=cost.memory_us * factor,
      threads_us=cost.threads_us * factor,
    )

  def _collective(
    self, key: collective_lib.TuningKey, setting: nccl.Setting
  ) -> collective_lib.CollectiveCost:
    """Cost of a key's collective alone."""
    if self._scenario != AS_PREDICTED:
      return self._collective_in_scenario(key, setting)
    cost = collective_lib.predict(key, setting, self._cluster)
    if self._measured is not None and key not in self._measured.routed:
      cost = self._measured.collective(key, cost)
    return cost

  def _routed(
    self,
    key: collective_lib.TuningKey,
    predicted: collective_lib.CollectiveCost,
  ) -> collective_lib.CollectiveCost:
    """Cost alone of a collective to which no NCCL setting applies."""
    cost, measured = predicted, self._measured
    is_measured = False
    if measured is not None and key in measured.routed:
      cost = measured.collective(key, predicted)
      is_measured = measured.knows_collective(key)
    factor = self._scenario.of_collective(key, is_measured=is_measured)
    return _scaled(cost, factor)

  def _collective_in_scenario(
    self, key: collective_lib.TuningKey, setting: nccl.Setting
  ) -> collective_lib.CollectiveCost:
    scenario, predict = self._scenario, self._as_predicted.collective
    is_measured = self._measured is not None and (
      self._measured.knows_collective(key)
    )
    cost = predict(key, setting)
    if is_small(key) and not is_measured:
      return _scaled(cost, scenario.small_collectives)
    default = collective_lib.default_setting(key, self._cluster)
    time_us = cost.time_us
    if scenario.few_channels != 1 and settings.has_few_channels(
      key, setting, default, self._cluster
    ):
      time_us = settings.with_slow_channels_us(
        scenario.few_channels, key, setting, predict
      )
    is_long = settings.has_long_parts(key)
    other = scenario.long_settings if is_long else scenario.short_settings
    # NCCL's choice for a permute depends on the rest of its communicator.
    is_chosen = setting.algorithm != "p2p"
    if other != 1 and is_chosen and settings.is_other(setting, default):
      own = predict(
        key, settings.with_own_chunk(key, setting, default, self._cluster)
      )
      time_us = max(time_us, own.time_us) * other
      if _moved(own) > _moved(cost):
        cost = own
    time_us *= scenario.of_collective(key, is_measured=is_measured)
    return cost if time_us == cost.time_us else cost.lasting(time_us)

  def _in_own_kernel(
    self, key: collective_lib.TuningKey, kernel: xla_kernels.Kernel
  ) -> collective_lib.CollectiveCost:
    """Cost of a key's collective alone in one of XLA's own kernels.

    The errors of NCCL's model are assumed for these kernels as well.
    """
    scenario = self._scenario
    is_measured = self._measured is not None and (
      self._measured.knows_collective(key)
    )
    if scenario == AS_PREDICTED:
      cost = xla_kernels.predict(key, kernel, self._cluster)
      if self._measured is not None:
        cost = self._measured.in_own_kernel(key, cost)
      return cost
    cost = self._as_predicted.in_own_kernel(key, kernel)
    if is_measured:
      factor = scenario.measured_collectives
    elif is_small(key):
      factor = scenario.small_collectives
    else:
      factor = scenario.within_nodes
    return _scaled(cost, factor)

  def _beside(
    self,
    kernel: kernel_lib.KernelCost,
    collective: collective_lib.CollectiveCost,
  ) -> contention.Beside:
    """How much a kernel and a collective slow each other down."""
    if self._scenario == AS_PREDICTED:
      if self._measured is not None:
        return self._measured.beside(kernel, collective, self._cluster.gpu)
      return contention.beside(kernel, collective, self._cluster.gpu)
    found = self._as_predicted._beside(kernel, collective)
    factor = self._scenario.contention
    if factor == 1:
      return found
    lost_us = factor * (found.kernel_us - kernel.time_us)
    return dataclasses.replace(
      found,
      kernel_us=kernel.time_us + lost_us,
      collective_factor=1 + factor * (found.collective_factor - 1),
    )

  def _together(
    self, collectives: tuple[collective_lib.CollectiveCost, ...]
  ) -> contention.Together:
    """How much collectives of several streams slow each other down."""
    return contention.together(collectives, self._cluster.gpu)

  @functools.cached_property
  def _as_predicted(self) -> Prices:
    return of(self._cluster, self._measured, AS_PREDICTED)


def _moved(cost: collective_lib.CollectiveCost) -> float:
  return cost.memory_gbps * cost.time_us


@functools.lru_cache(maxsize=_MAX_PRICES)
def of(
  cluster: cluster_lib.Cluster,
  measured: measured_lib.Measured | None,
  scenario: Scenario,
) -> Prices:
  """The shared prices of all steps on a cluster that are priced alike."""
  return Prices(cluster, measured, scenario)


def _scaled(
  cost: collective_lib.CollectiveCost, factor: float
) -> collective_lib.CollectiveCost:
  """The cost with its time multiplied by `factor`; a cost of 0 for 0."""
  if not factor:
    return collective_lib.CollectiveCost(
      time_us=0.0, num_channels=0, memory_gbps=0.0
    )
  return cost if factor == 1 else cost.lasting(cost.time_us * factor)
