# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""A host, as seen by the program that runs on it: `job.py` starts it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
import ctypes
import json
import signal
import sys
from typing import Any

import jax
import numpy as np

_NUM_HOSTS = 2
_PR_SET_PDEATHSIG = 1  # prctl(2)


def joined() -> dict[str, Any]:
  """Joins the other host; returns the task on the command line."""
  # A host has nothing to do once whoever started it is gone.
  ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
  task = json.loads(sys.argv[1])
  jax.config.update("jax_cpu_collectives_implementation", "gloo")
  jax.distributed.initialize(task["address"], _NUM_HOSTS, task["rank"])
  return task


def in_turns(names: Sequence[str], num_rounds: int) -> Iterator[str]:
  """Names, round by round; each comes first in equally many rounds."""
  for turn in range(num_rounds):
    shift = turn % len(names)
    yield from (*names[shift:], *names[:shift])


def bits(outputs: Any) -> list[bytes]:
  """What this host has of a step's outputs, to be compared."""
  return [
    np.asarray(shard.data).tobytes()
    for leaf in jax.tree.leaves(outputs)
    for shard in leaf.addressable_shards
  ]
