# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""lagom-xla tune: searches, recompiles, checks, and writes a plan."""

from __future__ import annotations

import argparse
from collections.abc import Callable
import dataclasses
import pathlib
import shlex
import sys
from typing import TYPE_CHECKING

from lagom_xla import errors
from lagom_xla.cli import options
from lagom_xla.cli import output
from lagom_xla.cli import stopping

if TYPE_CHECKING:
  from lagom_xla.explain import explanation as explanation_lib
  from lagom_xla.explain import sentences
  from lagom_xla.profiling import profile as profile_lib
  from lagom_xla.search.xla import candidates as candidates_lib
  from lagom_xla.tuner import tuning as tuning_lib

_EXAMPLES = f"""\
{options.TARGET_HELP}

files in --out (an older plan there is replaced):
  plan.json        the plan, for lagom-xla verify and lagom_xla.tune(plan=DIR)
  env.sh           for your launcher to source before each process starts
  nccl_table.bin   NCCL settings per collective, for the tuner plugin
  report.json.gz   for lagom-xla report
  explain.json.gz  for lagom-xla explain
Ctrl-C, SIGTERM and --time-budget write them for the best plan so far.
docs/launchers.md shows how to use env.sh with Slurm, Kubernetes and MPI.

examples:
  lagom-xla tune train.py:train_step --cluster=16x8xh100 --out=plan
  lagom-xla tune step.hlo.xz --cluster=2x8xh100 --format=json > tuning.json"""

# Workers to start while the step is lowered: tuning begins with several
# compiles at once.
_NUM_EARLY = 2
# Rewrites are worth a search if they can hide at least this share of the step.
_LEAST_BEYOND = 0.005


def add(commands) -> None:
  """Adds the command."""
  command = options.add_command(
    commands,
    "tune",
    _run,
    "Searches XLA options and NCCL settings, checks that the best ones have an"
    " effect, and writes a plan.",
    _EXAMPLES,
  )
  options.add_target(command)
  options.add_format(command)
  options.add_profile(command)
  options.add_pictures(command)
  options.add_compiling(command)
  options.add_time_budget(command)
  command.add_argument(
    "--out",
    default="plan",
    metavar="DIR",
    help="folder for the plan's files (default: %(default)s)",
  )
  applied = command.add_mutually_exclusive_group()
  applied.add_argument(
    "--flags-only",
    dest="applied",
    action="store_const",
    const="flags",
    help="plan for a job that sets only XLA_FLAGS",
  )
  applied.add_argument(
    "--env-only",
    dest="applied",
    action="store_const",
    const="env",
    help="plan for a job that sets XLA_FLAGS and NCCL_MAX_CTAS, without the"
    " NCCL tuner plugin",
  )
  applied.add_argument(
    "--in-process",
    action="store_true",
    help="also search what no launcher can set: rewrites of the program"
    " (docs/strands.md), groups of combined collectives, costs for XLA's"
    " scheduler, and orders; to use such a plan, wrap the step in"
    " lagom_xla.tune(plan=DIR)",
  )
  command.set_defaults(applied="all")


def _run(arguments: argparse.Namespace) -> None:
  folder = pathlib.Path(arguments.out)
  # No budget stops the compile of today's step: every plan needs it.
  go_on = stopping.pause_time_budget()
  try:
    tuning, (profile, costs), last = _tune(arguments, folder, go_on)
    stopping.end_time_budget()
  except errors.Stopped as stop:
    output.say(
      f"stopped by {stop.reason} before today's step was compiled: there is no"
      " plan."
    )
    stopping.end(stop.exit_status or stopping.NOTHING_FOUND)
  from lagom_xla.costs import in_words
  from lagom_xla.report import notes
  from lagom_xla.report import results
  from lagom_xla.report import terminal

  files, explained = _write(arguments, tuning, profile, folder)
  output.write_result(
    arguments,
    lambda: results.tuning(tuning, costs),
    lambda console: terminal.show_tuning(
      console,
      tuning,
      files,
      beyond=(
        notes.strands(tuning) if arguments.in_process else beyond(explained)
      ),
      costed=costs,
      is_verbose=arguments.verbose,
    ),
    files,
  )
  if tuning.stopped is not None:
    output.say(
      f"stopped by {tuning.stopped.reason} after"
      f" {in_words.count(tuning.candidates, 'candidate')}, while {last}:"
      f" nothing after that was tried. The plan in {folder} is the best of"
      " them; check it with `lagom-xla verify`."
      " The next run reuses what was compiled."
    )
    stopping.end(tuning.stopped.exit_status)


def _tune(
  arguments: argparse.Namespace,
  folder: pathlib.Path,
  go_on: Callable[[], None],
) -> tuple[tuning_lib.Tuning, options.Priced, str]:
  """The tuning, what prices it, and what went on when it ended."""
  options.check_target(arguments)
  with options.at_work(arguments, lines=True, num_early=_NUM_EARLY) as (
    bar,
    workers,
  ):
    from lagom_xla.apply import files as files_lib

    files_lib.check(folder)
    options.check_pictures(arguments)
    from lagom_xla.cli import naming
    from lagom_xla.search.xla import candidates as candidates_lib
    from lagom_xla.search.xla import evaluation
    from lagom_xla.search.xla import joint
    from lagom_xla.tuner import tuner

    target = options.load_target(arguments, bar, workers)
    bar.say("reading the profile" if arguments.profile else "costing the step")
    default_us: float | None = None
    outcome = ""

    def found(
      candidate: candidates_lib.Candidate | candidates_lib.Refused,
    ) -> None:
      nonlocal default_us, outcome
      outcome = outcome_in_words(candidate, default_us)
      if isinstance(candidate, candidates_lib.Refused):
        return
      if bar.num_done == 0:
        options.check_profile(arguments, candidate.step)
        options.warn_of_repeated_work(target, candidate.step)
        if warning := evaluation.warning(target, candidate.peak_bytes):
          output.say(warning)
      if default_us is None:
        default_us = candidate.under_nccl_defaults.step_time_us
        go_on()

    def advance(words: str) -> None:
      nonlocal outcome
      bar.advance(words, outcome)
      outcome = ""
      bar.say("choosing what to compile next")

    budget_s = arguments.time_budget
    # Options take a part, and strands and groups with `in_process` as much.
    # What is left is for orders, and to check the plan.
    num_parts = 4 if arguments.in_process else 2
    with (
      bar.told_of_compiles(naming.Names(naming.of_arms(target))),
      options.pricing(arguments.profile, target) as priced,
    ):
      tuning = tuner.tune(
        target,
        seconds=joint.SECONDS if budget_s is None else budget_s / num_parts,
        in_process=arguments.in_process,
        applied=arguments.applied,
        progress=advance,
        found=found,
        expect=bar.estimate,
      )
    if tuning.stopped is None:
      try:
        advice = options.advised(target, tuning.before, bar)
        tuning = dataclasses.replace(tuning, advice=advice)
      except errors.Stopped as stop:  # The plan is complete.
        stop.is_caught = True
        if stop.exit_status:
          tuning = dataclasses.replace(tuning, stopped=stop)
    return tuning, priced, bar.words


def beyond(step: explanation_lib.Step) -> str:
  """The possible gain of rewriting the program, in words."""
  from lagom_xla.costs import in_words
  from lagom_xla.report import notes

  at_most = in_words.milliseconds(step.in_process_us)
  if step.in_process_us < _LEAST_BEYOND * step.step_us:
    return (
      f"Rewriting the program (docs/strands.md) could save {at_most} more at"
      " most, so --in-process would bring little."
    )
  left = in_words.milliseconds(step.between_products_us)
  given = [
    word for word in sys.argv[1:] if word not in ("--flags-only", "--env-only")
  ]
  again = f"{notes.program_name()} {shlex.join([*given, '--in-process'])}"
  share = "all" if at_most == left else at_most
  return (
    f"No option can hide {left} of the waits, because matmuls before and after"
    " need the data. Rewriting the program (docs/strands.md) could hide up to"
    f" {share} of that. To try it, run `{again}`; to use its plan, wrap the"
    " step in lagom_xla.tune(plan=DIR)."
  )


def outcome_in_words(
  candidate: candidates_lib.Candidate | candidates_lib.Refused,
  default_us: float | None,
) -> str:
  """A candidate's step time, relative to `default_us`.

  `default_us` is the step time under all defaults; None for the default itself,
  which is told without and with NCCL settings.
  """
  from lagom_xla.costs import in_words
  from lagom_xla.report import settings
  from lagom_xla.search.xla import candidates as candidates_lib

  if isinstance(candidate, candidates_lib.Refused):
    return f": {settings.refusal(candidate.reason, candidate.config.program)}"
  own_us = candidate.under_nccl_defaults.step_time_us
  tuned_us = candidate.tuned.step_time_us
  tuned = (
    f"{in_words.ms(tuned_us)} ms ({tuned_us / (default_us or own_us) - 1:+.2%})"
  )
  if default_us is not None:
    return f": {tuned}"
  words = f": {in_words.ms(own_us)} ms"
  if in_words.ms(tuned_us) == in_words.ms(own_us):
    return words
  return f"{words}; with the best NCCL settings {tuned}"


def _not_tried(
  arguments: argparse.Namespace, tuning: tuning_lib.Tuning
) -> sentences.Commands:
  """The commands that try what this run did not."""
  from lagom_xla.explain import sentences

  tune = options.command("tune", arguments)
  is_whole = tuning.stopped is None
  return sentences.Commands(
    options="" if is_whole else tune,
    in_process=""
    if is_whole and arguments.in_process
    else f"{tune} --in-process",
  )


def _write(
  arguments: argparse.Namespace,
  tuning: tuning_lib.Tuning,
  profile: profile_lib.Profile | None,
  folder: pathlib.Path,
) -> tuple[list[pathlib.Path], explanation_lib.Step]:
  """Writes the plan's files and the pictures.

  Also returns the explanation of the step with the plan.
  """
  from lagom_xla.apply import files as files_lib
  from lagom_xla.cli import progress
  from lagom_xla.explain import explaining
  from lagom_xla.explain import explanation as explanation_lib
  from lagom_xla.report.page import contents
  from lagom_xla.report.page import report

  before, kept = tuning.before, tuning.kept
  with progress.Bar(lines=False, is_quiet=arguments.quiet) as bar:
    bar.say(f"writing {folder}")
    files = files_lib.write(tuning.plan, folder)
    step_us = options.measured_us(profile)
    page = contents.of_tuning(tuning, folder=str(folder), measured_us=step_us)
    files.append(report.write(page, folder))
    if arguments.report:
      files.append(pathlib.Path(arguments.report))
      report.draw(page, files[-1])
    runs = [
      ("before", before, before.default),
      ("after", kept.runs, kept.settings),
    ]
    files += options.write_trace(arguments, profile, runs)
    commands = _not_tried(arguments, tuning)
    if tuning.plan.is_default:
      explanation = explaining.of_step(before, tuning.advice, commands)
    else:
      explanation = explaining.of_plan(
        before, kept.runs, kept.settings, tuning.advice, commands
      )
    files.append(explanation_lib.write(explanation, folder))
    return files, explanation.after or explanation.before
