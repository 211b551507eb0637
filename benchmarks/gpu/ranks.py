# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Two ranks: the NCCL plugin, and kernels beside a real NCCL.

NCCL reads its settings when a process starts, so each setting is a job of two
processes, each on its own GPU if there are two. On one GPU, MPS lets kernels of
both run at the same time. Without MPS the processes alternate, and NCCL kernels
that wait for each other waste their turns.

    python -m benchmarks.gpu.ranks ADDRESS RANK JOB

is a rank: ADDRESS is that of the job's coordinator, and JOB a `Job` in JSON.
Both ranks run the same collectives. Only the first rank has large kernels
beside them and is traced, so that the other's kernels take no SMs. Three
programs are traced: the kernels alone, the all-reduce with almost nothing
beside it, and both.
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
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from typing import Any

import jax
import jax.numpy as jnp

from benchmarks.gpu import kernels as kernels_lib
from benchmarks.gpu import part as part_lib
from lagom_xla import cluster as cluster_lib
from lagom_xla import doctor
from lagom_xla.apply.nccl import build
from lagom_xla.apply.nccl import table as table_lib
from lagom_xla.costs import collective as collective_lib
from lagom_xla.costs import contention
from lagom_xla.costs import kernel as kernel_lib
from lagom_xla.costs import measured as measured_lib
from lagom_xla.profiling import costing
from lagom_xla.profiling import profile as profile_lib

_CONTROL = "nvidia-cuda-mps-control"
# Folders for the driver's programs in containers, besides PATH.
_PLACES = ("/usr/local/nvidia/bin", "/usr/local/cuda/bin", "/usr/bin")
_TIMEOUT_S = 20.0
_POLL_S = 0.05
_MOST_WORDS = 500
_ENVIRONMENT = {
  # NCCL lets ranks share a GPU since 2.30.3. NVLS does not work on one GPU.
  "NCCL_MULTI_RANK_GPU_ENABLE": "1",
  "NCCL_NET_GDR_LEVEL": "LOC",
  "NCCL_NVLS_ENABLE": "0",
  "NCCL_CGA_CLUSTER_SIZE": "1",
  "NCCL_DEBUG": "INFO",
  "NCCL_DEBUG_SUBSYS": "INIT,ENV,TUNING",
  "CUDA_DEVICE_MAX_CONNECTIONS": "32",
  "XLA_PYTHON_CLIENT_PREALLOCATE": "false",
}
# XLA would reduce a few MiB without NCCL. Compiles ignore this as an option.
_NCCL_ALONE = "--xla_gpu_unsupported_use_all_reduce_one_shot_kernel=false"
# "[3] NCCL INFO TUNER/Plugin: ..." and the like.
_TUNER = re.compile(r"NCCL INFO (.*TUNER.*)")
_WARNING = re.compile(r"NCCL WARN (.*)")


class JobError(Exception):
  """A rank failed, or both hang; the message has their last output."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Job:
  """The job of both ranks.

  Attributes:
    folder: the folder for the first rank's traces and times.
    num_bytes: bytes of the all-reduce.
    width: width of the kernels' matrices.
    num_layers: number of products, and of fusions, beside the all-reduce.
    num_gpus: number of GPUs of the ranks.
  """

  folder: str
  num_bytes: int
  width: int
  num_layers: int
  num_gpus: int = 1


@contextlib.contextmanager
def mps() -> Iterator[Mapping[str, str]]:
  """Starts an MPS daemon for the block.

  Yields:
    The environment variables that select it.

  Raises:
    NotMeasuredError: MPS is not installed, or does not start.
  """
  path = os.pathsep.join((os.environ.get("PATH", ""), *_PLACES))
  control = shutil.which(_CONTROL, path=path)
  if control is None:
    raise part_lib.NotMeasuredError(
      f"There is no {_CONTROL}; without it, two ranks alternate on a GPU."
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
  """Runs both ranks to their end; traces and logs go to the job's folder.

  Args:
    job: the job of both.
    environ: environment of the ranks, with NCCL's settings.
    limit_s: time limit, after which the ranks count as hanging.

  Returns:
    Times of each traced program on the first rank, in microseconds.

  Raises:
    JobError: a rank failed, or they hang.
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
      rank.kill()
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
      env={
        **os.environ,
        **_ENVIRONMENT,
        "XLA_FLAGS": f"{os.environ.get('XLA_FLAGS', '')} {_NCCL_ALONE}",
        **environ,
      },
      stdin=subprocess.DEVNULL,
      stdout=log,
      stderr=log,
    )


def _log(folder: pathlib.Path) -> str:
  logs = (folder / f"rank{rank}.log" for rank in range(2))
  return "\n".join(log.read_text(errors="replace") for log in logs)


def _last_words(folder: pathlib.Path) -> str:
  """NCCL's warnings, or else the last lines of both ranks."""
  log = _log(folder)
  warnings = list(dict.fromkeys(_WARNING.findall(log)))
  return "; ".join(warnings)[:_MOST_WORDS] or log.strip()[-_MOST_WORDS:]


_NUM_WARM_UPS = 2
_NUM_TRACED = 5
_AXIS = "ranks"
_P = jax.sharding.PartitionSpec
# Width of the other rank's kernels. It needs some beside its all-reduce, so
# that XLA keeps this on its own stream.
_SMALL = 128
# Otherwise XLA shares autotuning among ranks, whose programs differ here.
OPTIONS = {
  **kernels_lib.NO_COMMAND_BUFFERS,
  "xla_gpu_shard_autotuning": False,
  "xla_gpu_enable_latency_hiding_scheduler": True,
}
PROGRAMS = ("kernels", "collective", "both")


def run_rank(address: str, rank: int, job: Job) -> None:
  """Runs the three programs, and writes the results into the folder."""
  jax.distributed.initialize(
    address, 2, rank, local_device_ids=[rank % job.num_gpus]
  )
  mesh = jax.make_mesh((2,), (_AXIS,), axis_types=(jax.sharding.AxisType.Auto,))
  place = jax.sharding.NamedSharding(mesh, _P(_AXIS))

  def as_shard(x: jax.Array) -> jax.Array:
    """A global array of which this is the rank's part."""
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
  """Matrices on this rank's own device: a pair for each layer."""
  keys = jax.random.split(jax.random.key(0), 2 * num_layers)
  device = jax.local_devices()[0]
  matrices = [
    jax.device_put(jax.random.normal(key, (width, width), jnp.bfloat16), device)
    for key in keys
  ]
  return list(zip(matrices[::2], matrices[1::2], strict=True))


def run_kernels(operands: Any) -> list[Any]:
  """A product and a memory-bound fusion, for each pair."""
  found = []
  for lhs, rhs in operands:
    found += [lhs @ rhs, jnp.tanh(lhs) * 2 + 1]
  return found


def both_of(mesh: Any) -> Any:
  """The jitted all-reduce of an array, beside kernels on the operands."""

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
  """Runs a program, with a trace if a folder is given; returns times in us."""
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


_ASKED_CHANNELS = 3
# Few enough that kernels finish even if they wait for each other in turns.
_NUM_BYTES = 2**20
_LIMIT_OF_JOB_S = 60.0
# A communicator with one GPU, which loads the tuner.
_COMMUNICATOR = """
import ctypes, sys
status = ctypes.CDLL(sys.argv[1]).ncclCommInitAll(
  ctypes.byref(ctypes.c_void_p()), 1, ctypes.byref(ctypes.c_int(0))
)
print(f"ncclCommInitAll returned {status}", flush=True)
sys.exit(status)
"""


def tuner_plugin(task: part_lib.Task) -> dict[str, Any]:
  """Checks that a real NCCL loads the tuner plugin, calls it and obeys it.

  First in a communicator of one rank, which works on any GPU. Then, if two
  ranks are possible, with a table that runs an all-reduce on three channels,
  which NCCL would never choose. The trace shows the number of channels, and the
  table counts the uses of its rule.
  """
  plugin = build.ensure()
  figures: dict[str, Any] = {"interfaces": list(build.interfaces(plugin))}
  task.keep(figures)
  rule = table_lib.Rule(
    kind="all-reduce",
    num_ranks=2,
    num_nodes=1,
    min_bytes=1,
    max_bytes=2**40,
    algorithm="ring",
    protocol="simple",
    num_channels=_ASKED_CHANNELS,
  )
  table = task.path / "nccl_table.bin"
  table_lib.write(table, [rule])
  environ = {
    "NCCL_TUNER_PLUGIN": str(plugin),
    "LAGOM_XLA_NCCL_TABLE": str(table),
    "LAGOM_XLA_NCCL_CHECKSUM": table_lib.checksum([rule]),
  }
  figures["one rank"] = _in_one_rank(environ)
  task.keep(figures)
  return figures | {"two ranks": _in_two_ranks(task, table, environ)}


def _in_one_rank(environ: Mapping[str, str]) -> dict[str, Any]:
  done = part_lib.run_python(
    *("-c", _COMMUNICATOR, str(doctor.nccl_of_wheel() or "libnccl.so.2")),
    limit_s=_TIMEOUT_S,
    NCCL_DEBUG="INFO",
    **environ,
  )
  lines = (done.stdout + done.stderr).splitlines()
  said = [line for line in lines if "TUNER" in line or "returned" in line]
  return {
    "status": done.returncode,
    "is_loaded": any("lagom_xla" in line for line in said),
    "said": said or lines[-1:],
  }


def _in_two_ranks(
  task: part_lib.Task, table: pathlib.Path, environ: Mapping[str, str]
) -> dict[str, Any]:
  folder = task.path / "plugin"
  with contextlib.ExitStack() as stack:
    shared, note = {}, ""
    try:
      shared = stack.enter_context(_on_gpus(task))
    except part_lib.NotMeasuredError as error:
      note = str(error)
    job = Job(
      folder=str(folder),
      num_bytes=_NUM_BYTES,
      width=1024,
      num_layers=1,
      num_gpus=_num_gpus(task),
    )
    try:
      run(job, {**shared, **environ}, limit_s=_LIMIT_OF_JOB_S)
    except JobError as error:
      return {"reason": f"{error} {note}".strip()}
  profile = profile_lib.read(folder / "collective")
  (count,) = table_lib.read(table).counts[:1]
  return {
    "note": note,
    "asked_for_channels": _ASKED_CHANNELS,
    "channels": dict(profile.num_channels),
    "num_applied": count.num_applied,
    "num_unavailable": count.num_unavailable,
    "said": list(dict.fromkeys(_TUNER.findall(_log(folder)))),
  }


_NUM_RANKS = 2


def _num_gpus(task: part_lib.Task) -> int:
  """The number of GPUs of the ranks."""
  return min(_NUM_RANKS, task.num_gpus)


def _on_gpus(
  task: part_lib.Task,
) -> contextlib.AbstractContextManager[Mapping[str, str]]:
  """A context in which two ranks can run at the same time on the GPUs here."""
  return mps() if _num_gpus(task) == 1 else contextlib.nullcontext({})


# Time reserved for reporting what was measured.
_RESERVE_S = 15.0
_MIB = 2**20
# NCCL's default (src/include/comm.h). A channel passes on an eighth at a time;
# four of these are a chunk of a ring's all-reduce.
_BUFFER_BYTES = 4 * _MIB
_CHUNKS_PER_BUFFER = 2
# A channel of NCCL moves about 20 GB/s, so an all-reduce of this many bytes per
# channel takes longer than the kernels beside it.
_BYTES_PER_CHANNEL = 128 * _MIB
_MOST_BYTES = 2**30
_WIDTH = 4096
_NUM_LAYERS = 6
# Channels of every collective, and NCCL_BUFFSIZE, which determines chunks. The
# most informative ones come first, in case time runs out.
_SETTINGS = (
  *((num_channels, _BUFFER_BYTES) for num_channels in (8, 1, 32, 16, 4, 64, 2)),
  *((8, buffer_bytes) for buffer_bytes in (_MIB // 2, 16 * _MIB, _MIB)),
  (32, _MIB // 2),
)


def two_ranks(task: part_lib.Task) -> dict[str, Any]:
  """Measures kernels beside NCCL, for as many settings as time allows.

  On one GPU, this shows contention for SMs, waves, L2 and memory, but not for
  NVLink. The NCCL kernels of both ranks then share the GPU, so they use twice
  the SMs and memory bandwidth.

  Raises:
    NotMeasuredError: there is one GPU, but no MPS or an NCCL that needs more.
    JobError: no setting finished.
  """
  deadline_s = time.monotonic() + task.limit_s - _RESERVE_S
  rows: list[dict[str, Any]] = []
  with _on_gpus(task) as environ:
    for row in _rows(task, environ, deadline_s):
      rows.append(row)
      task.keep({"rows": rows})
  if not any("step_us" in row for row in rows):
    reason = rows[0]["reason"] if rows else "There was no time."
    # NCCL's message before 2.30.3.
    refuses = "Duplicate GPU" in reason
    raise (part_lib.NotMeasuredError if refuses else JobError)(reason)
  return {"rows": rows}


def _rows(
  task: part_lib.Task, environ: Mapping[str, str], deadline_s: float
) -> Iterator[dict[str, Any]]:
  """A row for each setting, while there is time."""
  num_failed = 0
  settings = _SETTINGS[:1] if task.is_brief else _SETTINGS
  for index, (num_channels, buffer_bytes) in enumerate(settings):
    left_s = deadline_s - time.monotonic()
    # If the first two settings fail, the others will, too.
    if left_s < _LIMIT_OF_JOB_S / 2 or num_failed == index == 2:
      return
    job = Job(
      folder=str(task.path / f"ranks{index}"),
      num_bytes=min(num_channels * _BYTES_PER_CHANNEL, _MOST_BYTES),
      width=_WIDTH // 16 if task.is_brief else _WIDTH,
      num_layers=_NUM_LAYERS,
      num_gpus=_num_gpus(task),
    )
    row: dict[str, Any] = {
      "num_gpus": job.num_gpus,
      "num_channels": num_channels,
      "buffer_bytes": buffer_bytes,
      "num_bytes": job.num_bytes,
    }
    setting = {
      "NCCL_MIN_CTAS": str(num_channels),
      "NCCL_MAX_CTAS": str(num_channels),
      "NCCL_BUFFSIZE": str(buffer_bytes),
    }
    limit_s = min(left_s, _LIMIT_OF_JOB_S)
    try:
      row["step_us"] = run(job, {**environ, **setting}, limit_s=limit_s)
      # All traces exist now, even if the comparison fails.
      row |= compared_beside(
        pathlib.Path(job.folder),
        task.several(_NUM_RANKS),
        chunk_bytes=buffer_bytes // _CHUNKS_PER_BUFFER,
        num_gpus=job.num_gpus,
      )
    except Exception as error:  # Other settings may work.
      num_failed += isinstance(error, JobError)
      row["reason"] = str(error) or type(error).__name__
    yield row


def compared_beside(
  folder: pathlib.Path,
  cluster_name: str,
  *,
  chunk_bytes: int,
  num_gpus: int = 1,
) -> dict[str, Any]:
  """Slowdowns of kernels and of an all-reduce of two ranks beside each other.

  `costs/contention.py` gets measurements of each alone: the kernels' times, the
  all-reduce's time and its channels. So this compares only contention.

  Args:
    folder: the folder with the traces of `PROGRAMS`.
    cluster_name: a cluster with two of this GPU.
    chunk_bytes: bytes that a channel passes on at a time.
    num_gpus: number of GPUs of the ranks.
  """
  cluster = cluster_lib.parse(cluster_name)
  alone, collective, both = (
    profile_lib.read(folder / name)
    for name in ("kernels", "collective", "both")
  )
  ranks_per_gpu = _NUM_RANKS // num_gpus
  cost = _cost(collective, cluster, chunk_bytes, ranks_per_gpu)
  (found,) = both.analysis.collectives
  return {
    "num_channels": cost.num_channels // ranks_per_gpu,
    "collective_us": cost.time_us,
    "memory_gbps": cost.memory_gbps,
    "kernels": _kernels_beside(alone, both, cost, cluster),
    "collective": {
      "lone_us": cost.time_us,
      "beside_us": both.own_us[found.name],
    },
  }


def _cost(
  profile: profile_lib.Profile,
  cluster: cluster_lib.Cluster,
  chunk_bytes: int,
  ranks_per_gpu: int,
) -> collective_lib.CollectiveCost:
  """The all-reduce's use of a GPU, by all of its ranks together."""
  (found,) = profile.analysis.collectives
  key = collective_lib.tuning_key(found, cluster)
  setting = dataclasses.replace(
    collective_lib.default_setting(key, cluster),
    num_channels=profile.num_channels[found.name],
    chunk_bytes=chunk_bytes,
  )
  predicted = collective_lib.predict(key, setting, cluster)
  time_us = profile.own_us[found.name]
  return dataclasses.replace(
    predicted,
    time_us=time_us,
    num_channels=ranks_per_gpu * predicted.num_channels,
    # The same bytes in the time measured here.
    memory_gbps=(
      ranks_per_gpu * predicted.memory_gbps * predicted.time_us / time_us
    ),
  )


def _kernels_beside(
  alone: profile_lib.Profile,
  both: profile_lib.Profile,
  cost: collective_lib.CollectiveCost,
  cluster: cluster_lib.Cluster,
) -> list[dict[str, Any]]:
  """A row for each kernel that ran beside the all-reduce from start to end."""
  priced = costing.of_profile(alone, cluster).measured
  times: dict[str, list[float]] = {}
  for run in both.kernel_runs:
    if run.share >= profile_lib.COVERED:
      times.setdefault(run.name, []).append(run.time_us)
  rows = []
  for name, beside_us in times.items():
    kernel = both.kernels[name]
    lone_us = priced.work_us.get(measured_lib.work_of(kernel))
    if lone_us is None:
      continue
    lone = priced.kernel(kernel, kernel_lib.predict(kernel, cluster.gpu))
    predicted = contention.beside(lone, cost, cluster.gpu)
    rows.append(
      {
        "kind": kernel.category,
        "shape": kernel.matrix_shape,
        "num_bytes": kernel.num_bytes,
        "num": len(beside_us),
        "lone_us": lone_us,
        "beside_us": statistics.median(beside_us),
        "predicted_us": predicted.kernel_us - lone.gap_us,
      }
    )
  return rows


if __name__ == "__main__":
  run_rank(sys.argv[1], int(sys.argv[2]), Job(**json.loads(sys.argv[3])))
