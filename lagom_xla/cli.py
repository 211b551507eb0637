# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""The command line: lagom-xla inspect | tune | flags."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
import glob
import json
import os
import pathlib
import sys
import textwrap

from absl import app
from absl.flags import argparse_flags

_TARGET_HELP = """\
what to look at:
  step.hlo.xz           an HLO module, text or proto, .xz and .gz too; an
                        optimized one is only read, others are compiled
  train.py:train_step   a function of the cluster's `devices` that returns
                        (jitted step, tuple of its arguments)
  train.py:step         a jitted step, with a step_args(devices) beside it
                        that returns its arguments
Arguments are arrays or jax.ShapeDtypeStructs, sharded over those devices."""

_CLUSTER_HELP = (
  "NODESxGPUSxGPU such as 1x8xh100 or 16x8xh100, the name of a known cluster,"
  " or a JSON file"
)

_EXAMPLES = """\
examples:
  lagom-xla inspect train.py:train_step --cluster=1x8xh100
  lagom-xla tune train.py:train_step --cluster=16x8xh100 --out=plan
  source <(lagom-xla flags plan)

No GPU is needed: XLA's own GPU compiler runs ahead of time. All times are
predicted, not measured."""

_INSPECT_EXAMPLES = f"""\
{_TARGET_HELP}

examples:
  lagom-xla inspect train.py:train_step --cluster=1x8xh100
  lagom-xla inspect train.py:train_step --cluster=2x8xa100_80 --arg=model=8b
  lagom-xla inspect step.hlo.xz --cluster=2x8xh100 --format=json"""

_TUNE_EXAMPLES = f"""\
{_TARGET_HELP}

what --out gets: plan.json, and for a launcher xla_flags.sh, nccl_env.sh and
nccl_settings.csv; an older plan there is replaced.

examples:
  lagom-xla tune train.py:train_step --cluster=16x8xh100 --out=plan
  lagom-xla tune step.hlo.xz --cluster=2x8xh100 --format=json > tuning.json"""

_FLAGS_EXAMPLES = """\
examples:
  lagom-xla flags plan
  source <(lagom-xla flags plan)   # in the script that starts each process"""


def run() -> None:
  """The console script."""
  _prepare_environment()
  app.run(_main, flags_parser=_parse)


def _prepare_environment() -> None:
  """What must be set before JAX is imported."""
  os.environ.setdefault("JAX_SKIP_CUDA_CONSTRAINTS_CHECK", "1")
  os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
  if not glob.glob("/dev/nvidia[0-9]*"):
    # Keeps JAX from looking for GPUs that are not there.
    os.environ.setdefault("JAX_PLATFORMS", "cpu")


def _parse(argv: Sequence[str]) -> argparse.Namespace:
  parser = argparse_flags.ArgumentParser(
    prog="lagom-xla",
    description=(
      "Tunes how the collectives of a JAX train step share its GPUs."
    ),
    epilog=_EXAMPLES,
    formatter_class=argparse.RawDescriptionHelpFormatter,
  )
  commands = parser.add_subparsers(dest="command", required=True)
  _add_inspect(commands)
  _add_tune(commands)
  _add_flags(commands)
  return parser.parse_args(argv[1:])


def _add_inspect(commands) -> None:
  command = _add_command(
    commands,
    "inspect",
    _inspect,
    "Shows which collectives overlap which kernels, and who waits for whom.",
    _INSPECT_EXAMPLES,
  )
  _add_target(command)


def _add_tune(commands) -> None:
  command = _add_command(
    commands,
    "tune",
    _tune,
    "Searches XLA options and NCCL settings, recompiles with the best, checks"
    " that they acted, and writes a plan.",
    _TUNE_EXAMPLES,
  )
  _add_target(command)
  command.add_argument(
    "--out",
    default="plan",
    metavar="DIR",
    help="folder for the plan's files (default: %(default)s)",
  )


def _add_flags(commands) -> None:
  command = _add_command(
    commands,
    "flags",
    _flags,
    "Prints a plan as shell lines, for a launcher: XLA_FLAGS and NCCL's"
    " environment.",
    _FLAGS_EXAMPLES,
  )
  command.add_argument("plan", metavar="PLAN", help="a plan's folder or JSON")


def _add_command(
  commands,
  name: str,
  function: Callable[[argparse.Namespace], None],
  text: str,
  examples: str,
):
  command = commands.add_parser(
    name,
    help=text,
    description=textwrap.fill(text),
    epilog=examples,
    formatter_class=argparse.RawDescriptionHelpFormatter,
  )
  command.set_defaults(function=function)
  return command


def _add_target(command) -> None:
  command.add_argument("target", metavar="TARGET", help="see below")
  command.add_argument(
    "--cluster", required=True, metavar="CLUSTER", help=_CLUSTER_HELP
  )
  command.add_argument(
    "--arg",
    action="append",
    default=[],
    metavar="NAME=VALUE",
    help="a keyword argument for TARGET's function; may be repeated",
  )
  command.add_argument(
    "--format",
    choices=("text", "json"),
    default="text",
    help="tables, or one JSON object (default: %(default)s)",
  )


def _main(arguments: argparse.Namespace) -> None:
  from lagom_xla import cluster as cluster_lib
  from lagom_xla import compile as compile_lib
  from lagom_xla import plan as plan_lib
  from lagom_xla import target as target_lib
  from lagom_xla.passes import hlo

  try:
    arguments.function(arguments)
  except (
    cluster_lib.ClusterError,
    compile_lib.CompileError,
    hlo.HloError,
    plan_lib.PlanError,
    target_lib.TargetError,
  ) as error:
    print(f"lagom-xla: {error}", file=sys.stderr)
    sys.exit(2)


def _load(arguments: argparse.Namespace):
  from lagom_xla import cluster as cluster_lib
  from lagom_xla import target as target_lib

  keywords = {}
  for text in arguments.arg:
    name, equals, value = text.partition("=")
    if not equals or not name.isidentifier():
      raise target_lib.TargetError(
        f"--arg={text} is not NAME=VALUE, such as --arg=batch_size=16."
      )
    keywords[name] = value
  return target_lib.load(
    arguments.target,
    cluster_lib.parse(arguments.cluster),
    arguments=keywords,
  )


def _inspect(arguments: argparse.Namespace) -> None:
  from lagom_xla import tuner
  from lagom_xla.report import as_json
  from lagom_xla.report import terminal

  step = tuner.inspect(_load(arguments))
  if arguments.format == "json":
    print(json.dumps(as_json.inspection(step), indent=2))
  else:
    terminal.show_inspection(_console(), step)


def _tune(arguments: argparse.Namespace) -> None:
  from lagom_xla import tuner
  from lagom_xla.apply import files as files_lib
  from lagom_xla.report import as_json
  from lagom_xla.report import terminal

  folder = pathlib.Path(arguments.out)
  files_lib.check(folder)
  with _ProgressBar() as bar:
    bar.say("compiling")
    target = _load(arguments)
    bar.expect(tuner.num_steps(target))
    tuning = tuner.tune(target, progress=bar.advance)
  files = files_lib.write(tuning.plan, folder)
  if arguments.format == "json":
    print(json.dumps(as_json.tuning(tuning), indent=2))
  else:
    terminal.show_tuning(_console(), tuning, files)


def _flags(arguments: argparse.Namespace) -> None:
  from lagom_xla import plan as plan_lib
  from lagom_xla.apply import nccl_env
  from lagom_xla.apply import xla_options

  plan = plan_lib.load(arguments.plan)
  print(xla_options.export_line(plan.xla_options))
  print(nccl_env.export_lines(plan.nccl_env))


def _console():
  """Where tables go; wide enough for them when it is not a terminal."""
  import rich.console

  console = rich.console.Console()
  return console if console.is_terminal else rich.console.Console(width=110)


class _ProgressBar:
  """A progress bar on stderr, so that stdout holds the result alone.

  There is none where stderr is not a terminal, and it vanishes on an error.
  """

  def __enter__(self) -> _ProgressBar:
    import rich.console
    import rich.progress

    console = rich.console.Console(stderr=True)
    self._progress = rich.progress.Progress(
      rich.progress.TextColumn("{task.description:44.44}"),
      rich.progress.BarColumn(),
      rich.progress.MofNCompleteColumn(),
      rich.progress.TimeElapsedColumn(),
      console=console,
      disable=not console.is_terminal,
    )
    self._progress.start()
    self._task = self._progress.add_task("", total=None)
    return self

  def __exit__(self, error: type[BaseException] | None, *_: object) -> None:
    self._progress.live.transient = error is not None
    done = self._progress.tasks[self._task].completed
    self._progress.update(self._task, total=done)
    self._progress.stop()

  def say(self, words: str) -> None:
    """Says what is going on."""
    self._progress.update(self._task, description=words)

  def expect(self, num_steps: int) -> None:
    """Sets how many steps there are at most."""
    self._progress.update(self._task, total=num_steps)

  def advance(self, words: str) -> None:
    """One more step is done."""
    self._progress.update(self._task, advance=1, description=words)


if __name__ == "__main__":
  run()
