# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Job of two ranks on one GPU, with NCCL settings of its own.

NCCL reads its settings when a process starts, so each setting is a job. Under
MPS kernels of two processes run on one GPU at a time. Without it the processes
take turns, and NCCL kernels that wait for each other spin away theirs.

    python -m benchmarks.gpu.ranks ADDRESS RANK JOB

is a rank: ADDRESS is that of the job's coordinator, and JOB a `Job` in JSON.
Both ranks run the same collectives; the kernels beside them are large on the
first rank alone, which is the one that is traced, so that no kernel of the
other one takes SMs. Three programs are traced: the kernels alone, the
all-reduce beside next to nothing, and both.
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
from typing import Any

import jax
import jax.numpy as jnp

from benchmarks.gpu import part as part_lib
from benchmarks.gpu import traced_step

_CONTROL = "nvidia-cuda-mps-control"
# Where containers have the driver's programs, beside PATH.
_PLACES = ("/usr/local/nvidia/bin", "/usr/local/cuda/bin", "/usr/bin")
_TIMEOUT_S = 20.0
_POLL_S = 0.05
_MOST_WORDS = 500
_ENVIRONMENT = {
  # NCCL lets ranks share a GPU since 2.30.3. NVLS has no place on one.
  "NCCL_MULTI_RANK_GPU_ENABLE": "1",
  "NCCL_NET_GDR_LEVEL": "LOC",
  "NCCL_NVLS_ENABLE": "0",
  "NCCL_CGA_CLUSTER_SIZE": "1",
  "NCCL_DEBUG": "INFO",
  "NCCL_DEBUG_SUBSYS": "INIT,ENV,TUNING",
  "CUDA_DEVICE_MAX_CONNECTIONS": "32",
  "XLA_PYTHON_CLIENT_PREALLOCATE": "false",
}
# "[3] NCCL INFO TUNER/Plugin: ..." and the like.
_TUNER = re.compile(r"NCCL INFO (.*TUNER.*)")
_WARNING = re.compile(r"NCCL WARN (.*)")


class JobError(Exception):
  """A rank failed, or both hang; the message has what they said last."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Job:
  """What ranks run.

  Attributes:
    folder: where the first rank leaves traces and times.
    num_bytes: of the all-reduce.
    width: of the kernels' matrices.
    num_layers: products, and fusions, beside the all-reduce.
  """

  folder: str
  num_bytes: int
  width: int
  num_layers: int


@contextlib.contextmanager
def mps() -> Iterator[Mapping[str, str]]:
  """Starts an MPS daemon of its own, and ends it at the end of the block.

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
  with tempfile.TemporaryDirectory(prefix="mps-") as folder:
    variables = {
      "CUDA_MPS_PIPE_DIRECTORY": folder,
      "CUDA_MPS_LOG_DIRECTORY": folder,
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


def run(
  job: Job, environ: Mapping[str, str], *, limit_s: float
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


def _started(
  job: Job, environ: Mapping[str, str], address: str, rank: int
) -> subprocess.Popen[bytes]:
  with pathlib.Path(job.folder, f"rank{rank}.log").open("wb") as log:
    return subprocess.Popen(
      (
        *(sys.executable, "-m", "benchmarks.gpu.ranks", address, str(rank)),
        json.dumps(dataclasses.asdict(job)),
      ),
      cwd=part_lib.ROOT,
      env={**os.environ, **_ENVIRONMENT, **environ},
      stdin=subprocess.DEVNULL,
      stdout=log,
      stderr=log,
      start_new_session=True,
    )


def said_of_tuners(folder: pathlib.Path) -> list[str]:
  """The lines of NCCL's log that are about tuner plugins, without doubles."""
  return list(dict.fromkeys(_TUNER.findall(_log(folder))))


def _log(folder: pathlib.Path) -> str:
  logs = (folder / f"rank{rank}.log" for rank in range(2))
  return "\n".join(log.read_text(errors="replace") for log in logs)


def _last_words(folder: pathlib.Path) -> str:
  """What NCCL warned of, or else the last lines of both ranks."""
  log = _log(folder)
  warnings = list(dict.fromkeys(_WARNING.findall(log)))
  return "; ".join(warnings)[:_MOST_WORDS] or log.strip()[-_MOST_WORDS:]


_NUM_WARM_UPS = 2
_NUM_TRACED = 5
_AXIS = "ranks"
_P = jax.sharding.PartitionSpec
# What the other rank multiplies and goes through, so that XLA has a kernel to
# run beside its all-reduce, too, and keeps it on a stream of its own.
_SMALL = 128
# XLA would have the ranks tune each other's kernels, whose programs differ.
OPTIONS = {
  **traced_step.NO_COMMAND_BUFFERS,
  "xla_gpu_shard_autotuning": False,
  "xla_gpu_enable_latency_hiding_scheduler": True,
}
PROGRAMS = ("kernels", "collective", "both")


def run_rank(address: str, rank: int, job: Job) -> None:
  """Runs the three programs, and leaves what was found in the folder."""
  jax.distributed.initialize(address, 2, rank, local_device_ids=[0])
  mesh = jax.make_mesh((2,), (_AXIS,), axis_types=(jax.sharding.AxisType.Auto,))
  place = jax.sharding.NamedSharding(mesh, _P(_AXIS))

  def as_shard(x: jax.Array) -> jax.Array:
    """This rank's part of an array of which each has one."""
    shape = (2 * x.shape[0], *x.shape[1:])
    return jax.make_array_from_single_device_arrays(shape, place, [x])

  is_first = rank == 0
  small = _kernels_of(_SMALL, 1)
  large = _kernels_of(job.width, job.num_layers) if is_first else small
  ones = jnp.ones((1, job.num_bytes // 4), jnp.float32)
  summed = as_shard(jax.device_put(ones, jax.local_devices()[0]))
  folder, step_us = pathlib.Path(job.folder), {}
  options = OPTIONS if jax.default_backend() == "gpu" else {}
  for name in PROGRAMS:
    operands = small if name == "collective" else large
    if name == "kernels":
      if not is_first:
        continue
      function, args = jax.jit(run_kernels), (operands,)
    else:
      function = both_of(mesh)
      args = (summed, jax.tree.map(as_shard, operands))
    compiled = function.lower(*args).compile(compiler_options=options)
    trace = str(folder / name) if is_first else None
    step_us[name] = _traced(compiled, args, trace)
  if is_first:
    (folder / "step_us.json").write_text(json.dumps(step_us))


def _kernels_of(width: int, num_layers: int) -> list[tuple[Any, Any]]:
  """Matrices, on this rank's own device: a pair for each layer."""
  keys = jax.random.split(jax.random.key(0), 2 * num_layers)
  device = jax.local_devices()[0]
  matrices = [
    jax.device_put(jax.random.normal(key, (width, width), jnp.bfloat16), device)
    for key in keys
  ]
  return list(zip(matrices[::2], matrices[1::2], strict=True))


def run_kernels(operands: Any) -> list[Any]:
  """A product and a fusion that goes through memory, for each pair."""
  found = []
  for lhs, rhs in operands:
    found += [lhs @ rhs, jnp.tanh(lhs) * 2 + 1]
  return found


def both_of(mesh: Any) -> Any:
  """The jitted all-reduce of an array beside kernels on the rank's operands."""

  def both(x: Any, operands: Any) -> Any:
    return jax.lax.psum(x, _AXIS), run_kernels(operands)

  return jax.jit(
    jax.shard_map(
      both,
      mesh=mesh,
      in_specs=(_P(_AXIS), _P(_AXIS)),
      out_specs=(_P(), _P(_AXIS)),
    )
  )


def _traced(compiled: Any, args: Any, trace: str | None) -> list[float]:
  """Runs a program, traced where a folder is given; returns times in us."""
  for _ in range(_NUM_WARM_UPS):
    jax.block_until_ready(compiled(*args))
  profiled: Any = contextlib.nullcontext()
  if trace is not None:
    profiled = jax.profiler.trace(trace)
  times_us = []
  with profiled:
    for _ in range(_NUM_TRACED):
      begin_s = time.perf_counter()
      jax.block_until_ready(compiled(*args))
      times_us.append((time.perf_counter() - begin_s) * 1e6)
  return times_us


if __name__ == "__main__":
  run_rank(sys.argv[1], int(sys.argv[2]), Job(**json.loads(sys.argv[3])))
