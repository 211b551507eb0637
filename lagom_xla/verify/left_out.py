# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Parts of a config, left out one by one: their schedules show what each does.

Orders are no such part: they are those of one schedule, and without any other
part it is another.
"""

from __future__ import annotations

from collections.abc import Iterator
import dataclasses

from lagom_xla.compile import config as config_lib
from lagom_xla.compile import rewriting
from lagom_xla.compile import scheduler_profile
from lagom_xla.costs import in_words
from lagom_xla.flags import nccl_channels
from lagom_xla.passes import combine

PROGRAM = "program"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Part:
  """A part of a config.

  Attributes:
    knob: what it is called: an XLA option by its name.
    value: what it is set to, in words.
    with_it: a config with the part.
    without: the same config but for the part.
    both_lack: what neither has of the whole config; "" for nothing.
  """

  knob: str
  value: str
  with_it: config_lib.XlaConfig
  without: config_lib.XlaConfig
  both_lack: str = ""


def parts(config: config_lib.XlaConfig) -> Iterator[Part]:
  """The parts of a config, but for a cap on channels and for orders."""
  config = dataclasses.replace(config, orders={})
  groups, profile = config.combine_groups, config.scheduler_profile
  if not config.program.is_as_written:
    # Combine groups and a scheduler profile are those of the program in its
    # form.
    alone = config_lib.XlaConfig(options=config.options)
    yield Part(
      knob=PROGRAM,
      value=rewriting.in_words(config.program),
      with_it=dataclasses.replace(alone, program=config.program),
      without=alone,
    )
  for name in config.options:
    if name != nccl_channels.OPTION:
      yield _option(name, config)
  if groups is not None:
    yield Part(
      knob="combine groups",
      value=in_words.count(groups, "group"),
      with_it=config,
      without=dataclasses.replace(config, combine_groups=None),
    )
  if profile is not None:
    yield Part(
      knob="scheduler profile",
      value=f"{len(scheduler_profile.costs_us(profile))} costs",
      with_it=config,
      without=dataclasses.replace(config, scheduler_profile=None),
    )


def _option(name: str, config: config_lib.XlaConfig) -> Part:
  """An XLA option.

  Combine groups overrule thresholds, which are there for launchers that cannot
  set groups; so a threshold is a part of the config without groups.
  """
  both_lack = ""
  if name in combine.OPTIONS and config.combine_groups is not None:
    config = dataclasses.replace(config, combine_groups=None)
    both_lack = "the combine groups"
  return Part(
    knob=name,
    value=str(config.options[name]),
    with_it=config,
    without=config.without_options([name]),
    both_lack=both_lack,
  )
