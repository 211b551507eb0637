# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Notes on figures, in sentences: what they rest on, and what they lack."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
import functools
import pathlib
import shlex
import shutil
import sys
from typing import Final

from lagom_xla import plan as plan_lib
from lagom_xla.costs import fusion
from lagom_xla.costs import in_words
from lagom_xla.costs import step as step_lib
from lagom_xla.flags import environment
from lagom_xla.flags import nccl_channels
from lagom_xla.passes import hlo
from lagom_xla.passes import source_lines
from lagom_xla.passes.schedule import memory
from lagom_xla.profiling import profile as profile_lib
from lagom_xla.report import instructions as instructions_lib
from lagom_xla.search.nccl import channel_cap
from lagom_xla.search.xla import arms as arms_lib
from lagom_xla.tuner import tuning as tuning_lib

_NAME: Final = "lagom-xla"


def program_name() -> str:
  """How this user starts lagom-xla: by its path where no PATH has it."""
  started = pathlib.PurePath(sys.argv[0])
  if started.name != _NAME or shutil.which(_NAME):
    return _NAME
  return shlex.quote(str(started))


def today() -> str:
  """What to call the step without a plan."""
  return "what runs today" if environment.is_set() else "all defaults"


def uncosted() -> str:
  """That NCCL_MAX_CTAS is set, and not costed; "" where it is not set."""
  most = nccl_channels.inherited()
  if most is None:
    return ""
  return f"{nccl_channels.VARIABLE} is {most} here, and no time is under it"


# Calls that take about as long as their bytes: sorts, norms and the like.
_BY_BYTES = ("__cub$", "__cudnn$norm", "__cudnn$softmax", "__gpu$TopK")
# More are counted, not named.
_MOST_CALLS_NAMED = 3
_MOST_NAMED = 5
# Shares of the step from which on a scatter is worth a note.
_NOTED_FROM = 0.05


def unknown_work(step: step_lib.Step) -> Mapping[str, str]:
  """What is called, by the names of such calls that nobody measured."""
  module, found = step.analysis.module, {}
  for computation_id in module.executions:
    for instruction in module.computations[computation_id].instructions:
      kernel = step.analysis.kernels.get(instruction.id)
      if kernel is None or kernel.category != "other":
        continue
      target = instruction.custom_call_target
      if instruction.opcode == "fft":  # XLA calls cuFFT by one of its own.
        target = "fft"
      is_unknown = target and not target.startswith(_BY_BYTES)
      if is_unknown and step.kernel_cost(kernel).source != "measured":
        found[instruction.name] = target
  return found


def step_notes(step: step_lib.Step) -> Iterator[str]:
  """What to know of a step's figures, in sentences."""
  module = step.analysis.module
  if environment.is_set():
    yield f"What runs today is XLA's defaults with {environment.xla_flags()}."
  if (most := nccl_channels.inherited()) is not None:
    own = step.capped(None)  # NCCL takes its variable in place of XLA's cap.
    capped = own.timeline(channel_cap.capped(own.default, most))
    yield (
      f"{uncosted()} but this one: today's step takes"
      f" {in_words.ms(capped.step_time_us)} ms with it, {step.basis}."
    )
  if loops := _named(module, "while", module.loops_of_unknown_length):
    yield f"Counted once, as their trip counts are not known: {loops}."
  if conditionals := _named(module, "conditional"):
    yield (
      "Conditionals take their slowest branch each time, and totals count all"
      f" branches: {conditionals}."
    )
  if called := unknown_work(step):
    instructions = instructions_lib.of_step(step)
    named = dict.fromkeys(
      f"{target}{_at(instructions[name].source)}"
      for name, target in called.items()
    )
    yield (
      f"Only the bytes of {in_words.count(called, 'library call')} are costed,"
      " so that the step may take far longer:"
      f" {in_words.first_of(list(named), _MOST_CALLS_NAMED)}. A --profile of a"
      " run has their times."
    )
  if count := len(memory.recomputed(module)):
    yield (
      f"{in_words.count(count, 'instruction')} run again, as memory is short:"
      " this is the compiled module, which XLA changed after its scheduler."
    )


def _at(source: source_lines.SourceLine) -> str:
  """A source line in brackets; "" where none is known."""
  return f" ({source})" if source else ""


def _named(
  module: hlo.Module, opcode: str, names: Collection[str] | None = None
) -> str:
  """Instructions that run, with their source lines; "" for none."""
  lines = source_lines.SourceLines(module)
  found = [
    f"{instruction.name}{_at(lines.of_own(instruction))}"
    for computation_id in module.executions
    for instruction in module.computations[computation_id].instructions
    if instruction.opcode == opcode
    and (names is None or instruction.name in names)
  ]
  return in_words.first_of(found, _MOST_NAMED)


def scatter_notes(step: step_lib.Step, step_time_us: float) -> list[str]:
  """What to know about each scatter that could take much of the step."""
  instructions = functools.cache(lambda: instructions_lib.of_step(step))
  found = []
  for kernel in step.analysis.kernels.values():
    scatter = kernel.scatter
    if scatter is None:
      continue
    one_us = fusion.worst_scatter_us(scatter, step.cluster.gpu)
    worst_us = one_us * kernel.executions
    if worst_us <= _NOTED_FROM * step_time_us:
      continue
    expected_us = step.kernel_cost(kernel).time_us * kernel.executions
    found.append(
      f"{kernel.name}{_at(instructions()[kernel.name].source)} adds"
      f" {scatter.num_updates:,} updates of {scatter.window_elements:,}"
      f" {scatter.element_bits}-bit elements to {scatter.num_places:,} places"
      " by compare-and-swap, and updates of one place wait for each other:"
      f" {expected_us / 1e3:,.1f} ms per step if its indices repeat as the"
      f" words of a text do, {worst_us / 1e3:,.1f} ms if they are all the same"
      " (synthetic data, padding). 32-bit updates, a one-hot matrix product,"
      " or unique_indices=True where none repeats, avoid that."
    )
  return found


def tuning_notes(tuning: tuning_lib.Tuning) -> Iterator[str]:
  """What to know of a tuning's figures, in sentences."""
  if rests_on := arms_lib.rests_on(tuning.plan.xla.options):
    yield rests_on
  yield from step_notes(tuning.before)
  yield from scatter_notes(tuning.before, tuning.timeline_before.step_time_us)
  if note := recomputed(tuning):
    yield note
  if tuning.search.no_arms:
    yield f"No published XLA_FLAGS were tried: {tuning.search.no_arms}"
  if note := measured_run(tuning.plan):
    yield note


def plan_notes(plan: plan_lib.Plan) -> Iterator[str]:
  """What to know where a plan is verified, in sentences."""
  if (flags := environment.xla_flags()) != plan.xla_flags:
    yield (
      f"XLA_FLAGS is {flags or 'not set'}; where the plan was made it was"
      f" {plan.xla_flags or 'not set'}."
    )
  if note := uncosted():
    yield f"{note}."
  if note := measured_run(plan):
    yield note


def recomputed(tuning: tuning_lib.Tuning) -> str:
  """What XLA computes again for want of memory, and how it was found; or ""."""
  found = []
  default = tuning.search.default
  told = [(environment.options_in_words(), default)]
  if tuning.kept is not default:
    told.append(("the plan", tuning.kept))
  for which, candidate in told:
    module = candidate.runs.analysis.module
    if count := len(memory.recomputed(module)):
      scheduled_us = candidate.step.timeline(candidate.settings).step_time_us
      found.append(
        f"With {which} {in_words.count(count, 'instruction')}"
        f" run{'s' if count == 1 else ''} again, as memory is short:"
        f" {in_words.milliseconds(candidate.tuned.step_time_us)} by the"
        f" compiled module, {in_words.milliseconds(scheduled_us)} by the"
        " schedule."
      )
  return " ".join(found)


def measured_run(plan: plan_lib.Plan) -> str:
  """The run that a plan's costs are measured by; "" if they are predicted."""
  run = plan.profile
  if run is None:
    return ""
  shares = ", ".join(
    f"{share:.0%} of {kind}" for kind, share in run.measured_shares.items()
  )
  began = f" of {run.began_at}" if run.began_at else ""
  return (
    f"Costs rest on the profile {run.name}{began}:"
    f" {in_words.count(run.num_steps, 'step')} of"
    f" {in_words.count(run.num_devices, 'GPU')}. Measured are, by time,"
    f" {shares}; the rest is predicted, and scaled by what was."
  )


def profile_notes(profile: profile_lib.Profile) -> Iterator[str]:
  """What a trace lacks, in sentences."""
  trace = profile.trace
  for process, problems in trace.problems.items():
    yield f"{process}: the profiler says: {in_words.first_of(problems, 3)}"
  if trace.num_left_out:
    yield (
      f"{trace.num_left_out:,} launches of later steps are not read: the trace"
      " has more than it takes to tell what a step costs. Trace fewer steps."
    )
  if trace.num_other_files:
    others = in_words.count(trace.num_other_files, "older profile")
    yield f"Left out, as of other runs: {others}. Name a folder to see it."
  if trace.unread:
    yield f"An older profile is left out. {in_words.first_of(trace.unread, 1)}"
  if trace.platform == "CPU":
    yield (
      "Devices of one host share its cores: an instruction takes longest where"
      " others run beside it, on whatever device."
    )
  yield from _not_run(profile)
  alone = {i.name for i in profile.instances if not i.has_all_ranks}
  if alone:
    yield (
      f"Of {in_words.count(alone, 'collective')} the trace lacks ranks: own"
      " times may still have waits for those. Trace every process."
    )
  cut = len(profile.steps) - len(profile.whole_steps)
  if cut:
    yield (
      f"Not whole: {cut:,} of {in_words.count(profile.steps, 'step')}, as the"
      " trace was begun or ended inside, or lost events."
    )
  for device in trace.devices:
    if device.num_unnamed:
      yield (
        f"{device.name}: {device.num_unnamed:,} launches and copies"
        f" ({in_words.milliseconds(device.unnamed_us)}) name no HLO"
        " instruction."
      )
  clockless = [p.name for p in trace.processes if not p.has_clock]
  if clockless and len(trace.processes) > 1:
    yield (
      f"{', '.join(clockless)}: the trace does not say when it began; its clock"
      " is set by the collectives alone."
    )


def _not_run(profile: profile_lib.Profile) -> Iterator[str]:
  """Kernels and collectives of the module that the trace does not have."""
  ran = {e.name for s in profile.steps for e in (*s.kernels, *s.collectives)}
  reason = ": branches that were not taken"
  if profile.trace.platform == "GPU":
    reason += (
      ", or command buffers, which hide their kernels"
      " (--xla_gpu_enable_command_buffer=)"
    )
  for what, names, why in (
    ("kernels", profile.kernels, reason),
    ("collectives", profile.collectives, ""),
  ):
    missing = [name for name in names if name not in ran]
    if missing:
      yield (
        f"{len(missing):,} of {len(names):,} {what} are not in the trace, such"
        f" as {missing[0]}{why}."
      )
