# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""A lone collective of XLA's table: as measured, and as modelled.

A permute is repeated in a loop on the device, and its time is one turn's. The
others are launched once for each time, which so holds the launch of the module.

XLA reduces in place, and a loop carries its state in one buffer. So the modules
of all-reduces and permutes, and only those, copy S bytes on every device,
before the one and after the other; their schedules show it. The copy is no part
of the collective, and in a step is an instruction of its own where it is needed
at all; here it is added to what the model predicts.
"""

from __future__ import annotations

import dataclasses
import functools

from benchmarks.collectives import measured_call
from benchmarks.collectives import set_apart
from lagom_xla import cluster as cluster_lib
from lagom_xla.costs import kernel as kernel_lib
from lagom_xla.costs import wire
from lagom_xla.passes import kernels as kernels_lib

# sm_103 is a GB300, whose NVLink and NVLink switch are a GB200's.
CLUSTERS = {
  "sm_90": "1x8xh100",
  "sm_100_B200": "1x8xb200",
  "sm_100_GB200": "18x4xgb200",
  "sm_103": "18x4xgb200",
}
# Smaller ones are mostly the host's time.
LARGE_BYTES = 65536
_COPIED = ("all-reduce", "collective-permute")
# Rows that hold the copy. With it GB200s would send at 800 GB/s of their link's
# 900 in one direction, and errors grow: theirs were made by other means.
_COPYING_DEVICES = ("sm_90", "sm_100_B200")
_RING = "ring.simple"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Row(measured_call.MeasuredCall):
  """One measurement, of a group that lies in one NVLink domain.

  Attributes:
    device: as the table calls it.
    num_pairs: of a permute; else 0.
    is_one_way: whether no channel of it sends and receives at once.
  """

  device: str
  num_pairs: int = 0
  is_one_way: bool = False

  @property
  def is_large(self) -> bool:
    """Whether it is large enough to be judged by."""
    return self.num_bytes >= LARGE_BYTES

  @property
  def copy_us(self) -> float:
    """What the module's copy of the operand or the result takes."""
    if self.key.kind not in _COPIED or self.device not in _COPYING_DEVICES:
      return 0.0
    return _copy_us(self.num_bytes, self.cluster.gpu)

  def predict_us(
    self,
    paths: wire.Paths | None = None,
    apart: set_apart.SetApart | None = None,
  ) -> float:
    """The model's time of the module.

    Args:
      paths: parameters of the collective; the fitted ones if not given.
      apart: what launches take; as fitted if not given.
    """
    if paths is None:
      paths = wire.fitted(self.model_system)
    if apart is None:
      apart = set_apart.fitted()
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


def _copy_us(num_bytes: int, gpu: cluster_lib.Gpu) -> float:
  copy = kernels_lib.Kernel(
    name="copy",
    category="copy",
    computation="main",
    instruction_id=0,
    executions=1,
    flops=0,
    num_bytes=2 * num_bytes,
    element_type="f32",
    result_elements=num_bytes // 4,
    matrix_shape=None,
    backend_config={},
  )
  return kernel_lib.predict(copy, gpu).time_us


@functools.cache
def cluster_of(device: str) -> cluster_lib.Cluster:
  """Where a device of the table stands."""
  return cluster_lib.parse(CLUSTERS[device])
