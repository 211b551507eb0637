# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Job on shaped hosts: a JAX process on each, and what the two found."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
import json
import sys
from typing import Any

from benchmarks.shaped_hosts import hosts
from lagom_xla import errors

# Threads of XLA:CPU's pool: with 1 nothing can be hidden, with 2 all can, and
# more fight for two cores.
_NUM_THREADS = 2
_PORT = 12921
# Notes of tables of what was measured so.
MEASURED_ON = (
  "Measured: XLA:CPU with two threads a host, gloo, two network namespaces on"
  " one machine with a rate limit between them."
)
TO_BE_TRUSTED = "Figures at a load above 10 are not to be trusted."
_ENVIRONMENT = {
  "JAX_PLATFORMS": "cpu",
  "PJRT_NPROC": str(_NUM_THREADS),
  "OMP_NUM_THREADS": "1",
  "XLA_FLAGS": "",
}


def run(
  module: str, task: Mapping[str, Any], *, mbit_per_s: int
) -> Sequence[dict[str, Any]]:
  """Runs a module on two fresh hosts.

  Args:
    module: takes a JSON object, the task with `rank` and `address`, which
      `jax.distributed.initialize` takes; the last line that it prints is what
      it found, as JSON.
    task: for both.
    mbit_per_s: rate of the link between them.

  Returns:
    What each found.

  Raises:
    LagomError: a host ended before it had found anything.
  """
  with hosts.pair(mbit_per_s=mbit_per_s) as pair:
    address = f"{pair.addresses[0]}:{_PORT}"
    processes = [
      pair.start(
        rank,
        [
          *(sys.executable, "-m", module),
          json.dumps({**task, "rank": rank, "address": address}),
        ],
        _ENVIRONMENT,
      )
      for rank in range(len(pair.names))
    ]
    return [_result(process.communicate()[0]) for process in processes]


def _result(printed: str) -> dict[str, Any]:
  """What a host found: its last line, as gloo prints lines of its own."""
  lines: Sequence[str] = printed.splitlines()
  try:
    return json.loads(lines[-1])
  except (IndexError, json.JSONDecodeError):
    raise errors.LagomError(
      "A host ended before it had measured anything; what it said is above."
    ) from None
