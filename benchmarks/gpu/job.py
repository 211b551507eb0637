# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Job of two ranks on one GPU, with NCCL settings of its own.

NCCL reads its settings when a process starts, so each setting is a job. Under
MPS kernels of two processes run on one GPU at a time. Without it the processes
take turns, and NCCL kernels that wait for each other spin away theirs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
import contextlib
import dataclasses
import json
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

from benchmarks.gpu import environment
from benchmarks.gpu import part as part_lib
from benchmarks.gpu import rank as rank_lib

_CONTROL = "nvidia-cuda-mps-control"
# Where containers have the driver's programs, beside PATH.
_PLACES = ("/usr/local/nvidia/bin", "/usr/local/cuda/bin", "/usr/bin")
_TIMEOUT_S = 20.0


@contextlib.contextmanager
def running() -> Iterator[Mapping[str, str]]:
  """Starts a daemon of its own, and ends it at the end of the block.

  Yields:
    The variables with which processes find it.

  Raises:
    NotMeasuredError: there is none, or it does not start.
  """
  path = os.pathsep.join((os.environ.get("PATH", ""), *_PLACES))
  control = shutil.which(_CONTROL, path=path)
  if control is None:
    raise part_lib.NotMeasuredError(
      f"There is no {_CONTROL}, without which two ranks take turns on a GPU."
    )
  with tempfile.TemporaryDirectory(prefix="mps-") as name:
    folder = pathlib.Path(name)
    variables = {
      "CUDA_MPS_PIPE_DIRECTORY": str(folder),
      "CUDA_MPS_LOG_DIRECTORY": str(folder),
    }
    environ = {**os.environ, **variables}
    started = subprocess.run(
      (control, "-d"),
      env=environ,
      capture_output=True,
      text=True,
      timeout=_TIMEOUT_S,
    )
    if started.returncode:
      raise part_lib.NotMeasuredError(
        f"{_CONTROL} does not start:"
        f" {(started.stderr or started.stdout).strip()[-300:]}"
      )
    try:
      yield variables
    finally:
      with contextlib.suppress(subprocess.SubprocessError):
        subprocess.run(
          (control,), env=environ, input="quit\n", text=True, timeout=_TIMEOUT_S
        )


_ROOT = pathlib.Path(__file__).parents[2]
_POLL_S = 0.05
_MOST_WORDS = 500
# NVLS has no place on one GPU.
_SHARED_GPU = {
  "NCCL_NVLS_ENABLE": "0",
  "NCCL_CGA_CLUSTER_SIZE": "1",
  "CUDA_DEVICE_MAX_CONNECTIONS": "32",
  "XLA_PYTHON_CLIENT_PREALLOCATE": "false",
}
# NCCL from here on lets ranks share a GPU if it is told to, and reach each
# other through its memory. Before, two ranks of one host on one GPU are an
# error ("Duplicate GPU detected"). As two hosts, which NCCL_HOSTID makes of
# them, they reach each other through sockets.
_SHARES_SINCE = (2, 30, 3)
_DEBUG = {
  "NCCL_DEBUG": "INFO",
  "NCCL_DEBUG_SUBSYS": "INIT,ENV,TUNING",
}
# "[3] NCCL INFO TUNER/Plugin: ..." and the like.
_TUNER = re.compile(r"NCCL INFO (.*TUNER.*)")
_WARNING = re.compile(r"NCCL WARN (.*)")


class JobError(Exception):
  """A rank failed, or both hang; the message has what they said last."""


def run(
  job: rank_lib.Job, environ: Mapping[str, str], *, limit_s: float
) -> dict[str, list[float]]:
  """Runs both ranks to their end; their traces and logs go to its folder.

  Args:
    job: for both.
    environ: NCCL's settings and whatever else the ranks should have.
    limit_s: after which they hang.

  Returns:
    Times of each traced program on the first rank, in microseconds.

  Raises:
    JobError: they did not come to it.
  """
  folder = pathlib.Path(job.folder)
  folder.mkdir(parents=True, exist_ok=True)
  with socket.socket() as free:
    free.bind(("127.0.0.1", 0))
    address = f"127.0.0.1:{free.getsockname()[1]}"
  ranks = [_started(job, environ, address, rank) for rank in range(2)]
  deadline_s = time.monotonic() + limit_s
  try:
    while any(rank.poll() is None for rank in ranks):
      if any(rank.returncode for rank in ranks):
        break
      if time.monotonic() > deadline_s:
        raise JobError(
          f"The ranks did not end within {limit_s:.0f} s: {_last_words(folder)}"
        )
      time.sleep(_POLL_S)
  finally:
    for rank in ranks:
      with contextlib.suppress(ProcessLookupError):
        os.killpg(rank.pid, signal.SIGKILL)
      rank.wait()
  statuses = [rank.returncode for rank in ranks]
  if any(statuses):
    raise JobError(f"The ranks ended with {statuses}: {_last_words(folder)}")
  return json.loads((folder / "step_us.json").read_text())


def shares_memory(nccl: str | None) -> bool:
  """Whether ranks of a GPU are peers in this version, if it is known.

  Else they are hosts of their own.
  """
  return nccl is None or tuple(map(int, nccl.split("."))) >= _SHARES_SINCE


def shared_by(nccl: str | None, rank: int) -> dict[str, str]:
  """What has NCCL accept a rank on a GPU that another one has."""
  if shares_memory(nccl):
    return {"NCCL_MULTI_RANK_GPU_ENABLE": "1", "NCCL_NET_GDR_LEVEL": "LOC"}
  return {
    "NCCL_HOSTID": f"rank{rank}",
    "NCCL_NET": "Socket",
    "NCCL_SOCKET_IFNAME": "lo",
  }


def said_of_tuners(folder: pathlib.Path) -> list[str]:
  """The lines of NCCL's log that are about tuner plugins, without doubles."""
  return list(dict.fromkeys(_TUNER.findall(_log(folder))))


def _started(
  job: rank_lib.Job, environ: Mapping[str, str], address: str, rank: int
) -> subprocess.Popen[bytes]:
  with pathlib.Path(job.folder, f"rank{rank}.log").open("wb") as log:
    return subprocess.Popen(
      (
        *(sys.executable, "-m", rank_lib.__name__, address, str(rank)),
        json.dumps(dataclasses.asdict(job)),
      ),
      cwd=_ROOT,
      env={
        **os.environ,
        **_SHARED_GPU,
        **_DEBUG,
        **shared_by(environment.nccl_version(), rank),
        **environ,
      },
      stdin=subprocess.DEVNULL,
      stdout=log,
      stderr=log,
      start_new_session=True,
    )


def _log(folder: pathlib.Path) -> str:
  logs = (folder / f"rank{rank}.log" for rank in range(2))
  return "\n".join(log.read_text(errors="replace") for log in logs)


def _last_words(folder: pathlib.Path) -> str:
  """What NCCL warned of, or else the last lines of both ranks."""
  log = _log(folder)
  warnings = list(dict.fromkeys(_WARNING.findall(log)))
  return "; ".join(warnings)[:_MOST_WORDS] or log.strip()[-_MOST_WORDS:]
