# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""The cost estimates that XLA's scheduler uses.

XLA schedules by its speed-of-light estimates, and writes them into the module
when asked to (`compiler.ESTIMATES`): for matrix products, for loop and
input fusions, for collectives. For the rest it has constants.
Collectives without an estimate, among them all that a prediction makes, get
one from their size and the estimates of others with the same groups. Modules
without any estimate are scheduled by this package's own lone costs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
import dataclasses
import functools
import itertools
import math

from lagom_xla import cluster as cluster_lib
from lagom_xla.costs import collective as collective_lib
from lagom_xla.costs import step as step_lib
from lagom_xla.passes import collectives as collectives_lib
from lagom_xla.passes import hlo
from lagom_xla.passes import kernels
from lagom_xla.passes import overlap as overlap_lib
from lagom_xla.xla_schedule import nodes
from lagom_xla.xla_schedule import streams

# Constants of XLA's estimators, in microseconds (SolLatencyEstimator::NodeCost
# in xla/service/gpu/model/sol_latency_estimator.cc: a hundredth of what
# ApproximateLatencyEstimator and GpuLatencyEstimator say).
_PAIR_US = 1.0
_CUSTOM_CALL_US = 10.0
_OUTPUT_FUSION_US = 50.0
_OTHER_US = 0.01
# What asynchronous copies and computations are taken to need (kHighLatency).
_ASYNC_US = 5000.0

_POINT_TO_POINT = ("send", "send-done", "recv", "recv-done")
_GEMM_FUSIONS = ("__triton_gemm", "__triton_nested_gemm", "__cublas", "__cudnn")

# Moving the same bytes through the same ring, if only the other way round.
_SIBLINGS = {"all-gather": "reduce-scatter", "reduce-scatter": "all-gather"}

_Group = tuple[str, int, int]
_Points = Sequence[tuple[int, float]]


@dataclasses.dataclass(frozen=True, eq=False)
class Estimates:
  """XLA's estimates of a module, for predictions that start from it.

  Attributes:
    module: as XLA scheduled it.
    cluster: what it was compiled for.
  """

  module: hlo.Module
  cluster: cluster_lib.Cluster

  def costs(self, module: hlo.Module) -> nodes.Costs:
    """The costs of a module that was predicted from this one.

    Args:
      module: this module, or what became of it.
    """
    analysis = overlap_lib.analyze(module)
    started = {c.start_id: c for c in analysis.collectives}
    # XLA knows of no profile.
    lone = step_lib.Step(analysis, self.cluster, measured=None)
    paired = {
      id_
      for computation in analysis.sequences
      for start in computation.instructions
      for collective in analysis.started_by.get(start.id, ())
      if not streams.is_own_kernel(module, start)
      for id_ in (collective.start_id, collective.done_id)
    }

    def latency_us(start: hlo.Instruction) -> float:
      collective = started.get(start.id)
      return self.collective_us(collective) if collective else _ASYNC_US

    def cost_us(instruction: hlo.Instruction) -> float:
      opcode = instruction.opcode
      if opcode in collectives_lib.NOPS:
        return 0.0
      if instruction.id in paired or opcode in _POINT_TO_POINT:
        return _PAIR_US
      if opcode.endswith(("-start", "-done")):
        return _OTHER_US
      if self._has_estimates:
        return self._kernel_us(instruction)
      kernel = analysis.kernels.get(instruction.id)
      return lone.kernel_cost(kernel).time_us if kernel else _OTHER_US

    return nodes.Costs(cost_us=cost_us, latency_us=latency_us)

  def collective_us(self, collective: collectives_lib.Collective) -> float:
    """XLA's estimate of a collective, or one made from those of others."""
    group = _group(collective)
    num_bytes = collective.nccl_bytes
    points = self._known.get(group)
    if points is None and collective.kind in _SIBLINGS:
      points = self._known.get((_SIBLINGS[collective.kind], *group[1:]))
    if not points or not num_bytes:
      return self._lone_us(collective, num_bytes)
    for (low, low_us), (high, high_us) in itertools.pairwise(points):
      if low <= num_bytes <= high:
        share = math.log(num_bytes / low) / math.log(high / low)
        return low_us * (high_us / low_us) ** share
    nearest, nearest_us = points[0] if num_bytes <= points[0][0] else points[-1]
    lone_us = self._lone_us(collective, num_bytes)
    known_us = self._lone_us(collective, nearest)
    return nearest_us * lone_us / known_us

  def _lone_us(
    self, collective: collectives_lib.Collective, num_bytes: int
  ) -> float:
    """This package's own prediction, for any number of bytes."""
    key = collective_lib.tuning_key(collective, self.cluster)
    key = dataclasses.replace(key, num_bytes=num_bytes)
    setting = collective_lib.default_setting(key, self.cluster)
    return collective_lib.predict(key, setting, self.cluster).time_us

  @functools.cached_property
  def _known(self) -> Mapping[_Group, _Points]:
    """(bytes, us) of the collectives with an estimate, by size."""
    known: dict[_Group, dict[int, float]] = {}
    starts = {c.start_id: c for c in collectives_lib.find(self.module)}
    for computation in self.module.computations.values():
      for instruction in computation.instructions:
        collective = starts.get(instruction.id)
        if collective is None or not collective.nccl_bytes:
          continue
        time_us = _collective_sol_us(self.module, instruction)
        if time_us:
          by_size = known.setdefault(_group(collective), {})
          by_size[collective.nccl_bytes] = time_us
    return {group: sorted(sizes.items()) for group, sizes in known.items()}

  @functools.cached_property
  def _has_estimates(self) -> bool:
    return any(
      _sol_us(self.module, instruction) is not None
      for computation_id in self.module.executions
      for instruction in self.module.computations[computation_id].instructions
      if instruction.opcode == "fusion"
    )

  def _kernel_us(self, instruction: hlo.Instruction) -> float:
    """What XLA's scheduler takes a kernel to need.

    No change gives a kernel another config, so it is read once.
    """
    if instruction.opcode == "convolution":
      return _OUTPUT_FUSION_US
    if instruction.opcode not in ("fusion", "custom-call"):
      return _OTHER_US
    known = (
      instruction.opcode,
      instruction.fusion_kind,
      self.module.raw_backend_config(instruction),
    )
    if known not in self._kernels_us:
      self._kernels_us[known] = self._read_us(instruction)
    return self._kernels_us[known]

  @functools.cached_property
  def _kernels_us(self) -> dict[tuple[object, ...], float]:
    return {}

  def _read_us(self, instruction: hlo.Instruction) -> float:
    """The same for a fusion or a library call, by its config."""
    config = self.module.backend_config(instruction)
    time_us = kernels.sol_time_us(config)
    if instruction.opcode == "custom-call":
      return time_us or _CUSTOM_CALL_US
    kind = config.get("fusion_backend_config", {}).get("kind", "")
    is_known = instruction.fusion_kind in ("kLoop", "kInput")
    if time_us is not None and (is_known or kind.startswith(_GEMM_FUSIONS)):
      return time_us
    is_output = instruction.fusion_kind == "kOutput"
    return _OUTPUT_FUSION_US if is_output else _OTHER_US


def _sol_us(module: hlo.Module, instruction: hlo.Instruction) -> float | None:
  return kernels.sol_time_us(module.backend_config(instruction))


def _collective_sol_us(
  module: hlo.Module, start: hlo.Instruction
) -> float | None:
  """XLA's estimate of a collective, written where its opcode stands."""
  for _, inside in collectives_lib.payloads(module, start):
    return _sol_us(module, inside)
  return _sol_us(module, start)


def _group(collective: collectives_lib.Collective) -> _Group:
  return collective.kind, collective.group_size, collective.num_groups
