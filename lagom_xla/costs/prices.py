# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Prices of kernels, collectives and pairs of them, each asked for once.

Most of what a schedule launches is in other schedules of the step, too, so all
steps that are priced alike share what the models said.
"""

from __future__ import annotations

import functools

from lagom_xla import cluster as cluster_lib
from lagom_xla.costs import collective as collective_lib
from lagom_xla.costs import contention
from lagom_xla.costs import kernel as kernel_lib
from lagom_xla.costs import measured as measured_lib
from lagom_xla.costs import nccl
from lagom_xla.costs import scenario as scenario_lib
from lagom_xla.passes import kernels as kernels_lib

# Prices that are kept: those of one cluster in all scenarios.
_MAX_PRICES = 32


class Prices:
  """What the models say on a cluster, in a scenario.

  Equal costs of kernels are one object, which is quick to find again.
  """

  def __init__(
    self,
    cluster: cluster_lib.Cluster,
    measured: measured_lib.Measured | None,
    scenario: scenario_lib.Scenario,
  ):
    self._cluster = cluster
    self._measured = measured
    self._scenario = scenario
    self._distinct: dict[kernel_lib.KernelCost, kernel_lib.KernelCost] = {}
    self.collective = functools.cache(self._collective)
    self.beside = functools.cache(self._beside)
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
    """What becomes of that in the scenario."""
    return scenario_lib.kernel_cost(
      self._scenario,
      cost,
      is_product=is_product,
      is_measured=self._measured is not None
      and self._measured.knows_kernel(cost),
    )

  def _collective(
    self, key: collective_lib.TuningKey, setting: nccl.Setting
  ) -> collective_lib.CollectiveCost:
    """Cost of a key's collective alone."""
    if self._scenario != scenario_lib.AS_PREDICTED:
      return scenario_lib.collective_cost(
        self._scenario,
        key,
        setting,
        collective_lib.default_setting(key, self._cluster),
        self._cluster,
        self._as_predicted.collective,
        is_measured=self._measured is not None
        and self._measured.knows_collective(key),
      )
    cost = collective_lib.predict(key, setting, self._cluster)
    if self._measured is not None:
      cost = self._measured.collective(key, cost)
    return cost

  def _beside(
    self,
    kernel: kernel_lib.KernelCost,
    collective: collective_lib.CollectiveCost,
  ) -> contention.Beside:
    """What a kernel and a collective do to each other."""
    if self._scenario != scenario_lib.AS_PREDICTED:
      found = self._as_predicted._beside(kernel, collective)
      return scenario_lib.beside(self._scenario, kernel, found)
    if self._measured is not None:
      return self._measured.beside(kernel, collective, self._cluster.gpu)
    return contention.beside(kernel, collective, self._cluster.gpu)

  @functools.cached_property
  def _as_predicted(self) -> Prices:
    return of(self._cluster, self._measured, scenario_lib.AS_PREDICTED)


@functools.lru_cache(maxsize=_MAX_PRICES)
def of(
  cluster: cluster_lib.Cluster,
  measured: measured_lib.Measured | None,
  scenario: scenario_lib.Scenario,
) -> Prices:
  """The prices that all steps share that are priced so."""
  return Prices(cluster, measured, scenario)
