# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""The config of a compile: what XLA gets besides the step."""

from __future__ import annotations

from collections.abc import Collection, Mapping
import dataclasses

from lagom_xla.passes import combine
from lagom_xla.passes.program import form as form_lib
from lagom_xla.passes.schedule import orders as orders_lib


@dataclasses.dataclass(frozen=True, kw_only=True)
class XlaConfig:
  """What XLA gets besides the step, and in which form it gets the step.

  A launcher can set options in XLA_FLAGS. The rest acts only in the process
  that compiles: the form of the program, combine groups of the program in that
  form, a scheduler profile, and orders of the schedule that XLA makes with all
  of these.

  Attributes:
    program: how the program is rewritten before XLA sees it.
    options: XLA option -> value, on top of XLA's defaults.
    combine_groups: collectives to combine, by label; the others stay alone.
      None leaves it to XLA.
    scheduler_profile: costs for XLA's latency-hiding scheduler, as the text of
      a ProfiledInstructionsProto; None for its own estimates.
    orders: scheduled computation -> names of all its instructions, in the order
      to run them; others keep XLA's order.
  """

  program: form_lib.Form = form_lib.AS_WRITTEN
  options: Mapping[str, bool | int | float | str] = dataclasses.field(
    default_factory=dict
  )
  combine_groups: combine.Groups | None = None
  scheduler_profile: str | None = None
  orders: orders_lib.Orders = dataclasses.field(default_factory=dict)

  @property
  def is_default(self) -> bool:
    """Whether everything is left to XLA."""
    return not self.options and not self.needs_process

  @property
  def goes_by_names(self) -> bool:
    """Whether a part of it refers to instructions by XLA's names."""
    return self.scheduler_profile is not None or bool(self.orders)

  @property
  def needs_process(self) -> bool:
    """Whether a part of it acts only in the process that compiles."""
    return not (
      self.program.is_as_written
      and self.combine_groups is None
      and self.scheduler_profile is None
      and not self.orders
    )

  def with_options(
    self, options: Mapping[str, bool | int | float | str]
  ) -> XlaConfig:
    """A copy with these options added."""
    return dataclasses.replace(self, options={**self.options, **options})

  def without_options(self, names: Collection[str]) -> XlaConfig:
    """A copy without these options."""
    left = {n: v for n, v in self.options.items() if n not in names}
    return dataclasses.replace(self, options=left)


DEFAULT = XlaConfig()
