# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""The main program: parses the command line and runs a command.

Each command has a function `add(commands)`, which adds its arguments and the
function that runs it. It imports only argparse, so help is instant. JAX is
imported when a command runs, after the environment is set up.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
import contextvars
import gc
import os
import sys
import traceback

from absl import app
from absl import flags as absl_flags
from absl import logging
from absl.flags import argparse_flags

import lagom_xla
from lagom_xla import errors
from lagom_xla import processes
from lagom_xla.cli import output
from lagom_xla.cli import stopping
from lagom_xla.cli.commands import clusters
from lagom_xla.cli.commands import flags
from lagom_xla.cli.commands import inspect
from lagom_xla.cli.commands import installation
from lagom_xla.cli.commands import plan
from lagom_xla.cli.commands import tune
from lagom_xla.cli.commands import whatif

# In the order of the help.
_COMMANDS = (
  *(inspect.add, tune.add, plan.add_report, inspect.add_explain),
  *(plan.add_verify, whatif.add, inspect.add_profile, flags.add),
  *(flags.add_knobs, plan.add_plugin, clusters.add, clusters.add_calibrate),
  *(installation.add_schema, installation.add_doctor),
  installation.add_completion,
)
_EXAMPLES = """\
examples:
  lagom-xla doctor       # what works on this machine
  lagom-xla inspect train.py:train_step --cluster=1x8xh100
  lagom-xla tune train.py:train_step --cluster=16x8xh100 --out=plan
  lagom-xla report plan      # report.html, the step before and after
  lagom-xla explain plan     # why collectives are exposed, and what helps
  lagom-xla verify plan train.py:train_step --cluster=16x8xh100
  lagom-xla profile traces    # what jax.profiler wrote of a run
  source plan/env.sh     # in the script that starts each process

You need no GPU: XLA's own GPU compiler runs ahead of time. All times are
predicted unless a profile measured them."""


# New objects between two garbage collections. A search holds modules of 100,000
# instructions, each an object. With Python's default of 700, garbage collection
# took a fifth of its time.
_OBJECTS_BETWEEN_COLLECTIONS = 50_000
# The exit status of a bug, EX_SOFTWARE in sysexits.h.
_UNFORESEEN = 70


def run() -> None:
  """Parses the command line and runs its command."""
  gc.set_threshold(_OBJECTS_BETWEEN_COLLECTIONS)
  _prepare_environment()
  app.run(_main, flags_parser=_parsed)


def _prepare_environment() -> None:
  """Sets the variables that must be set before JAX is imported."""
  os.environ.setdefault("JAX_SKIP_CUDA_CONSTRAINTS_CHECK", "1")
  os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
  if not processes.has_gpus():
    # Without GPUs, JAX must not look for them.
    os.environ.setdefault("JAX_PLATFORMS", "cpu")


def _parsed(argv: Sequence[str]) -> argparse.Namespace:
  """Parses the command line; logs only warnings unless --verbosity is set."""
  arguments = parser().parse_args(flags.join_check(argv[1:]))
  # absl's default here is INFO, at which JAX reports each absent backend.
  if absl_flags.FLAGS["verbosity"].using_default_value:
    logging.set_verbosity(logging.WARNING)
  return arguments


def parser() -> argparse.ArgumentParser:
  """The parser of all commands."""
  parser = argparse_flags.ArgumentParser(
    prog="lagom-xla",
    description=(
      "Tunes how the collectives of a JAX train step share its GPUs."
    ),
    epilog=_EXAMPLES,
    formatter_class=argparse.RawDescriptionHelpFormatter,
  )
  parser.add_argument(
    "--version",
    action="version",
    version=f"lagom-xla {lagom_xla.__version__}",
  )
  commands = parser.add_subparsers(dest="command", required=True)
  for add in _COMMANDS:
    add(commands)
  parser.set_defaults(parser=parser)  # What `completion` describes.
  return parser


def _main(arguments: argparse.Namespace) -> None:
  """Runs a command, which may set context variables."""
  contextvars.copy_context().run(_run, arguments)


@output.unread_said()
def _run(arguments: argparse.Namespace) -> None:
  processes.sweep()
  try:
    # Importing JAX takes seconds, which count for the time budget.
    with stopping.raised(getattr(arguments, "time_budget", None)):
      with output.reserved(), output.warnings_said(is_quiet=arguments.quiet):
        arguments.function(arguments)
  except errors.Stopped as stop:
    output.say(f"stopped by {stop.reason}.")
    stopping.end(stop.exit_status or stopping.NOTHING_FOUND)
  except errors.LagomError as error:
    if isinstance(error, errors.OutputError) and output.is_unread(error):
      return
    if arguments.debug:
      traceback.print_exc()
    print(f"lagom-xla: {error}", file=sys.stderr)
    if isinstance(error, errors.CompileError):
      from lagom_xla.flags import environment

      if environment.is_set():  # It may be the cause.
        flags, others = environment.xla_flags(), environment.found().in_words()
        for said in filter(None, (flags and f"XLA_FLAGS is {flags}", *others)):
          print(f"  {said}", file=sys.stderr)
    sys.exit(2)
  except OSError:
    raise  # For example because the output's reader closed the pipe.
  except Exception as error:
    if arguments.debug:
      raise
    at = traceback.extract_tb(error.__traceback__)[-1]
    print(
      f"lagom-xla: {type(error).__name__}: {errors.first_line(error)}"
      f" ({at.filename}:{at.lineno}). This is a bug: please report it with the"
      " traceback that --debug prints.",
      file=sys.stderr,
    )
    sys.exit(_UNFORESEEN)
