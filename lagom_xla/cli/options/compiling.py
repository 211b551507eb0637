# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Compiles of a command: in worker processes, from the user's cache.

Workers import JAX while the command lowers its target, so they are started
first.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
import contextlib
import os
from typing import TYPE_CHECKING

from lagom_xla.cli.options import command as command_lib

if TYPE_CHECKING:
  from lagom_xla.compile import pool as pool_lib


def add(command: argparse.ArgumentParser) -> None:
  """Adds --workers and --no-cache."""
  command.add_argument(
    "--workers",
    type=_count,
    metavar="N",
    default=os.environ.get("LAGOM_XLA_WORKERS"),
    help="processes that compile (default: $LAGOM_XLA_WORKERS, or one per"
    " core); 0 compiles in the command itself, which an abort in XLA then ends",
  )
  command.add_argument(
    "--no-cache",
    action="store_true",
    help="compile anew what was compiled before; compiles are kept in"
    " $XDG_CACHE_HOME/lagom_xla, or where LAGOM_XLA_CACHE says (a folder, or"
    " off)",
  )


@contextlib.contextmanager
def workers(
  arguments: argparse.Namespace,
  *,
  generates_code: bool = False,
  num_early: int = 1,
) -> Iterator[pool_lib.Pool | None]:
  """The workers that the arguments of `add` ask for; None for none.

  Args:
    arguments: of the command.
    generates_code: see `pool.Pool`.
    num_early: see `pool.Pool`.
  """
  if arguments.workers == 0:
    yield None
    return
  from lagom_xla.compile import cache as cache_lib
  from lagom_xla.compile import pool as pool_lib

  cache = None if arguments.no_cache else cache_lib.of_user()
  with pool_lib.Pool(
    arguments.workers,
    cache=cache,
    warn=command_lib.say,
    generates_code=generates_code,
    num_early=num_early,
  ) as pool:
    yield pool


def _count(text: str) -> int:
  if not text.isdecimal():
    raise argparse.ArgumentTypeError(f"{text!r} is no number of processes")
  return int(text)
