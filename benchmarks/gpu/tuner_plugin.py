# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""The NCCL tuner plugin in a live NCCL: loaded, asked, and seen to act.

First in a communicator of one rank, which any GPU can have. Then, where two
ranks can share the GPU, with a table that has an all-reduce run on three
channels, which NCCL would never choose: the trace shows on how many it ran, and
the table counts how often its rule was used.

    python -m benchmarks.gpu.tuner_plugin LIBRARY

makes the communicator of one rank, by this library of NCCL.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import pathlib
import subprocess
import sys
from typing import Any

from benchmarks.gpu import part as part_lib

_PART = "tuner_plugin"
_NUM_CHANNELS = 3
_NUM_BYTES = 2**26
_NUM_BYTES_IN_TURNS = 2**20
_LIMIT_S = 20.0
_LIMIT_OF_JOB_S = 60.0


def measure(folder: pathlib.Path) -> dict[str, Any]:
  """Loads the plugin in one rank, then in two."""
  from lagom_xla.apply.nccl import build

  plugin = build.ensure()
  figures: dict[str, Any] = {"interfaces": list(build.interfaces(plugin))}
  part_lib.keep(folder, _PART, figures)
  from lagom_xla.apply.nccl import table as table_lib

  rule = table_lib.Rule(
    kind="all-reduce",
    num_ranks=2,
    num_nodes=1,
    min_bytes=1,
    max_bytes=2**40,
    algorithm="ring",
    protocol="simple",
    num_channels=_NUM_CHANNELS,
  )
  table = folder / "nccl_table.bin"
  table_lib.write(table, [rule])
  environ = {
    "NCCL_TUNER_PLUGIN": str(plugin),
    "LAGOM_XLA_NCCL_TABLE": str(table),
    "LAGOM_XLA_NCCL_CHECKSUM": table_lib.checksum([rule]),
  }
  figures["one rank"] = _of_one_rank(environ)
  part_lib.keep(folder, _PART, figures)
  figures["two ranks"] = _of_two_ranks(folder / "plugin", environ)
  return figures


def _of_one_rank(environ: dict[str, str]) -> dict[str, Any]:
  from lagom_xla import doctor

  library = doctor.nccl_of_wheel()
  if library is None:
    return {"reason": "There is no NCCL among the installed packages."}
  done = subprocess.run(
    (sys.executable, "-m", "benchmarks.gpu.tuner_plugin", str(library)),
    env={**os.environ, **environ, "NCCL_DEBUG": "INFO"},
    capture_output=True,
    text=True,
    timeout=_LIMIT_S,
  )
  lines = (done.stdout + done.stderr).splitlines()
  said = [line for line in lines if "TUNER" in line or "returned" in line]
  return {
    "status": done.returncode,
    "is_loaded": any("lagom_xla" in line for line in said),
    "said": said,
  }


def _of_two_ranks(
  folder: pathlib.Path, environ: dict[str, str]
) -> dict[str, Any]:
  from benchmarks.gpu import ranks
  from lagom_xla.apply.nccl import table as table_lib
  from lagom_xla.profiling import profile as profile_lib

  with contextlib.ExitStack() as stack:
    num_bytes, shared, note = _NUM_BYTES, {}, ""
    try:
      shared = stack.enter_context(ranks.mps())
    except part_lib.NotMeasuredError as error:
      # Kernels that wait for each other take turns then, which ends, too.
      num_bytes, note = _NUM_BYTES_IN_TURNS, str(error)
    job = ranks.Job(
      folder=str(folder), num_bytes=num_bytes, width=1024, num_layers=1
    )
    try:
      ranks.run(job, {**shared, **environ}, limit_s=_LIMIT_OF_JOB_S)
    except ranks.JobError as error:
      return {"reason": f"{error} {note}".strip()}
  profile = profile_lib.read(folder / "collective")
  table = table_lib.read(pathlib.Path(environ["LAGOM_XLA_NCCL_TABLE"]))
  (count,) = table.counts[:1]
  return {
    "note": note,
    "asked_for_channels": _NUM_CHANNELS,
    "channels": dict(profile.num_channels),
    "num_applied": count.num_applied,
    "num_unavailable": count.num_unavailable,
    "said": ranks.said_of_tuners(folder),
  }


def _make_communicator(library: str) -> int:
  """Makes a communicator of one GPU, which loads the tuner; NCCL's status."""
  communicator, device = ctypes.c_void_p(), ctypes.c_int(0)
  status = ctypes.CDLL(library).ncclCommInitAll(
    ctypes.byref(communicator), 1, ctypes.byref(device)
  )
  print(f"ncclCommInitAll returned {status}", flush=True)
  return status


if __name__ == "__main__":
  sys.exit(_make_communicator(sys.argv[1]))
