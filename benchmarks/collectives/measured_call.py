# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""A collective that was measured under NCCL's own choice."""

from __future__ import annotations

import dataclasses

from lagom_xla import cluster as cluster_lib
from lagom_xla.costs import collective as collective_lib
from lagom_xla.costs import wire


@dataclasses.dataclass(frozen=True, kw_only=True)
class MeasuredCall:
  """One measured collective.

  Attributes:
    cluster: where it ran.
    key: the collective.
    setting: what NCCL chose for it, as far as its rules are known.
    time_us: what was measured.
  """

  cluster: cluster_lib.Cluster
  key: collective_lib.TuningKey
  setting: collective_lib.Setting
  time_us: float

  @property
  def model_system(self) -> str:
    """The system whose parameters it shows."""
    return wire.system_of(self.cluster)

  @property
  def path(self) -> str:
    """The name of the parameters that it shows."""
    return wire.path_name(
      self.cluster, self.key.communicator, self.key.kind, self.setting
    )

  @property
  def num_bytes(self) -> int:
    """As NCCL counts them."""
    return self.key.num_bytes

  def wire_us(self, paths: wire.Paths | None = None) -> float:
    """The model's time of the collective alone.

    Args:
      paths: its parameters; the fitted ones if not given.
    """
    return wire.time_us(
      self.cluster,
      self.key.communicator,
      self.key.kind,
      self.key.num_bytes,
      self.setting,
      paths,
    )
