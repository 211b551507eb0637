# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""The parts that commands share: their descriptions and TARGET."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
import contextlib
import pathlib
import sys
import textwrap
from typing import TYPE_CHECKING, TextIO
import warnings

from lagom_xla import errors

if TYPE_CHECKING:
  from lagom_xla.compile import pool
  from lagom_xla.compile import target as target_lib
  from lagom_xla.costs import step as step_lib

TARGET_HELP = """\
what to look at:
  step.hlo.xz           an HLO module, text or proto, .xz and .gz too; an
                        optimized one is only read, others are compiled
  train.py:train_step   a function of the cluster's `devices` that returns
                        (jitted step, tuple of its arguments)
  train.py:step         a jitted step, with a step_args(devices) beside it
                        that returns its arguments
Arguments are arrays or jax.ShapeDtypeStructs, sharded over those devices."""

# Where warnings of ours come from.
_PACKAGE = pathlib.Path(__file__).parents[2]

# Whether nothing is said: of the command that runs.
_is_quiet = False
# What of ours was warned of: in the same command.
_warnings_said: set[str] = set()

_CLUSTER_HELP = (
  "NODESxGPUSxGPU such as 16x8xh100, NODESxMACHINE such as 2xp5.48xlarge, a"
  " name, or a JSON file; `lagom-xla clusters` lists them"
)


def add(
  commands,
  name: str,
  function: Callable[[argparse.Namespace], None],
  text: str,
  examples: str,
) -> argparse.ArgumentParser:
  """Adds a command.

  Args:
    commands: what argparse's add_subparsers returned.
    name: what the user types.
    function: runs it.
    text: what it does, in a sentence.
    examples: shown below its options.

  Returns:
    The command's parser, to add arguments to.
  """
  command = commands.add_parser(
    name,
    help=text,
    description=textwrap.fill(text),
    epilog=examples,
    formatter_class=argparse.RawDescriptionHelpFormatter,
    # absl has a -v of its own, which nothing here reads.
    conflict_handler="resolve",
  )
  command.add_argument(
    "--debug",
    action="store_true",
    help="print the whole traceback of an error, too",
  )
  loudness = command.add_mutually_exclusive_group()
  loudness.add_argument(
    "-q",
    "--quiet",
    action="store_true",
    help="say nothing beside errors, the files that are written, and the result"
    " where that is asked for",
  )
  loudness.add_argument(
    "-v", "--verbose", action="store_true", help="show every table"
  )
  command.set_defaults(function=function)
  return command


def add_target(command: argparse.ArgumentParser) -> None:
  """Adds TARGET, --cluster and --arg, which `load_target` reads."""
  command.add_argument("target", metavar="TARGET", help="see below")
  add_cluster(command)
  add_arg(command)


def add_arg(command: argparse.ArgumentParser) -> None:
  """Adds --arg, which `keywords` reads."""
  command.add_argument(
    "--arg",
    action="append",
    default=[],
    metavar="NAME=VALUE",
    help="a keyword argument for TARGET's function; may be repeated",
  )


def add_cluster(command: argparse.ArgumentParser) -> None:
  """Adds --cluster."""
  command.add_argument(
    "--cluster", required=True, metavar="CLUSTER", help=_CLUSTER_HELP
  )


def add_format(command: argparse.ArgumentParser) -> None:
  """Adds --format=text|json."""
  command.add_argument(
    "--format",
    choices=("text", "json"),
    default="text",
    help="tables, or one JSON object (default: %(default)s)",
  )


def check_target(arguments: argparse.Namespace) -> None:
  """Checks of the arguments of `add_target` what needs no JAX, so at once.

  Raises:
    TargetError, ClusterError: there is no such file, or no such cluster.
  """
  from lagom_xla import cluster as cluster_lib
  from lagom_xla.compile import source

  keywords(arguments)
  cluster_lib.parse(arguments.cluster)
  source.check(arguments.target)


def load_target(
  arguments: argparse.Namespace, workers: pool.Pool | None = None
) -> target_lib.Target:
  """The target that the arguments of `add_target` describe.

  Args:
    arguments: the arguments.
    workers: processes to compile it in; None for this one.

  Raises:
    FlagsError: XLA would end this process over its XLA_FLAGS.
    TargetError, ClusterError, CompileError, HloError: it cannot be had.
  """
  from lagom_xla import cluster as cluster_lib
  from lagom_xla.compile import load
  from lagom_xla.flags import environment

  environment.check()
  target = load.load(
    arguments.target,
    cluster_lib.parse(arguments.cluster),
    arguments=keywords(arguments),
  )
  return target if workers is None else target.with_workers(workers)


def keywords(arguments: argparse.Namespace) -> dict[str, str]:
  """The keyword arguments of --arg.

  Raises:
    TargetError: one is not NAME=VALUE.
  """
  found = {}
  for text in arguments.arg:
    name, equals, value = text.partition("=")
    if not equals or not name.isidentifier():
      raise errors.TargetError(
        f"--arg={text} is not NAME=VALUE, such as --arg=batch_size=16."
      )
    found[name] = value
  return found


def warn_of_repeated_work(
  target: target_lib.Target, step: step_lib.Step
) -> None:
  """Tells of products that GPUs compute instead of sharing them, if any.

  Args:
    target: what was compiled.
    step: it, with XLA's defaults.
  """
  from lagom_xla.compile import repeated_work

  device_flops = step.analysis.gemm_flops
  if warning := repeated_work.warning(target, device_flops):
    say(warning)


def warn_of_memory(target: target_lib.Target, peak_bytes: int | None) -> None:
  """Tells of a step that its GPUs do not hold, where that is known.

  Args:
    target: what was compiled.
    peak_bytes: memory that it needs with XLA's defaults; None if not known.
  """
  from lagom_xla.search.xla import as_run

  if warning := as_run.warning(target, peak_bytes):
    say(warning)


def show_warning(
  message: Warning | str,
  category: type[Warning],
  filename: str,
  lineno: int,
  file: TextIO | None = None,
  line: str | None = None,
) -> None:
  """Shows a warning: one of ours as what we say, others as Python does."""
  if pathlib.Path(filename).is_relative_to(_PACKAGE):
    if str(message) not in _warnings_said:  # A cluster file is read twice.
      _warnings_said.add(str(message))
      say(str(message))
  elif not _is_quiet:
    text = warnings.formatwarning(message, category, filename, lineno, line)
    (file or sys.stderr).write(text)


@contextlib.contextmanager
def quietly(is_quiet: bool) -> Iterator[None]:
  """Says nothing inside but errors, if so; warnings of others neither."""
  global _is_quiet
  _is_quiet = is_quiet
  try:
    yield
  finally:
    _is_quiet = False
    _warnings_said.clear()


def say(text: str) -> None:
  """Says something to the user beside the result, unless it shall be quiet."""
  if not _is_quiet:
    print(f"lagom-xla: {text}", file=sys.stderr)
