# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""The profile of costs for XLA's latency-hiding scheduler, as text.

XLA accepts a profile per compile, in place of its own estimates of instruction
costs (the compiler option `fdo_profile`). It is a ProfiledInstructionsProto
(openxla/xla, third_party/tsl/tsl/profiler/protobuf/profiled_instructions.proto)
in text form, one line per instruction; a collective's cost is on the
instruction that starts it.

How XLA uses a profile (jaxlib 0.10.2 and 0.12.0.1):

- Any profile, even an empty one, enables the latency-hiding scheduler. It is on
  by default for Hopper and Blackwell data center GPUs, and off for others.
- Instructions without an entry have XLA's estimate, and are listed in a
  warning.
- Entries without an instruction are silently ignored.
- AutoPGLE replaces the profile, and its cache key ignores it.
"""

from __future__ import annotations

from collections.abc import Mapping
import re

import jax

from lagom_xla import errors

_COST = re.compile(r'^costs { name: "([^"]*)" cost_us: ([0-9.]+) }$', re.M)


def encode(costs_us: Mapping[str, float]) -> str:
  """The profile with these costs, by instruction name, in microseconds.

  Equal costs give equal text, so every process of a job can make its own.
  """
  return "".join(
    f'costs {{ name: "{name}" cost_us: {cost_us:.3f} }}\n'
    for name, cost_us in sorted(costs_us.items())
  )


def costs_us(profile: str) -> dict[str, float]:
  """The costs in a profile, by instruction name, in microseconds."""
  return {name: float(cost_us) for name, cost_us in _COST.findall(profile)}


def check_reaches_xla() -> None:
  """Checks that JAX is not set to replace the profile.

  Raises:
    ProfileError: it is.
  """
  for name in ("jax_enable_pgle", "jax_compilation_cache_expect_pgle"):
    if getattr(jax.config, name, False):
      raise errors.ProfileError(
        f"{name} is on, so JAX would replace the plan's scheduler profile by"
        " its own, and could take executables of other plans from its cache."
        " Switch it off to compile with a plan."
      )
