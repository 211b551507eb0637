# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""The config of a compile: what XLA gets beside the step, as one value."""

from __future__ import annotations

from collections.abc import Mapping
import dataclasses

from lagom_xla.passes import combine


@dataclasses.dataclass(frozen=True, kw_only=True)
class XlaConfig:
  """What XLA gets beside the step itself.

  Options can be set by a launcher, through XLA_FLAGS. Combine groups and a
  scheduler profile reach XLA only from the process that compiles.

  Attributes:
    options: XLA option -> value, on top of XLA's defaults.
    combine_groups: collectives that XLA combines, by their labels, every other
      one alone; None leaves it to XLA.
    scheduler_profile: costs for XLA's latency-hiding scheduler, as the text of
      a ProfiledInstructionsProto; None leaves it its own estimates.
  """

  options: Mapping[str, bool | int | float | str] = dataclasses.field(
    default_factory=dict
  )
  combine_groups: combine.Groups | None = None
  scheduler_profile: str | None = None

  @property
  def is_default(self) -> bool:
    """Whether everything is left to XLA."""
    return not self.options and not self.needs_process

  @property
  def needs_process(self) -> bool:
    """Whether a part of it reaches XLA only from the compiling process."""
    return not (self.combine_groups is None and self.scheduler_profile is None)

  def with_options(
    self, options: Mapping[str, bool | int | float | str]
  ) -> XlaConfig:
    """The same with these options set, too."""
    return dataclasses.replace(self, options={**self.options, **options})


DEFAULT = XlaConfig()
