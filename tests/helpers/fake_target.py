# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""A target with a function of the test as its compiler."""

from __future__ import annotations

from collections.abc import Callable
import dataclasses
from typing import Any

from lagom_xla import cluster as cluster_lib
from lagom_xla.compile import config as config_lib
from lagom_xla.compile import lowered
from lagom_xla.compile import rewriting
from lagom_xla.compile import target as target_lib
from lagom_xla.passes import hlo
from lagom_xla.passes.program import form as form_lib
from lagom_xla.passes.program.slices import chains as chains_lib


@dataclasses.dataclass(frozen=True, kw_only=True)
class FakeTarget(target_lib.Target):
  """See the module's docstring; `of` makes one.

  Attributes:
    scheduled: returns the schedule under a config.
    compiled: returns the complete compile under a config; None without one.
    is_scheduled: whether it is an already scheduled module.
    rewritten: returns the outcome of a form; by default, no form is possible.
    sliceable: the chains of its program in any form.
    digested: returns the digest of a form's program; by default, programs of
      all forms differ.
  """

  scheduled: Callable[[config_lib.XlaConfig], hlo.Module]
  compiled: Callable[[config_lib.XlaConfig], lowered.Compilation] | None = None
  is_scheduled: bool = False
  rewritten: Callable[[form_lib.Form], form_lib.Outcome] = lambda form: (
    form_lib.Outcome()
  )
  sliceable: tuple[chains_lib.Chain, ...] = ()
  digested: Callable[[form_lib.Form], str] = repr

  @property
  def is_read_only(self) -> bool:
    return self.is_scheduled

  @property
  def obstacle(self) -> str | None:
    return super().obstacle if self.compiled else "it is a test's"

  def schedule(
    self, config: config_lib.XlaConfig = config_lib.DEFAULT
  ) -> hlo.Module:
    rewriting.check(self.name, config.program, self.outcome(config.program))
    return self.scheduled(config)

  def compile(
    self, config: config_lib.XlaConfig = config_lib.DEFAULT
  ) -> lowered.Compilation:
    assert self.compiled is not None
    return self.compiled(config)

  def outcome(self, form: form_lib.Form) -> form_lib.Outcome:
    return self.rewritten(form)

  def chains(self) -> tuple[chains_lib.Chain, ...]:
    return self.sliceable

  def digest(self, form: form_lib.Form) -> str:
    return self.digested(form)

  def identity(self) -> hlo.Module:
    return self.scheduled(config_lib.DEFAULT)


def of(
  scheduled: Callable[[config_lib.XlaConfig], hlo.Module],
  *,
  peak_bytes: Callable[[config_lib.XlaConfig], int] | None = None,
  **others: Any,
) -> FakeTarget:
  """A step for eight H100s.

  Args:
    scheduled: returns its schedule under a config.
    peak_bytes: returns the peak of a complete compile; None without one.
    **others: see FakeTarget.
  """

  def compiled(config: config_lib.XlaConfig) -> lowered.Compilation:
    assert peak_bytes is not None
    return lowered.Compilation(
      module=scheduled(config), compiled=None, peak_bytes=peak_bytes(config)
    )

  return FakeTarget(
    name="step",
    cluster=cluster_lib.parse("1x8xh100"),
    scheduled=scheduled,
    compiled=None if peak_bytes is None else compiled,
    **others,
  )


@dataclasses.dataclass(frozen=True, kw_only=True)
class ScheduleOnly(target_lib.Target):
  """A target without complete compiles, which few tests need."""

  target: target_lib.Target

  @property
  def obstacle(self) -> str | None:
    return "it takes too long in a test"

  def schedule(
    self, config: config_lib.XlaConfig = config_lib.DEFAULT
  ) -> hlo.Module:
    return self.target.schedule(config)

  def compile(
    self, config: config_lib.XlaConfig = config_lib.DEFAULT
  ) -> lowered.Compilation:
    raise AssertionError(self.obstacle)

  def outcome(self, form: form_lib.Form) -> form_lib.Outcome:
    return self.target.outcome(form)

  def chains(self) -> tuple[chains_lib.Chain, ...]:
    return self.target.chains()

  def digest(self, form: form_lib.Form) -> str:
    return self.target.digest(form)

  def schedule_with_chains(
    self, config: config_lib.XlaConfig = config_lib.DEFAULT
  ) -> hlo.Module:
    return self.target.schedule_with_chains(config)

  def identity(self) -> hlo.Module:
    return self.target.identity()


def schedule_only(target: target_lib.Target) -> ScheduleOnly:
  """The target without complete compiles."""
  return ScheduleOnly(name=target.name, cluster=target.cluster, target=target)
