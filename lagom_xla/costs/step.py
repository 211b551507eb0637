# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""A scheduled step with the cost of each of its parts on a cluster.

A step joins a module, a cluster and the cost models. It replays its timeline
under a configuration of NCCL settings. `Step.under` prices the step with an
error in one part of the models. `measured.pricing` prices steps by the costs in
a profile.
"""

from __future__ import annotations

import collections
from collections.abc import Iterator, Mapping, Sequence
import dataclasses
import functools

from lagom_xla import cluster as cluster_lib
from lagom_xla.costs import collective as collective_lib
from lagom_xla.costs import kernel as kernel_lib
from lagom_xla.costs import measured as measured_lib
from lagom_xla.costs import nccl
from lagom_xla.costs import routes as routes_lib
from lagom_xla.costs import scenario as scenario_lib
from lagom_xla.costs import settings
from lagom_xla.costs import xla_kernels
from lagom_xla.costs.replay import program as program_lib
from lagom_xla.costs.replay import timeline as timeline_lib
from lagom_xla.passes import collectives as collectives_lib
from lagom_xla.passes import copies as copies_lib
from lagom_xla.passes import hlo
from lagom_xla.passes import kernels as kernels_lib
from lagom_xla.passes import library_calls
from lagom_xla.passes import overlap as overlap_lib

Key = collective_lib.TuningKey
Configuration = Mapping[Key, nccl.Setting]

# Cached attributes that are equal in all scenarios.
_SHARED = (
  *("program", "key_of", "keys", "own_kernels", "default", "routes"),
  "_modeled",
)


@dataclasses.dataclass(frozen=True, eq=False)
class Step:
  """A scheduled step with its predicted costs on a cluster.

  Attributes:
    analysis: the step's module.
    cluster: the cluster that it runs on.
    kernels_from: another step of the analysis, whose kernel costs it reuses;
      None to price kernels anew.
    scenario: the assumed error of the cost models.
    measured: measured costs of a profile, which replace predicted ones; None if
      all are predicted.
    max_channels: XLA's cap on NCCL's channels for collectives; None for none.
    switches: XLA's own kernels that may run.
    asked: other effects of XLA's options on the process that runs it.
  """

  analysis: overlap_lib.Analysis
  cluster: cluster_lib.Cluster
  kernels_from: Step | None = None
  scenario: scenario_lib.Scenario = scenario_lib.AS_PREDICTED
  measured: measured_lib.Measured | None = dataclasses.field(
    default_factory=measured_lib.now_pricing
  )
  max_channels: int | None = None
  switches: xla_kernels.Switches = xla_kernels.AS_BY_DEFAULT
  asked: routes_lib.Asked = routes_lib.NOTHING

  def asking(self, asked: routes_lib.Asked) -> Step:
    """The step under other `asked`."""
    if asked == self.asked:
      return self
    return dataclasses.replace(self, kernels_from=self, asked=asked)

  def capped(self, max_channels: int | None) -> Step:
    """The step under another cap on channels; None for no cap."""
    if max_channels == self.max_channels:
      return self
    return dataclasses.replace(
      self, kernels_from=self, max_channels=max_channels
    )

  def compiled_as(self, analysis: overlap_lib.Analysis) -> Step:
    """The step of another module that runs in the same way."""
    return dataclasses.replace(self, analysis=analysis, kernels_from=None)

  def may_differ(self, scenario: scenario_lib.Scenario) -> bool:
    """Whether the scenario can change any cost of the step."""
    if not scenario.unmeasured:
      return bool(self.unmeasured)
    if scenario.scattered_reads != 1:
      return any(cost.scattered_us for cost in self._modeled.values())
    return True

  def under(self, scenario: scenario_lib.Scenario) -> Step:
    """The step priced in a scenario."""
    if scenario is self.scenario:
      return self
    if scenario not in self._under:
      step = dataclasses.replace(self, scenario=scenario)
      vars(step).update((name, getattr(self, name)) for name in _SHARED)
      self._under[scenario] = step
    return self._under[scenario]

  @functools.cached_property
  def _under(self) -> dict[scenario_lib.Scenario, Step]:
    return {}

  @functools.cached_property
  def on_one_stream(self) -> Step:
    """The step with all its collectives on one stream."""
    collectives = tuple(
      dataclasses.replace(c, stream=collectives_lib.COMMUNICATION)
      for c in self.analysis.collectives
    )
    analysis = dataclasses.replace(self.analysis, collectives=collectives)
    return dataclasses.replace(self, analysis=analysis, kernels_from=self)

  @property
  def basis(self) -> str:
    """The basis of its times, as reports print it."""
    if self.measured is None:
      return "predicted"
    return "predicted from measured costs"

  @functools.cached_property
  def program(self) -> program_lib.Program:
    """The schedule of the whole step."""
    return program_lib.of_module(self.analysis)

  @functools.cached_property
  def key_of(self) -> Mapping[str, Key]:
    """Tuning keys by collective name."""
    return {
      c.name: collective_lib.tuning_key(c, self.cluster)
      for c in self.analysis.collectives
    }

  @functools.cached_property
  def keys(self) -> tuple[Key, ...]:
    """The step's tuning keys, sorted."""
    return tuple(sorted(set(self.key_of.values())))

  @functools.cached_property
  def default(self) -> Configuration:
    """NCCL's own choice for every key, under XLA's cap if there is one."""
    return {
      key: self._limited(
        key,
        collective_lib.default_setting(
          key, self.cluster, among=self.permuting.get(key)
        ),
      )
      for key in self.keys
    }

  @functools.cached_property
  def permuting(self) -> Mapping[Key, nccl.Communicator]:
    """Communicators of permutes, sends and receives, if larger than the key's.

    They have all devices, which leaves each pair few channels. With an option,
    permutes instead have communicators of only the devices that their pairs
    connect (xla/backends/gpu/runtime/collective_permute_thunk.cc).
    """
    talking = [key for key in self.keys if key.kind == "collective-permute"]
    devices = range(self._num_devices if talking else 1)
    whole = nccl.Communicator(
      num_ranks=len(devices), num_nodes=self.cluster.num_nccl_nodes_of(devices)
    )
    apart = {"collective-permute"} if self.asked.permutes_apart else set()
    return {
      key: whole
      for c in self.analysis.collectives
      if (key := self.key_of[c.name]).kind == "collective-permute"
      and c.kind not in apart
      and key.num_ranks < whole.num_ranks
    }

  @functools.cached_property
  def permuting_apart(self) -> Step | None:
    """The step with permutes in communicators of only the connected devices.

    None if that is not faster, or if a permute leaves devices out: XLA may then
    wait for those forever (openxla/xla#44530).
    """
    permutes = [
      c for c in self.analysis.collectives if c.kind == "collective-permute"
    ]
    if any(sum(map(len, c.groups)) != self._num_devices for c in permutes):
      return None
    apart = self.asking(dataclasses.replace(self.asked, permutes_apart=True))
    is_faster = any(
      apart.predict(key, apart.default[key]).time_us
      < self.predict(key, self.default[key]).time_us
      for key in {self.key_of[c.name] for c in permutes}
    )
    return apart if is_faster else None

  @property
  def _num_devices(self) -> int:
    return collectives_lib.num_devices(self.analysis.module) or 1

  @functools.cached_property
  def own_kernels(self) -> Mapping[str, xla_kernels.Kernel]:
    """XLA's own kernels that run collectives, by the collective's name."""
    found = {}
    for collective in self.analysis.collectives:
      kernel = xla_kernels.of(collective, self.cluster, self.switches)
      if kernel is not None:
        found[collective.name] = kernel
    return found

  @functools.cached_property
  def by_xla(self) -> Mapping[Key, xla_kernels.Kernel]:
    """XLA's own kernels by key, for keys whose collectives all run in one."""
    found = {}
    for name, key in self.key_of.items():
      if name in self.own_kernels:
        found[key] = self.own_kernels[name]
    for name, key in self.key_of.items():
      if name not in self.own_kernels:
        found.pop(key, None)
    return found

  @functools.cached_property
  def unknown_calls(self) -> Mapping[str, str]:
    """Kernel -> its library call, for calls whose cost has only their bytes."""
    found = {}
    for instruction, call in self._calls():
      kernel = self.analysis.kernels[instruction.id]
      if kernel.category not in ("other", "fusion"):
        continue
      if self.kernel_cost(kernel).source == "measured":
        continue
      if call is None:  # XLA has its own instruction for cuFFT.
        found[instruction.name] = instruction.opcode
      elif not library_calls.takes_its_bytes(call):
        found[instruction.name] = call.custom_call_target
    return found

  @functools.cached_property
  def calls_that_may_communicate(self) -> Mapping[str, str]:
    """Kernel -> its library call, for calls that may hold collectives."""
    module = self.analysis.module
    if self._num_devices == 1:
      return {}
    return {
      instruction.name: call.custom_call_target
      for instruction, call in self._calls()
      if call is not None and library_calls.may_communicate(module, call)
    }

  def _calls(
    self,
  ) -> Iterator[tuple[hlo.Instruction, hlo.Instruction | None]]:
    """Kernels that are library calls, with the call; None for cuFFT."""
    module, kernels = self.analysis.module, self.analysis.kernels
    for computation_id in module.executions:
      for instruction in module.computations[computation_id].instructions:
        if instruction.id not in kernels:
          continue
        call = library_calls.of_instruction(module, instruction)
        if call is not None or instruction.opcode == "fft":
          yield instruction, call

  @functools.cached_property
  def keyed(self) -> Sequence[tuple[Key, collectives_lib.Collective]]:
    """The collectives, each with its key."""
    return [(self.key_of[c.name], c) for c in self.analysis.collectives]

  @functools.cached_property
  def routes(self) -> Mapping[Key, routes_lib.Route]:
    """Keys whose collectives leave NCCL before it asks a tuner."""
    return routes_lib.of_step(
      [pair for pair in self.keyed if pair[1].name not in self.own_kernels],
      self.cluster,
      self.asked,
      self.max_channels,
      self._num_devices,
    )

  @functools.cached_property
  def unmeasured(self) -> frozenset[Key]:
    """Keys whose routes were measured neither in public nor in the profile."""
    return frozenset(
      key
      for key, route in self.routes.items()
      if not route.is_measured
      and not (self.measured and self.measured.knows_collective(key))
    )

  def run_by(self, collective: collectives_lib.Collective) -> routes_lib.RunBy:
    """The kind of kernel or engine that runs a collective."""
    if collective.name in self.own_kernels:
      return "XLA kernel"
    route = self.routes.get(self.key_of[collective.name])
    return route.by if route else "NCCL"

  def run_otherwise(self) -> Iterator[tuple[str, routes_lib.RunBy, int]]:
    """(kind, `run_by`, SMs) of each collective that NCCL does not tune."""
    for collective in self.analysis.collectives:
      if (by := self.run_by(collective)) != "NCCL":
        yield collective.kind, by, self.num_sms(collective)

  def num_sms(self, collective: collectives_lib.Collective) -> int:
    """SMs that a collective takes under NCCL's own choice."""
    setting = self.default[self.key_of[collective.name]]
    return self.cost_of(collective, setting).num_channels

  @functools.cached_property
  def untuned(self) -> frozenset[Key]:
    """Keys to which no NCCL setting applies."""
    return frozenset(self.by_xla) | frozenset(self.routes)

  def _limited(self, key: Key, setting: nccl.Setting) -> nccl.Setting:
    if self.max_channels is None or key in self.untuned:
      return setting
    return settings.by_option(key, setting, self.max_channels)

  def timeline(self, configuration: Configuration) -> timeline_lib.Timeline:
    """Replays the whole step."""
    return timeline_lib.replay(self.program, self.costs(configuration))

  def kernel_cost(self, kernel: kernels_lib.Kernel) -> kernel_lib.KernelCost:
    """Cost of a kernel of this step alone."""
    return self._kernel_costs[kernel.instruction_id]

  @functools.cached_property
  def _kernel_costs(self) -> Mapping[int, kernel_lib.KernelCost]:
    if self.scenario is scenario_lib.AS_PREDICTED:
      return self._modeled
    kernels = self.analysis.kernels
    return {
      id_: self.prices.kernel_in_scenario(
        cost, is_product=kernels[id_].category == "gemm"
      )
      for id_, cost in self._modeled.items()
    }

  @functools.cached_property
  def _modeled(self) -> Mapping[int, kernel_lib.KernelCost]:
    if self.kernels_from is not None:
      return self.kernels_from._modeled
    return {
      id_: self.prices.kernel(kernel)
      for id_, kernel in self.analysis.kernels.items()
    }

  def predict(
    self, key: Key, setting: nccl.Setting
  ) -> collective_lib.CollectiveCost:
    """Cost of a key's collective alone, under XLA's cap if there is one.

    Settings do not affect collectives that take another route.
    """
    if (kernel := self.by_xla.get(key)) is not None:
      return self.prices.in_own_kernel(key, kernel)
    if route := self.routes.get(key):
      routed = self.prices.routed(key, route.cost)
      if self.scenario.unmeasured or key not in self.unmeasured:
        return routed
      by_nccl = self.prices.collective(key, self.default[key])
      return max(routed, by_nccl, key=lambda cost: cost.time_us)
    return self.prices.collective(key, self._limited(key, setting))

  def cost_of(
    self, collective: collectives_lib.Collective, setting: nccl.Setting
  ) -> collective_lib.CollectiveCost:
    """Cost of a collective alone, or of its part of a group's launch."""
    key = self.key_of[collective.name]
    if (kernel := self.own_kernels.get(collective.name)) is not None:
      return self.prices.in_own_kernel(key, kernel)
    cost = self.predict(key, setting)
    if not collective.grouped_bytes or key in self.routes or not cost.time_us:
      return cost
    return cost.lasting(
      cost.time_us * self._part_of_launch(collective, setting)
    )

  def _part_of_launch(
    self, collective: collectives_lib.Collective, setting: nccl.Setting
  ) -> float:
    """Time of a collective in a group over its time alone, at most 1.

    NCCL runs a group in one launch, whose channels divide all arrays by their
    bytes (scheduleCollTasksToPlan in NCCL's src/enqueue.cc). Collectives of one
    kind and type act as one. Those of several kinds run concurrently, rings and
    trees apart from the switch, so only the longest latency of each counts.
    """
    prices = scenario_lib.of(self.cluster, None, scenario_lib.AS_PREDICTED)
    predict = prices.collective
    lone: dict[bool, dict[tuple[str, ...], tuple[float, float]]] = {}
    own = setting.algorithm.startswith("nvls"), _task(collective)
    for member in self.analysis.started_by[collective.start_id]:
      key, task = self.key_of[member.name], _task(member)
      chosen = setting if task == own[1] else self.default[key]
      whole = dataclasses.replace(key, num_bytes=sum(member.grouped_bytes))
      least = dataclasses.replace(key, num_bytes=1)
      times = predict(whole, chosen).time_us, predict(least, chosen).time_us
      lone.setdefault(chosen.algorithm.startswith("nvls"), {})[task] = times
    concurrent = lone[own[0]]
    whole_us, latency_us = concurrent[own[1]]
    latencies_us = [latency for _, latency in concurrent.values()]
    saved_us = latency_us * (1 - max(latencies_us) / sum(latencies_us))
    key = self.key_of[collective.name]
    share = key.num_bytes / max(sum(collective.grouped_bytes), 1)
    lone_us = predict(key, setting).time_us
    return min(share * (whole_us - saved_us) / lone_us, 1.0)

  @functools.cached_property
  def prices(self) -> scenario_lib.Prices:
    """Prices of kernels and collectives, shared by steps priced alike."""
    return scenario_lib.of(self.cluster, self.measured, self.scenario)

  @functools.cached_property
  def executions(self) -> Mapping[Key, int]:
    """Times that each key's collectives run per step."""
    executions = dict.fromkeys(self.keys, 0)
    for collective in self.analysis.collectives:
      executions[self.key_of[collective.name]] += collective.executions
    return executions

  @functools.cached_property
  def calls(self) -> Mapping[Key, tuple[collective_lib.Call, ...]]:
    """The calls that a key's setting decides, by size."""
    by_nccl = collective_lib.calls_by_key(
      [
        (key, c)
        for c in self.analysis.collectives
        if c.name not in self.own_kernels
        and (key := self.key_of[c.name]) not in self.routes
      ]
    )
    return {**dict.fromkeys(self.untuned, ()), **by_nccl}

  def copy_cost(self, copy: copies_lib.Copy) -> collective_lib.CollectiveCost:
    """Cost of a copy alone."""
    return collective_lib.of_copy(copy, self.cluster)

  def costs(self, configuration: Configuration) -> timeline_lib.Costs:
    """The costs for a replay under a configuration."""
    known: dict[str, collective_lib.CollectiveCost] = {}

    def collective_cost(
      collective: collectives_lib.Collective,
    ) -> collective_lib.CollectiveCost:
      found = known.get(collective.name)
      if found is None:
        key = self.key_of[collective.name]
        found = self.cost_of(collective, configuration[key])
        known[collective.name] = found
      return found

    return timeline_lib.Costs(
      kernel=self.kernel_cost,
      collective=collective_cost,
      copy=self.copy_cost,
      beside=self.prices.beside,
      together=self.prices.together,
    )


def _task(collective: collectives_lib.Collective) -> tuple[str, ...]:
  """Equal for collectives of a group that NCCL runs as one."""
  return collective.kind, collective.element_type


def of_module(
  module: hlo.Module,
  cluster: cluster_lib.Cluster,
  *,
  max_channels: int | None = None,
  num_streams: int = 1,
  switches: xla_kernels.Switches = xla_kernels.AS_BY_DEFAULT,
  asked: routes_lib.Asked = routes_lib.NOTHING,
) -> Step:
  """A scheduled module with its costs on a cluster; see `Step`.

  `num_streams` is how many streams of communication XLA has per domain.
  """
  analysis = overlap_lib.analyze(module, num_streams=num_streams)
  return Step(
    analysis,
    cluster,
    max_channels=max_channels,
    switches=switches,
    asked=asked,
  )


def measured_shares(step: Step) -> Mapping[str, float]:
  """The measured share of the time alone, by kind of kernel and of collective.

  Collectives run under NCCL's own settings.
  """
  total_us: dict[str, float] = collections.defaultdict(float)
  known_us: dict[str, float] = collections.defaultdict(float)
  for kernel in step.analysis.kernels.values():
    cost = step.kernel_cost(kernel)
    time_us = cost.run_us * kernel.executions
    total_us[kernel.category] += time_us
    known_us[kernel.category] += time_us if cost.source == "measured" else 0.0
  keys = {} if step.measured is None else step.measured.keys
  for key, executions in step.executions.items():
    time_us = step.predict(key, step.default[key]).time_us * executions
    total_us[key.kind] += time_us
    known_us[key.kind] += time_us if key in keys else 0.0
  return {kind: known_us[kind] / us for kind, us in total_us.items() if us}
