# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Calibration of a cluster: what its collectives take, over what is predicted.

`lagom-xla calibrate` finds these few figures from nccl-tests, and
`costs/wire/calibrated.py` applies them.
"""

from __future__ import annotations

from collections.abc import Mapping
import dataclasses
from typing import Annotated

import pydantic

from lagom_xla import errors

# What the cost model has figures for: algorithms and protocols; of sends and
# receives also what they are for (costs/wire/path.py).
_PATHS = (
  *("ring.ll", "ring.ll128", "ring.simple"),
  *("tree.ll", "tree.ll128", "tree.simple"),
  *("nvls.simple", "nvls_gather.simple", "nvlstree.simple", "pat.simple"),
  *("permute.ll", "permute.simple", "exchange.ll", "exchange.simple"),
  *("exchange_in_host.ll", "exchange_in_host.simple"),
)

_Factor = Annotated[float, pydantic.Field(ge=0.01, le=100)]
_ByPath = Annotated[
  Mapping[str, _Factor],
  pydantic.Field(json_schema_extra={"propertyNames": {"enum": list(_PATHS)}}),
]


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Factors:
  """How collectives of one reach differ from what is predicted for them.

  Attributes:
    latency_factor: on what a collective takes however short it is.
    rate_factor: on the rate at which its bytes move.
    latency_factors: on that time again, by how NCCL moves the bytes:
      "ring.ll", "tree.simple", "nvls.simple", "permute.simple" and others.
    rate_factors: on that rate again, by the same.

  Raises:
    ClusterError: a factor is of nothing that NCCL does.
  """

  latency_factor: _Factor = 1.0
  rate_factor: _Factor = 1.0
  latency_factors: _ByPath = dataclasses.field(default_factory=dict, hash=False)
  rate_factors: _ByPath = dataclasses.field(default_factory=dict, hash=False)

  def __post_init__(self) -> None:
    for name in ("latency_factors", "rate_factors"):
      found = getattr(self, name)
      if not found.keys() <= set(_PATHS):
        raise errors.ClusterError(
          f"calibration has {name} of {', '.join(found)}; it must have no"
          f" other than {', '.join(_PATHS)}"
        )


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Calibration:
  """What lone collectives take on one's own machine, by measurement.

  Attributes:
    within_node: for collectives within a node, or an NVLink domain.
    between_nodes: for collectives that span several.
  """

  within_node: Factors = Factors()
  between_nodes: Factors = Factors()

  def of(self, num_nodes: int) -> Factors:
    """The factors of collectives over as many nodes, as NCCL counts them."""
    return self.between_nodes if num_nodes > 1 else self.within_node
