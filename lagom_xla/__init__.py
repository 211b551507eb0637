# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Tunes how the collectives of a JAX train step share its GPUs.

    import lagom_xla

    @lagom_xla.tune
    @jax.jit
    def train_step(state, batch): ...

The names below are the public face. Each is imported, and JAX with it, when it
is asked for: `import lagom_xla` itself costs nothing.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
  from lagom_xla.cluster import Cluster as Cluster
  from lagom_xla.decorator import TunedStep as TunedStep
  from lagom_xla.decorator import tune as tune
  from lagom_xla.errors import LagomError as LagomError
  from lagom_xla.live.processes import check_processes as check_processes
  from lagom_xla.micro_batching import micro_batches as micro_batches
  from lagom_xla.passes.program.form import Form as Form
  from lagom_xla.plan import Plan as Plan
  from lagom_xla.stranded import StrandedStep as StrandedStep
  from lagom_xla.stranded import strands as strands
  from lagom_xla.tuner.tuner import inspect as inspect

__version__ = "0.1.0"

# Public name -> the module that has it.
_HOMES = {
  "Cluster": "cluster",
  "Form": "passes.program.form",
  "LagomError": "errors",
  "Plan": "plan",
  "StrandedStep": "stranded",
  "TunedStep": "decorator",
  "check_processes": "live.processes",
  "inspect": "tuner.tuner",
  "micro_batches": "micro_batching",
  "strands": "stranded",
  "tune": "decorator",
}


def __getattr__(name: str) -> Any:
  """Imports a public name when it is asked for."""
  if name not in _HOMES:
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
  home = importlib.import_module(f"{__name__}.{_HOMES[name]}")
  return getattr(home, name)


def __dir__() -> list[str]:
  """The public names, imported or not."""
  return sorted({*globals(), *_HOMES})
