# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""The table of what NCCL settings add on top of strands, and without them.

A step that hides its communication is bound by its kernels, so what kernels
lose to collectives decides, which is what Lagom's settings are for.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
import typing
from typing import Any

from benchmarks import table as table_lib
from benchmarks.strands import modules as modules_lib
from lagom_xla.compile import config as config_lib
from lagom_xla.compile import rewriting
from lagom_xla.compile import target as target_lib
from lagom_xla.costs import step as step_lib
from lagom_xla.costs.replay import timeline as timeline_lib
from lagom_xla.passes.program import form as form_lib
from lagom_xla.search import nccl
from lagom_xla.search.xla import evaluation

NAME = "settings"

_COLUMNS = (
  *map(table_lib.Column, ("module", "cluster", "form")),
  *(
    table_lib.Column(name, ".1f")
    for name in ("default_ms", "exposed_ms", "slowdown_ms")
  ),
  *(
    table_lib.Column(f"{name}_{figure}", form)
    for name in nccl.SEARCHERS
    for figure, form in (("ms", ".1f"), ("gain", ".2%"), ("slowdown_ms", ".1f"))
  ),
)


def table(modules: Iterable[modules_lib.Module]) -> table_lib.Table:
  """Searches the settings of each step, as written and with strands."""
  rows = []
  for module in modules:
    modules_lib.say(f"{module.name} on {module.cluster_name}")
    target = module.target()
    rows.append(row(module, target, form_lib.AS_WRITTEN))
    strands = best_strands(target)
    if strands is not None:
      rows.append(row(module, target, strands))
  return table_of(rows)


def table_of(rows: Sequence[table_lib.Row]) -> table_lib.Table:
  """The table of these rows."""
  return table_lib.Table(
    name=NAME,
    title="NCCL's settings, without strands and with them",
    columns=_COLUMNS,
    rows=rows,
    notes=(
      "Predicted step times in ms, of schedules under XLA's defaults. Gains are"
      " over NCCL's own settings of the same schedule, by each searcher.",
    ),
  )


def best_strands(target: target_lib.Target) -> form_lib.Form | None:
  """The form with strands whose step is shortest under all defaults."""
  programs = {target.digest(form_lib.AS_WRITTEN)}
  found: dict[float, form_lib.Form] = {}
  for strands in typing.get_args(form_lib.Strands):
    for keyed in (False, True):
      form = form_lib.Form(strands=strands, keyed=keyed)
      # What a form cannot act on, it leaves as it is written.
      if (program := target.digest(form)) not in programs:
        programs.add(program)
        found[_default(target, form).step_time_us] = form
  return found[min(found)] if found else None


def row(
  module: modules_lib.Module, target: target_lib.Target, form: form_lib.Form
) -> dict[str, Any]:
  """What each searcher makes of one schedule."""
  default = _default(target, form)
  found: dict[str, Any] = {
    "module": module.name,
    "cluster": module.cluster_name,
    "form": rewriting.in_words(form),
    "default_ms": default.step_time_us / 1e3,
    "exposed_ms": default.total_exposed_us / 1e3,
    "slowdown_ms": default.total_slowdown_us / 1e3,
  }
  config = config_lib.XlaConfig(program=form)
  for name in nccl.SEARCHERS:
    tuned = evaluation.evaluate_or_raise(
      config, target=target, searcher=nccl.by_name(name)
    ).tuned
    found |= {
      f"{name}_ms": tuned.step_time_us / 1e3,
      f"{name}_gain": 1 - tuned.step_time_us / default.step_time_us,
      f"{name}_slowdown_ms": tuned.total_slowdown_us / 1e3,
    }
  return found


def _default(
  target: target_lib.Target, form: form_lib.Form
) -> timeline_lib.Timeline:
  """The replay of a form under XLA's and NCCL's defaults."""
  module = target.schedule(config_lib.XlaConfig(program=form))
  step = step_lib.of_module(module, target.cluster)
  return step.timeline(step.default)
