# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Our costs as the profile that XLA's latency-hiding scheduler goes by.

XLA takes a profile per compile, in place of its own estimates of what each
instruction costs. Its estimates know nothing of what kernels and collectives do
to each other, nor of the NCCL settings that a plan chooses; ours do:

    options = {"fdo_profile": fdo.profile(step, configuration)}

The profile is a ProfiledInstructionsProto (openxla/xla,
third_party/tsl/tsl/profiler/protobuf/profiled_instructions.proto) in text form,
one line per instruction. A kernel's entry is its time beside what it overlaps;
a collective's, on the instruction that starts it, its time as configured and
slowed. Where the schedule follows, other things overlap, and the costs of the
new schedule are others. Rounds of this may go to and fro between schedules:
keep the best replay of two or three.

The bytes also carry the hash of a plan, which XLA does not read. Passes are not
in JAX's cache keys, in memory or on disk, and a compile's options are; so a
step that is compiled with the plan's hash among them is never taken for
another plan's.

What XLA makes of a profile (jaxlib 0.10.2 and 0.12.0.1):

- Any profile, even an empty one, switches the latency-hiding scheduler on. It
  is on already for Hopper and Blackwell data center GPUs, and off for others.
- Instructions without an entry cost what XLA estimates, and are listed in a
  warning. A profile of all of a module's kernels and collectives is silent, and
  so is one that goes with `SILENT`.
- Entries of no instruction are ignored silently.
- AutoPGLE replaces the profile, and has a cache key without it.
"""

from __future__ import annotations

import collections
from collections.abc import Mapping
import re

import jax

from lagom_xla import errors
from lagom_xla.costs import step as step_lib
from lagom_xla.passes import hlo
from lagom_xla.passes import overlap as overlap_lib

# Keeps XLA from listing what a profile leaves out, for profiles that are there
# for their hash alone.
SILENT: Mapping[str, str] = {
  "xla_gpu_pgle_accuracy_checker": "PGLE_STRICTNESS_LEVEL_OFF"
}

_HASH_COMMENT = "# lagom_xla plan "
_HASH = re.compile(r"[0-9a-zA-Z_-]+")
_COST = re.compile(r'^costs { name: "([^"]*)" cost_us: ([0-9.]+) }$', re.M)


def profile(
  step: step_lib.Step, configuration: step_lib.Configuration
) -> bytes:
  """What a step's kernels and collectives cost under a configuration.

  The same step and configuration give the same bytes, so every process of a
  job can make them for itself.

  Args:
    step: the step as it is scheduled now.
    configuration: the NCCL setting of each of its tuning keys.
  """
  costs_us = _costs_us(step, configuration)
  return "".join(
    f'costs {{ name: "{name}" cost_us: {cost_us:.3f} }}\n'
    for name, cost_us in sorted(costs_us.items())
  ).encode()


def with_plan_hash(profile_: bytes, plan_hash: str) -> bytes:
  """The same profile, in bytes that no other plan's have.

  Args:
    profile_: of `profile`, or b"" where a plan has none. The scheduler is then
      switched on as by any profile, with XLA's own estimates; compile with
      `SILENT`, too.
    plan_hash: letters, digits, "-" and "_".

  Raises:
    ProfileError: the hash holds something else.
  """
  if not _HASH.fullmatch(plan_hash):
    raise errors.ProfileError(
      f"{plan_hash!r} cannot be the hash of a plan: it must be letters, digits,"
      " - and _ only."
    )
  # A comment. XLA tries the binary form first, for which no text can pass.
  return profile_ + f"{_HASH_COMMENT}{plan_hash}\n".encode()


def costs_us(profile_: bytes) -> dict[str, float]:
  """The costs in a profile, by instruction name, in microseconds."""
  entries = _COST.findall(profile_.decode())
  return {name: float(cost_us) for name, cost_us in entries}


def plan_hash(profile_: bytes) -> str | None:
  """The hash in a profile, if there is one."""
  for line in profile_.decode().splitlines():
    if line.startswith(_HASH_COMMENT):
      return line.removeprefix(_HASH_COMMENT)
  return None


def check_reaches_xla() -> None:
  """Checks that JAX is not set to put another profile in a profile's place.

  Raises:
    ProfileError: it is.
  """
  for name in ("jax_enable_pgle", "jax_compilation_cache_expect_pgle"):
    if getattr(jax.config, name, False):
      raise errors.ProfileError(
        f"{name} is on: JAX then compiles with a profile of its own, and finds"
        " executables in its cache whatever plan they were made with. Switch"
        " it off to compile with a plan."
      )


def _costs_us(
  step: step_lib.Step, configuration: step_lib.Configuration
) -> Mapping[str, float]:
  """By the name that the scheduler knows an instruction by, in us per run."""
  analysis = step.analysis
  timeline = step.timeline(configuration)
  lost_us = collections.defaultdict[str, float](float, timeline.delay_us)
  for (kernel_name, _), slowdown_us in timeline.slowdown_us.items():
    lost_us[kernel_name] += slowdown_us
  names: dict[int, str] = {}
  costs = collections.defaultdict[str, float](float)
  for computation in analysis.sequences:
    for instruction in computation.instructions:
      name = instruction.metadata.scheduling_name or instruction.name
      names[instruction.id] = name
      if _awaits_kernel(analysis, instruction):
        costs[name] = 0.0  # All of the kernel's time is on its start.
  for kernel in analysis.kernels.values():
    alone_us = step.kernel_cost(kernel).time_us
    lost = lost_us[kernel.name] / max(kernel.executions, 1)
    costs[names[kernel.instruction_id]] += alone_us + lost
  for collective in analysis.collectives:
    key = step.key_of[collective.name]
    alone_us = step.predict(key, configuration[key]).time_us
    lost = lost_us[collective.name] / max(collective.executions, 1)
    costs[names[collective.start_id]] += alone_us + lost
  return costs


def _awaits_kernel(
  analysis: overlap_lib.Analysis, instruction: hlo.Instruction
) -> bool:
  """Whether it is the done of an asynchronous fusion or copy."""
  return (
    instruction.opcode in ("async-done", "copy-done")
    and instruction.operand_ids[0] in analysis.kernels
  )
