# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Lone collectives measured under NCCL's own choice, as rows of a fit.

Most come from XLA's default_collective_perf_table. Its generator
(xla/tools/collective_perf_table_gen.cc) runs one collective of f32 in its own
module, on all groups of that size at once, and divides the larger of operand
and result by the median run time. A permute is repeated in a loop on the
device. The others are launched once per measurement, so their times include the
module's launch. Only the modules of all-reduces and permutes copy S bytes on
every device, because XLA reduces in place; predictions include this copy. Other
costs outside of the collective are in fitted/collective.json.

On eight devices, 4 pairs are i to i + 4. As many pairs as devices are either
neighbors that exchange or a ring, in which a rank's send and receive share
their channels; of two rows, the slower one counts as the ring.

NCCL's choices come from costs/nccl, with one rule of an older NCCL that the
rows show: a message of sends and receives uses LL up to 512 KiB (16 KiB for
each of the 32 channels that it could have), not up to 16 KiB for each of its
channels.

In a traced step, a collective waits for its last rank and shares memory with
kernels. So only the shortest run counts, and only of all-reduces too small for
memory to matter. They show the launch and the hops, which rows of nccl-tests on
one node cannot show below the launch time of its thread.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
import dataclasses
import functools
import itertools
import pathlib

from benchmarks import data as data_lib
from benchmarks import groups
from benchmarks.steps import traced_step
from lagom_xla import cluster as cluster_lib
from lagom_xla import costs
from lagom_xla.costs import collective as collective_lib
from lagom_xla.costs import kernel as kernel_lib
from lagom_xla.costs import nccl
from lagom_xla.costs import wire
from lagom_xla.costs.nccl import launch
from lagom_xla.passes import collectives as collectives_lib
from lagom_xla.passes import kernels as kernels_lib


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class SetApart:
  """Launch times in microseconds, and the difference of an older NCCL.

  Attributes:
    module_us: launch of a module in XLA's table, by system.
    own_reduce_steps: replaces wire.Path.own_reduce_steps for rows of XLA's
      table made with an older NCCL, by device.
    launch_us: launch of one GPU's part of a collective in nccl-tests on one
      node, where one thread launches all parts.
    launch_channel_us: its increase per channel.
  """

  module_us: Mapping[str, float]
  own_reduce_steps: Mapping[str, float]
  launch_us: float
  launch_channel_us: float


@functools.cache
def seen_systems() -> frozenset[str]:
  """The systems of nccl-tests to which the parameters were fitted."""
  return frozenset(costs.read_fitted("collective")["tests"])


@functools.cache
def fitted() -> SetApart:
  """The fitted SetApart."""
  return SetApart(**costs.read_fitted("collective")["set_apart"])


def launched(
  key: collective_lib.TuningKey,
  cluster: cluster_lib.Cluster,
  algorithm: str,
  protocol: str,
  num_channels: int,
) -> collective_lib.Setting:
  """The setting with this number of channels and NCCL's chunk for it."""
  share_bytes = key.num_bytes // num_channels
  return collective_lib.Setting(
    algorithm=algorithm,
    protocol=protocol,
    num_channels=num_channels,
    chunk_bytes=launch.chunk_bytes(
      cluster, key.communicator, key.kind, share_bytes, algorithm, protocol
    ),
  )


@dataclasses.dataclass(frozen=True, kw_only=True)
class MeasuredCall:
  """One measured collective, from XLA's table, nccl-tests or a step."""

  cluster: cluster_lib.Cluster
  key: collective_lib.TuningKey
  setting: collective_lib.Setting
  time_us: float

  @property
  def model_system(self) -> str:
    """The system whose parameters it depends on."""
    return wire.system_of(self.cluster)

  @property
  def path(self) -> str:
    """The name of the path whose parameters it depends on."""
    return wire.path_name(
      self.cluster, self.key.communicator, self.key.kind, self.setting
    )

  def wire_us(
    self, paths: wire.Paths | None = None, fabric: wire.Fabric | None = None
  ) -> float:
    """Predicted time of the collective alone; None means the shipped fit."""
    return wire.time_us(
      self.cluster,
      self.key.communicator,
      self.key.kind,
      self.key.num_bytes,
      self.setting,
      paths,
      fabric,
    )

  def predict_us(
    self, paths: wire.Paths | None = None, apart: SetApart | None = None
  ) -> float:
    """Predicted time of the measurement."""
    del apart
    return self.wire_us(paths)

  def comparison(
    self, what: str, predicted_us: float | None = None
  ) -> groups.Comparison:
    """Comparison of the measured time with a prediction."""
    if predicted_us is None:
      predicted_us = self.predict_us()
    return groups.Comparison(f"{what}, us", self.time_us, predicted_us)


# sm_103 is a GB300, with the NVLink and NVLink switch of a GB200.
_CLUSTERS = {
  "sm_90": "1x8xh100",
  "sm_100_B200": "1x8xb200",
  "sm_100_GB200": "18x4xgb200",
  "sm_103": "18x4xgb200",
}
# Times of smaller collectives are mostly the host's.
LARGE_BYTES = 65536
_COPIED = ("all-reduce", "collective-permute")
# Devices whose rows include the copy. With it, GB200s would send at 800 of
# their link's 900 GB/s in one direction, and errors grow, so their rows were
# made differently.
_COPYING_DEVICES = ("sm_90", "sm_100_B200")
_RING = "ring.simple"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Row(MeasuredCall):
  """One row of XLA's table, for a group in one NVLink domain."""

  device: str  # The table's name.
  num_pairs: int = 0  # Of a permute.
  is_one_way: bool = False  # No channel sends and receives at once.

  @property
  def is_large(self) -> bool:
    """Whether it is large enough to judge the model."""
    return self.key.num_bytes >= LARGE_BYTES

  @property
  def copy_us(self) -> float:
    """Predicted time of the module's copy of the operand or the result."""
    if self.key.kind not in _COPIED or self.device not in _COPYING_DEVICES:
      return 0.0
    copy = kernels_lib.Kernel(
      name="copy",
      category="copy",
      computation="main",
      instruction_id=0,
      executions=1,
      flops=0,
      num_bytes=2 * self.key.num_bytes,
      element_type="f32",
      result_elements=self.key.num_bytes // 4,
      matrix_shape=None,
      backend_config={},
    )
    return kernel_lib.predict(copy, self.cluster.gpu).time_us

  def predict_us(
    self, paths: wire.Paths | None = None, apart: SetApart | None = None
  ) -> float:
    """Predicted time of the module."""
    if paths is None:
      paths = wire.fitted(self.model_system)
    if apart is None:
      apart = fitted()
    if self.device in apart.own_reduce_steps and self.path == _RING:
      path = dataclasses.replace(
        paths[_RING], own_reduce_steps=apart.own_reduce_steps[self.device]
      )
      paths = {**paths, _RING: path}
    if self.is_one_way:
      path = paths[self.path]
      lone = dataclasses.replace(path, channel_gbps=path.lone_channel_gbps)
      paths = {**paths, self.path: lone}
    module_us = apart.module_us[self.model_system]
    if self.key.kind == "collective-permute":
      module_us = 0.0
    return module_us + self.copy_us + self.wire_us(paths)


_cluster = functools.cache(cluster_lib.parse)
_OLD_LL_BYTES = 32 * 16384
_PERMUTE = "permute.simple"
# Exchanging neighbors with more channels share some of them.
_MOST_LONE_CHANNELS = 4


def read_table() -> list[Row]:
  """The rows of XLA's table for NVIDIA GPUs."""
  found = [
    _row(line)
    for line in data_lib.rows("collective_throughput")
    if line["device"] in _CLUSTERS
    # 0 means that the time was too short for the clock.
    and float(line["throughput_bytes_per_second"]) > 0
  ]
  # Of two permutes of one size that share no channel, the faster is one-way.
  slowest_us: dict[tuple[str, int, int], float] = {}
  for row in found:
    if row.path == _PERMUTE:
      key = (row.device, row.num_pairs, row.key.num_bytes)
      slowest_us[key] = max(slowest_us.get(key, 0.0), row.time_us)
  return [
    dataclasses.replace(row, is_one_way=True)
    if row.path == _PERMUTE
    and row.time_us < slowest_us[row.device, row.num_pairs, row.key.num_bytes]
    and row.setting.num_channels <= _MOST_LONE_CHANNELS
    else row
    for row in found
  ]


def _row(line: Mapping[str, str]) -> Row:
  kind, device = line["opcode"], line["device"]
  cluster = _cluster(_CLUSTERS[device])
  num_bytes = 4 * int(line["result_elements"])
  time_us = 1e6 * num_bytes / float(line["throughput_bytes_per_second"])
  num_pairs = 0
  if kind == "collective-permute":
    num_pairs = int(line["source_target_pairs"])
    num_ranks = max(num_pairs, cluster.gpus_per_node)
  else:
    num_ranks = int(line["devices_per_group"])
  if kind == "reduce-scatter":
    num_bytes *= num_ranks
    time_us *= num_ranks
  # NCCL's size is also the larger of operand and result.
  key = collective_lib.TuningKey(kind, num_ranks, 1, num_bytes)
  setting = collective_lib.default_setting(key, cluster)
  if kind in nccl.SEND_RECV:
    num_messages = 1 if kind == "collective-permute" else num_ranks
    is_ll = num_bytes <= num_messages * _OLD_LL_BYTES
    setting = dataclasses.replace(
      setting,
      protocol="ll" if is_ll else "simple",
      chunk_bytes=2**15 if is_ll else 2**19,
    )
  return Row(
    cluster=cluster,
    key=key,
    setting=setting,
    time_us=time_us,
    device=device,
    num_pairs=num_pairs,
    is_one_way=setting.protocol == "simple" and 0 < num_pairs < num_ranks,
  )


_MOST_BYTES = 256 * 1024


def read_trace(folder: pathlib.Path) -> Sequence[MeasuredCall]:
  """The small all-reduces of the traced step in `folder`, pax_a100."""
  module = traced_step.read_module(folder)
  shortest_us: dict[str, float] = {}
  ranks = traced_step.by_rank(folder, module)
  for step in itertools.chain.from_iterable(ranks):
    for event in step:
      least_us = min(event.time_us, shortest_us.get(event.name, event.time_us))
      shortest_us[event.name] = least_us
  cluster = traced_step.cluster_of(folder, module)
  keys = {
    c.name: collective_lib.tuning_key(c, cluster)
    for c in collectives_lib.find(module)
  }
  return [
    MeasuredCall(
      cluster=cluster,
      key=key,
      setting=collective_lib.default_setting(key, cluster),
      time_us=shortest_us[name],
    )
    for name, key in keys.items()
    if key.kind == "all-reduce" and key.num_bytes <= _MOST_BYTES
  ]
