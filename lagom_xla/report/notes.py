# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Notes on figures: their basis and limits, in sentences."""

from __future__ import annotations

import collections
from collections.abc import Collection, Iterator, Mapping
import pathlib
import re
import shlex
import shutil
import sys
from typing import Final

from lagom_xla import plan as plan_lib
from lagom_xla.apply.nccl import state as state_lib
from lagom_xla.compile import rewriting
from lagom_xla.costs import fusion
from lagom_xla.costs import in_words
from lagom_xla.costs import routes
from lagom_xla.costs import scenario
from lagom_xla.costs import step as step_lib
from lagom_xla.costs.nccl import environment as nccl_environment
from lagom_xla.flags import collective_routes
from lagom_xla.flags import debug_options
from lagom_xla.flags import environment
from lagom_xla.passes import hlo
from lagom_xla.passes import source_lines
from lagom_xla.passes.schedule import memory
from lagom_xla.profiling import costing as costing_lib
from lagom_xla.profiling import profile as profile_lib
from lagom_xla.report import instructions as instructions_lib
from lagom_xla.search.nccl import channel_cap
from lagom_xla.search.xla import arms as arms_lib
from lagom_xla.search.xla import candidates as candidates_lib
from lagom_xla.search.xla import evaluation
from lagom_xla.search.xla import knobs
from lagom_xla.tuner import tuning as tuning_lib

_NAME: Final = "lagom-xla"


def program_name() -> str:
  """The user's command for lagom-xla: a path if it is not on PATH."""
  started = pathlib.PurePath(sys.argv[0])
  if started.name != _NAME or shutil.which(_NAME):
    return _NAME
  return shlex.quote(str(started))


def today() -> str:
  """The name of the step without a plan."""
  return "what runs today" if environment.is_set() else "all defaults"


def costed() -> str:
  """A note on NCCL variables that all times consider; "" if none is set."""
  found = nccl_environment.costed()
  if not found:
    return ""
  return (
    f"NCCL's choices are limited by {nccl_environment.in_words(found)} here;"
    " all times take this into account."
  )


def uncosted() -> str:
  """A note on NCCL variables that times ignore; "" if none is set."""
  found = dict(nccl_environment.uncosted())
  if state_lib.is_ours(found.get(nccl_environment.TUNER, "")):
    del found[nccl_environment.TUNER]
  if len(found) > 1:
    said = nccl_environment.in_words(found)
    return f"{said} are set here, but times do not take them into account"
  for name, value in found.items():
    return f"{name} is {value} here, but times do not take it into account"
  return ""


# Most names in a note; the rest are counted.
_MOST_CALLS_NAMED = 3
_MOST_NAMED = 5
# Least share of the step for a note on scatters and ragged products.
_NOTED_FROM = 0.05
_RAGGED_FUSION = "xla_gpu_experimental_use_ragged_dot_fusion"
# An instruction's op_name ends with the primitive.
_RAGGED = re.compile(r"(?:^|/)ragged_dot(?:_general)?$")


def _running(module: hlo.Module) -> Iterator[hlo.Instruction]:
  """The instructions of all computations that run as sequences."""
  for computation_id in module.executions:
    yield from module.computations[computation_id].instructions


def _unconfigured(step: step_lib.Step) -> str:
  """Data missing from a module without any backend_config; "" if none."""
  missing, module = {}, step.analysis.module
  for instruction in _running(module):
    if module.raw_backend_config(instruction):
      return ""
    kernel = step.analysis.kernels.get(instruction.id)
    target = instruction.custom_call_target
    if kernel and kernel.flops:  # Its FLOPs follow from its shapes.
      continue
    if target.startswith(("__cublas", "__cudnn")):
      missing["matmuls in library calls"] = True
    elif instruction.opcode == "while" and module.loops_of_unknown_length:
      missing["trip counts of loops"] = True
  return " and ".join(missing)


def step_notes(step: step_lib.Step) -> Iterator[str]:
  """Notes on a step's figures, in sentences."""
  module = step.analysis.module
  if environment.is_set():
    yield f"What runs today is {environment.what_runs()}."
  if word := environment.unread():
    yield (
      f"XLA stops reading XLA_FLAGS at {word}, which is not a flag:"
      f' `{program_name()} flags --check "$XLA_FLAGS"` shows what to write.'
    )
  if note := costed():
    yield note
  cluster = step.cluster
  if (
    cluster.node.fabric == "efa"
    and cluster.num_nodes > 1
    and cluster.gpu.compute_capability >= (9, 0)
  ):
    yield (
      "Times assume NCCL's own choices; on EFA, aws-ofi-nccl brings a tuner"
      " that may choose differently between nodes."
    )
  if note := uncosted():
    if caps := nccl_environment.caps():
      # NCCL's variables take precedence over XLA's cap.
      own = step.capped(None)
      capped = own.timeline(channel_cap.inherited(own, caps))
      which = "it" if "take it" in note else "the cap on channels"
      note += (
        ", except for this: today's step takes"
        f" {in_words.ms(capped.step_time_us)} ms with {which}, {step.basis}"
      )
    yield f"{note}."
  yield from route_notes(step)
  if loops := _named(module, "while", module.loops_of_unknown_length):
    yield f"XLA gives no trip count for these loops; they count once: {loops}."
  if missing := _unconfigured(step):
    yield (
      f"The module's text lacks backend_config, and with it {missing}: the real"
      " step may take far longer. Use the file that XLA dumps."
    )
  if conditionals := _named(module, "conditional"):
    yield (
      "Each conditional is assumed to take its slowest branch, and totals count"
      f" all branches: {conditionals}."
    )
  if called := step.unknown_calls:
    yield (
      "The step may take far longer, since only the bytes of"
      f" {in_words.count(called, 'library call')} are costed:"
      f" {_calls(step, called)}. Pass --profile with a trace of a run to use"
      " measured times."
    )
  if called := step.calls_that_may_communicate:
    yield (
      f"{in_words.count(called, 'library call')} may communicate between"
      f" devices: {_calls(step, called)}. lagom_xla does not see, time or tune"
      " collectives inside them."
    )
  yield from _stream_notes(step)
  yield from _permute_notes(step)
  yield from _run_again("today", module)
  yield from _scatter_notes(step)
  yield from _ragged_notes(step)
  yield from _own_kernel_notes(step)


def _own_kernel_notes(step: step_lib.Step) -> Iterator[str]:
  """A note on collectives that XLA runs without NCCL."""
  kinds = collections.Counter(
    c.kind for c in step.analysis.collectives if c.name in step.own_kernels
  )
  if not kinds:
    return
  named = " and ".join(
    in_words.count(number, kind) for kind, number in sorted(kinds.items())
  )
  is_one = kinds.total() == 1
  yield (
    f"XLA runs {named} in its own {'kernel' if is_one else 'kernels'}: NCCL"
    f" settings do not affect {'it' if is_one else 'them'}, and the times rest"
    " on few measurements (docs/cost_model.md)."
  )


def _calls(step: step_lib.Step, called: Mapping[str, str]) -> str:
  """The library calls, with source lines."""
  instructions = instructions_lib.of_step(step)
  named = dict.fromkeys(
    f"{target}{_at(instructions[name].source)}"
    for name, target in called.items()
  )
  return in_words.some(list(named), _MOST_CALLS_NAMED)


# Least shares of a step, and of permutes' time, for a note.
_LEAST_BESIDE = 1e-3
_LEAST_APART = 0.1


def _stream_notes(step: step_lib.Step) -> Iterator[str]:
  """Whether collectives of two fabrics overlap, and what to do about it."""
  if not knobs.spans_two_fabrics(step):
    return
  today_us, one_us = (
    s.timeline(step.default).step_time_us for s in (step, step.on_one_stream)
  )
  if one_us > (1 + _LEAST_BESIDE) * today_us:
    yield (
      "Collectives within nodes run beside those between nodes; in sequence,"
      f" this step would take {in_words.ms(one_us)} ms, {step.basis}. Try a"
      " short run first, as two NCCL kernels may deadlock (openxla/xla#46541)."
    )
  elif knobs.is_latency_hiding(step.analysis.module) and (
    debug_options.find(knobs.FABRICS) is None
  ):
    yield (
      "Collectives within nodes and those between nodes wait for each other:"
      f" upgrade to JAX 0.12 and set --{knobs.FABRICS}=scale_up_fabric to run"
      " them side by side."
    )


def _permute_notes(step: step_lib.Step) -> Iterator[str]:
  """A note on permutes that are slower in a communicator of all GPUs."""
  apart, runs = step.permuting_apart, step.executions
  if apart is None:
    return
  kept = {
    key: (step.default[key].num_channels, apart.default[key].num_channels)
    for key in step.permuting.keys() - apart.permuting.keys()
  }
  us, apart_us = (
    sum(runs[k] * s.predict(k, s.default[k]).time_us for k in kept)
    for s in (step, apart)
  )
  if us <= (1 + _LEAST_APART) * apart_us:
    return
  few, many = max(kept.values(), key=lambda pair: pair[1] / pair[0])
  num = sum(step.key_of[c.name] in kept for c in step.analysis.collectives)
  yield (
    f"XLA runs {in_words.count(num, 'permute')} in a communicator of all GPUs,"
    f" where NCCL gives each pair {in_words.count(few, 'channel')} instead of"
    f" {many}: they take {in_words.ms(us)} ms alone, and"
    f" {in_words.ms(apart_us)} with --{collective_routes.CONNECTED}=true."
  )


def route_notes(step: step_lib.Step) -> Iterator[str]:
  """Notes on collectives that NCCL settings do not affect."""
  routed = (one for one in step.run_otherwise() if one[1] != "XLA kernel")
  if routes_in_words := in_words.run_otherwise(routed):
    yield f"NCCL settings do not affect {routes_in_words}."
  if step.keyed and collective_routes.registers_buffers():
    yield f"Times do not include the gain of {collective_routes.REGISTERED}."
  if step.unmeasured:
    sure_us = step.under(scenario.SURE).timeline(step.default).step_time_us
    yield (
      "Times of some of these rest on measured rates, not on measurements of"
      " their own. With NCCL's kernels the step would take"
      f" {in_words.ms(sure_us)} ms: the ranges reach up to that."
    )
  asked = step.asked
  is_marked = any(c.memory == "symmetric" for c in step.analysis.collectives)
  if not (asked.symmetric or is_marked):
    return
  version = in_words.version(asked.nccl_version)
  if asked.nccl_version < routes.LEAST_NCCL:
    yield (
      f"NCCL {version} has no symmetric buffers: they need"
      f" {in_words.version(routes.LEAST_NCCL)} or newer."
    )
    return
  if window_bytes := routes.window_bytes(step.keyed, asked):
    yield (
      f"Symmetric buffers are costed for NCCL {version}. They lie outside"
      f" JAX's pool and take at least {in_words.gigabytes(window_bytes)}: set"
      " XLA_PYTHON_CLIENT_MEM_FRACTION to leave room for them."
    )
    if any(
      route.by == "copy engines" and route.cost.num_channels
      for route in step.routes.values()
    ):
      yield (
        f"With NCCL {version}, copies by copy engines overlap no kernels;"
        f" {in_words.version(routes.OVERLAPPING_NCCL)} fixes that."
      )


def _run_again(when: str, module: hlo.Module) -> Iterator[str]:
  """A note on instructions that XLA rematerializes to save memory."""
  if count := len(memory.recomputed(module)):
    yield (
      f"{in_words.count(count, 'instruction')} run{'s' if count == 1 else ''}"
      f" again {when} because memory is short: times are those of the compiled"
      " module, which XLA changed after scheduling."
    )


def _at(source: source_lines.SourceLine) -> str:
  """A source line in parentheses; "" if unknown."""
  return f" ({source})" if source else ""


def _named(
  module: hlo.Module, opcode: str, names: Collection[str] | None = None
) -> str:
  """Running instructions of an opcode, with source lines; "" for none."""
  lines = source_lines.SourceLines(module)
  found = [
    f"{instruction.name}{_at(lines.of_own(instruction))}"
    for instruction in _running(module)
    if instruction.opcode == opcode
    and (names is None or instruction.name in names)
  ]
  return in_words.some(found, _MOST_NAMED)


def _scatter_notes(step: step_lib.Step) -> Iterator[str]:
  """A note on each scatter that could take a large part of the step."""
  step_us = step.timeline(step.default).step_time_us
  for kernel in step.analysis.kernels.values():
    scatter = kernel.scatter
    if scatter is None:
      continue
    one_us = fusion.worst_scatter_us(scatter, step.cluster.gpu)
    worst_us = one_us * kernel.executions
    if worst_us <= _NOTED_FROM * step_us:
      continue
    source = instructions_lib.of_step(step)[kernel.name].source
    expected_us = step.kernel_cost(kernel).time_us * kernel.executions
    yield (
      f"{kernel.name}{_at(source)} adds"
      f" {scatter.num_updates:,} updates of {scatter.window_elements:,}"
      f" {scatter.element_bits}-bit elements to {scatter.num_places:,} places"
      " by compare-and-swap, and updates of one place wait for each other:"
      f" {expected_us / 1e3:,.1f} ms per step if indices repeat like words in"
      f" text, {worst_us / 1e3:,.1f} ms if they are all the same (synthetic"
      " data, padding). To avoid that, use 32-bit updates, a one-hot matmul,"
      " or unique_indices=True if no index repeats."
    )


def _ragged_notes(step: step_lib.Step) -> Iterator[str]:
  """A note on ragged products that XLA computes for every group.

  ragged_dot_rewriter.cc turns them into dense products of all rows with all
  groups, unless cuDNN has a grouped one.
  """
  module = step.analysis.module
  time_us, num_flops = 0.0, 0
  for computation_id in module.executions:
    computation = module.computations[computation_id]
    for instruction in computation.instructions:
      kernel = step.analysis.kernels.get(instruction.id)
      if kernel and _is_dense_ragged(module, instruction):
        time_us += step.kernel_cost(kernel).time_us * kernel.executions
        num_flops += kernel.flops * kernel.executions
  if time_us <= _NOTED_FROM * step.timeline(step.default).step_time_us:
    return
  yield (
    "XLA computes jax.lax.ragged_dot as dense matmuls of all rows with all"
    f" groups: {num_flops / 1e12:,.3g} TFLOP, {in_words.ms(time_us)} ms per"
    f" step, {step.basis}, though each row needs one group. With cuDNN 9.22 or"
    f" newer, --{_RAGGED_FUSION}=true computes only that, in bf16 and f16, in"
    " the forward pass and for the gradients of rows; a compile without a GPU"
    " does not show it. Grouped kernels, such as MaxText's megablox or"
    " Tokamax's ragged_dot, do so without the flag."
  )


def _is_dense_ragged(module: hlo.Module, instruction: hlo.Instruction) -> bool:
  if not _RAGGED.search(instruction.metadata.op_name):
    return False
  inside = (
    inner.opcode
    for called in instruction.called_computation_ids
    for inner in module.computations[called].instructions
  )
  target = instruction.custom_call_target
  is_library = target.startswith("__cublas") and "group" not in target.lower()
  return is_library or "dot" in (instruction.opcode, *inside)


def tuning_notes(tuning: tuning_lib.Tuning) -> Iterator[str]:
  """Notes on a tuning's figures, in sentences."""
  yield from _own_flags(tuning.plan)
  yield from _local_copies(tuning.plan)
  if fixed := environment.unchangeable():
    yield (
      f"Not searched, because {environment.BEATS}: {', '.join(fixed)}. To"
      " search them, remove them there."
    )
  if note := measured_run(tuning.plan):
    yield note
  yield from step_notes(tuning.before)
  if tuning.kept is not tuning.search.default:
    yield from _run_again("with the plan", tuning.kept.runs.analysis.module)
  yield from _offered(tuning)
  if tuning.search.no_arms:
    yield f"No published XLA_FLAGS were tried: {tuning.search.no_arms}"


def strands(tuning: tuning_lib.Tuning) -> str:
  """Why an in-process search left strands out; "" if the plan has strands."""
  if tuning.plan.xla.program.strands != "none":
    return ""
  tried = [c for c in tuning.candidates if c.config.program.strands != "none"]
  scheduled = [c for c in tried if isinstance(c, candidates_lib.Candidate)]
  refused = [c for c in tried if isinstance(c, candidates_lib.Refused)]
  if scheduled:
    best = min(scheduled, key=candidates_lib.tuned_us)
    why = (
      f"with {rewriting.in_words(best.config.program)} the step takes"
      f" {in_words.ms(best.tuned.step_time_us)} ms instead of"
      f" {in_words.ms(tuning.kept.tuned.step_time_us)}"
      f" ({tuning.search.obstacle(best)})."
    )
  elif refused:
    first = next((one for one in refused if one.is_too_large), refused[0])
    why, *_ = first.reason.splitlines()
    if not first.is_too_large:
      why += (
        " Strands need a loop over micro-batches, or a batch that"
        " lagom_xla.micro_batches splits."
      )
  elif tuning.stopped is not None:
    why = "the search was stopped before it tried them."
  else:
    return ""
  return (
    "No strands (two micro-batches that overlap, docs/strands.md) in the plan:"
    f" {why}"
  )


def _local_copies(plan: plan_lib.Plan) -> Iterator[str]:
  """A note on the condition for copies within a process."""
  name = collective_routes.LOCAL_COPIES
  if name in plan.xla.options:
    yield (
      f"--{name}=true has an effect only if one process has all GPUs of a node."
      " That is assumed here unless --processes-per-node says otherwise."
    )


# Least gain of an option for a note, as a share of the step.
_LEAST_OFFERED = 0.005


def _offered(tuning: tuning_lib.Tuning) -> Iterator[str]:
  """Notes on options that are left out because too little is known."""
  step, options = tuning.kept.runs, tuning.plan.xla.options

  def step_us(one: step_lib.Step) -> float:
    settings = {**one.default, **tuning.kept.settings}
    return one.timeline(settings).step_time_us

  for name, why, needs in _left_out(step):
    asked = evaluation.asked({**options, name: True})
    with_it = step.asking(asked)
    if name in options or not with_it.routes:
      continue
    planned_us, offered_us = map(step_us, (step, with_it))
    if offered_us < (1 - _LEAST_OFFERED) * planned_us:
      yield (
        f"Not in the plan because {why}: --{name}=true. With it the step would"
        f" take {in_words.ms(offered_us)} ms instead of"
        f" {in_words.ms(planned_us)}, {needs}."
      )


def _left_out(step: step_lib.Step) -> Iterator[tuple[str, str, str]]:
  """Options that this plan leaves out: name, reason, and requirements."""
  name = collective_routes.SYMMETRIC
  is_known = collective_routes.installed_nccl() is not None
  is_there = debug_options.find(name) is not None
  if is_there and not (is_known or step.asked.symmetric):
    asked = evaluation.asked({name: True})
    least_bytes = routes.window_bytes(step.keyed, asked)
    yield (
      name,
      "no NCCL is installed here",
      "not counting copies of arguments, with NCCL"
      f" {in_words.version(routes.OVERLAPPING_NCCL)} or newer and at least"
      f" {in_words.gigabytes(least_bytes)} outside JAX's"
      " pool. To have it tried, install the job's NCCL beside JAX: pip install"
      " nvidia-nccl-cu13==VERSION",
    )
  if not step.asked.copies_locally and step.cluster.processes_per_node == 1:
    yield (
      collective_routes.LOCAL_COPIES,
      "exchanges by copies were never measured",
      "if one process has all GPUs of a node: try it in a short run",
    )


def plan_notes(plan: plan_lib.Plan) -> Iterator[str]:
  """Notes for verifying a plan, in sentences."""
  yield from _own_flags(plan)
  yield from _local_copies(plan)
  yield from environment.differences(plan.xla_flags, plan.compiler_options)
  here = nccl_environment.costed()
  if here != plan.nccl_variables:
    yield (
      f"NCCL's variables differ: {nccl_environment.in_words(here)} here, and"
      f" {nccl_environment.in_words(plan.nccl_variables)} where the plan was"
      " made."
    )
  if note := uncosted():
    yield f"{note}."
  if note := arms_lib.on_products(plan.xla):
    yield note
  if note := measured_run(plan):
    yield note


def _own_flags(plan: plan_lib.Plan) -> Iterator[str]:
  """Notes on flags that the program sets, and their effect on env.sh."""
  options = plan.xla.options
  if options and not plan.needs_process:
    yield from filter(
      None, (own.about(options) for own in environment.found().own)
    )


def measured_run(plan: plan_lib.Plan) -> str:
  """A note on the run behind a plan's costs; "" if costs are predicted."""
  run = plan.profile
  if run is None:
    return ""
  shares = ", ".join(
    f"{share:.0%} of {kind}" for kind, share in run.measured_shares.items()
  )
  began = f" of {run.began_at}" if run.began_at else ""
  return (
    f"Costs come from the profile {run.name}{began}:"
    f" {in_words.count(run.num_steps, 'step')} of"
    f" {in_words.count(run.num_devices, 'GPU')}. By time, {shares} are"
    " measured; the rest is predicted and scaled to match."
  )


def profile_notes(profile: profile_lib.Profile) -> Iterator[str]:
  """Notes on what a trace lacks, in sentences."""
  trace = profile.trace
  for process, problems in trace.problems.items():
    yield f"{process}: the profiler says: {in_words.some(problems, 3)}"
  if trace.num_left_out:
    yield (
      f"{trace.num_left_out:,} launches of later steps were skipped: the trace"
      " is longer than needed. Trace fewer steps."
    )
  if trace.num_other_files:
    others = in_words.count(trace.num_other_files, "older profile")
    yield f"Skipped {others} of other runs. Pass its folder to see one."
  if trace.unread:
    yield f"Skipped an older profile. {in_words.some(trace.unread, 1)}"
  if trace.platform == "CPU":
    yield (
      "CPU devices of one host share its cores, so an instruction takes longer"
      " while any other device runs one."
    )
  ran = {e.name for s in profile.steps for e in (*s.kernels, *s.collectives)}
  reason = ": branches that were not taken"
  if trace.platform == "GPU":
    reason += (
      ", or command buffers, which hide their kernels"
      " (--xla_gpu_enable_command_buffer=)"
    )
  for what, names, why in (
    ("kernels", profile.kernels, reason),
    ("collectives", profile.collectives, ""),
  ):
    if missing := [name for name in names if name not in ran]:
      yield (
        f"{len(missing):,} of {len(names):,} {what} are not in the trace, such"
        f" as {missing[0]}{why}."
      )
  alone = {i.name for i in profile.instances if not i.has_all_ranks}
  if alone:
    yield (
      f"The trace lacks ranks of {in_words.count(alone, 'collective')}: their"
      " own times may include waits for those ranks. Trace every process."
    )
  cut = len(profile.steps) - len(profile.whole_steps)
  if cut:
    yield (
      f"{cut:,} of {in_words.count(profile.steps, 'step')}"
      f" {'is' if cut == 1 else 'are'} incomplete: the trace began or ended"
      " inside, or lost events."
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
      " is aligned by collectives only."
    )


def cost_notes(
  step: step_lib.Step, costed: costing_lib.Costing | None
) -> Iterator[str]:
  """Notes on a step's measured costs, and on what its trace lacks."""
  if costed is None:
    return
  by_name, by_work, scaled = costing_lib.num_priced(costed, step)
  num_kernels = by_name + by_work + scaled
  yield (
    f"Of {in_words.count(num_kernels, 'kernel')}, {by_name:,} have measured"
    f" costs, {by_work:,} have measured costs of kernels of equal work, and"
    f" {scaled:,} have predicted costs, times the median ratio of their"
    " kind"
  )
  if losses := costed.measured.losses:
    yield (
      f"{len(losses):,} pairs of a kernel's work and a collective have measured"
      f" slowdowns, {min(losses.values()):.2f} to {max(losses.values()):.2f}"
      " times the model's"
    )
  # The variation of measured costs, as far as the run shows.
  measured = costed.measured
  for what, factors in (
    ("the time of lone kernels", measured.kernel_factors),
    ("the time of collectives", measured.collective_factors),
    ("the step time over its replay", measured.step_factors),
  ):
    if factors is None:
      yield (
        f"The run does not show how much {what} varies: the model's range is"
        " used"
      )
    else:
      high, low = factors
      yield (
        f"From step to step, {what} is {low:.3f} to {high:.3f} times its cost"
        " here, 9 times in 10"
      )
  for names, what in (
    (costed.never_alone, "never ran alone in the profile, and are predicted"),
    (costed.not_run, "of the profile's module are not in its trace"),
    (costed.has_waits, "may be faster: the trace lacks ranks they wait for"),
  ):
    if names:
      yield f"{len(names):,} {what}, such as {names[0]}"
