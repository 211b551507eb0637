# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Fixed proposals for steps on GPUs, instead of those of a search."""

from __future__ import annotations

from collections.abc import Generator, Mapping
import dataclasses
import threading

import jax

from lagom_xla.compile import config as config_lib
from lagom_xla.live import gpu
from lagom_xla.live import proposals as proposals_lib


@dataclasses.dataclass(kw_only=True)
class Proposer(gpu.PlanProposer):
  """Proposes these configs by name, after a search if there is one.

  With `is_proven`, no other process has to compile them first. `measured` is
  what the proposer was told.
  """

  configs: Mapping[str, config_lib.XlaConfig]
  searches: bool = False
  is_proven: bool = True
  measured: proposals_lib.Measured | None = None

  def proposals(
    self,
    lowered: jax.stages.Lowered,
    measured: proposals_lib.Measured,
    stop: threading.Event,
  ) -> Generator[proposals_lib.Proposal, None, None]:
    self.measured = measured
    if self.searches:
      yield from super().proposals(lowered, measured, stop)
    for name, config in self.configs.items():
      payload = gpu.Payload(xla=config, is_proven=self.is_proven)
      yield proposals_lib.Proposal(name=name, payload=payload.to_bytes())
