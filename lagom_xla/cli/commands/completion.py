# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""lagom-xla completion: a script by which a shell completes commands."""

from __future__ import annotations

import argparse

from lagom_xla import errors
from lagom_xla.cli import options
from lagom_xla.cli import output

_EXAMPLES = """\
The script is self-contained: what writes it, shtab, is in
lagom_xla[completion], and is not needed any more once it is written.

examples:
  source <(lagom-xla completion bash)      # in ~/.bashrc
  lagom-xla completion zsh > ~/.zfunc/_lagom-xla   # a folder of $fpath"""

# What arguments with these names in help name.
_FILES = ("FILE", "TARGET")
_FOLDERS = ("DIR", "PLAN")


def add(commands) -> None:
  """Adds the command."""
  command = options.add_command(
    commands,
    "completion",
    _run,
    "Prints a script by which bash or zsh completes lagom-xla's commands.",
    _EXAMPLES,
  )
  command.add_argument(
    "shell", choices=("bash", "zsh"), metavar="SHELL", help="bash or zsh"
  )


def _run(arguments: argparse.Namespace) -> None:
  try:
    import shtab
  except ImportError as error:
    raise errors.OutputError(
      "Shell completion needs shtab, which is not installed: pip install"
      " 'lagom_xla[completion]'."
    ) from error
  parser = arguments.parser
  for action in _actions(parser):
    if action.choices is not None:
      continue
    if action.metavar in _FILES:
      setattr(action, "complete", shtab.FILE)  # noqa: B010
    elif action.metavar in _FOLDERS:
      setattr(action, "complete", shtab.DIRECTORY)  # noqa: B010
  output.write(shtab.complete(parser, shell=arguments.shell).rstrip("\n"))


def _actions(parser: argparse.ArgumentParser) -> list[argparse.Action]:
  """The arguments of all commands."""
  actions = []
  for action in parser._actions:
    actions.append(action)
    if isinstance(action, argparse._SubParsersAction):
      for command in action.choices.values():
        actions += command._actions
  return actions
