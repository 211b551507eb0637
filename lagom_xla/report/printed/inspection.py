# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""An inspection in JSON: the collectives of a step, and what runs beside them.

What `lagom-xla inspect --format=json` prints.
"""

from __future__ import annotations

from collections.abc import Mapping
import dataclasses
from typing import Any

from lagom_xla import validation
from lagom_xla.costs import step as step_lib
from lagom_xla.flags import environment
from lagom_xla.passes import collectives as collectives_lib
from lagom_xla.passes import copies
from lagom_xla.profiling import costing as costing_lib
from lagom_xla.report.printed import collectives as printed_collectives
from lagom_xla.report.printed import measured_costs
from lagom_xla.report.wording import unknown_work


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Module:
  """The scheduled module of a step.

  Attributes:
    name: of the HLO module.
    num_instructions: in all its computations, those inside fusions too.
    num_partitions: devices that it was partitioned for; None where it says so
      nowhere.
  """

  name: str
  num_instructions: int
  num_partitions: int | None


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class HostCopy:
  """A copy to or from the host's memory.

  Attributes:
    name: the instruction that starts it.
    to_host: whether it goes to the host, and not to the device.
    computation: where it stands.
    num_bytes: what one device copies, each time.
    executions: times that it runs per step.
  """

  name: str
  to_host: bool
  computation: str
  num_bytes: int
  executions: int


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Inspection:
  """The collectives of a step, and what runs beside them.

  Attributes:
    module: the step as XLA schedules it.
    xla_flags: the `XLA_FLAGS` that it was compiled with, in one line; "" for
      none.
    collectives: all, one computation after another, in schedule order.
    host_copies: copies to and from the host's memory.
    totals: kind of collective -> what a device moves in those of that kind.
    gemm_flops: operations of the matrix products and convolutions of a device,
      two per multiply-add.
    overlaps: what runs beside what.
    loops_of_unknown_length: loops whose trip count XLA does not tell; their
      bodies count once.
    calls_of_unknown_work: kernel -> the library's call that it is, of which
      only the bytes are costed.
    profile: the measured costs that it is priced by; None without --profile.
  """

  __pydantic_config__ = validation.STRICT

  module: Module
  xla_flags: str
  collectives: tuple[printed_collectives.Collective, ...]
  host_copies: tuple[HostCopy, ...]
  totals: Mapping[str, printed_collectives.Total]
  gemm_flops: int
  overlaps: tuple[printed_collectives.Overlap, ...]
  loops_of_unknown_length: tuple[str, ...]
  calls_of_unknown_work: Mapping[str, str]
  profile: measured_costs.MeasuredCosts | None


def of_step(
  step: step_lib.Step, costed: costing_lib.Costing | None = None
) -> Inspection:
  """What is to be said of a step.

  Args:
    step: as scheduled.
    costed: the costs of a profile that it is priced by, if it is.
  """
  analysis = step.analysis
  module = analysis.module
  return Inspection(
    module=Module(
      name=module.name,
      num_instructions=module.num_instructions,
      num_partitions=collectives_lib.num_devices(module),
    ),
    xla_flags=environment.xla_flags(),
    collectives=printed_collectives.of_step(step),
    host_copies=tuple(map(_host_copy, analysis.host_copies)),
    totals=printed_collectives.totals(analysis),
    gemm_flops=analysis.gemm_flops,
    overlaps=printed_collectives.overlaps(analysis),
    loops_of_unknown_length=tuple(module.loops_of_unknown_length),
    calls_of_unknown_work=unknown_work.targets(step),
    profile=measured_costs.of_step(step, costed) if costed else None,
  )


def schema() -> dict[str, Any]:
  """The JSON schema of `lagom-xla inspect --format=json`."""
  return validation.schema(Inspection)


def _host_copy(copy: copies.HostCopy) -> HostCopy:
  return HostCopy(
    name=copy.name,
    to_host=copy.to_host,
    computation=copy.computation,
    num_bytes=copy.num_bytes,
    executions=copy.executions,
  )
