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

_KINDS = (
  "all-reduce",
  "all-gather",
  "reduce-scatter",
  "all-to-all",
  "collective-permute",
  "collective-broadcast",
)

_Factor = Annotated[float, pydantic.Field(ge=0.01, le=100)]
_Exponent = Annotated[float, pydantic.Field(ge=0.25, le=1)]
_ByKind = Annotated[
  Mapping[str, _Factor],
  pydantic.Field(json_schema_extra={"propertyNames": {"enum": list(_KINDS)}}),
]


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Factors:
  """How collectives of one reach differ from what is predicted for them.

  Attributes:
    latency_factor: on what a collective takes however short it is.
    rate_factor: on the rate at which its bytes move.
    rate_factors: on that rate again, for single kinds of collectives, by their
      HLO opcodes.
    ramp_exponent: p in (latency^p + bytes^p)^(1/p): 1 where bytes move at full
      rate once the latency is paid, less where they take a ramp to get there.

  Raises:
    ClusterError: a rate factor is of no kind of collective.
  """

  latency_factor: _Factor = 1.0
  rate_factor: _Factor = 1.0
  rate_factors: _ByKind = dataclasses.field(default_factory=dict, hash=False)
  ramp_exponent: _Exponent = 1.0

  def __post_init__(self) -> None:
    if not self.rate_factors.keys() <= set(_KINDS):
      raise errors.ClusterError(
        f"calibration has rate_factors of {', '.join(self.rate_factors)}; it"
        f" must have no other than {', '.join(_KINDS)}"
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
