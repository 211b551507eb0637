# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Overhead of tuning a training run, measured against plain jit.

    python -m benchmarks.overhead [--device_ms=50] [--rows=64,400]
        [--steps=1000] [--pairs=6] [--format=text|csv] [--csv=FOLDER]

Runs of small data-parallel steps on XLA:CPU devices alternate between plain jit
and a tuned step. Each compiles the step anew. Prints, in steps of plain jit,
the extra wall-clock time of tuned runs, their extra processor time (of all
threads and processes, and of the training thread), and the overhead in their
reports, each with a 95 % interval over pairs. Also prints the processor time of
imports, which none of these include.

Steps of `--rows`, with a device for each core, are limited by their products,
so they slow down by as much as a search uses the cores, or other work on the
machine.

Steps of `--device_ms` imitate GPUs, where the device limits the step and the
host waits. A custom call (overhead_device.c) sleeps for that time in the XLA
thread that runs a device's part, while Python dispatches the next steps. Then
come all-reduces that can be tuned, and tuning goes through all of its states.
This shows the delay by the host's part of tuning: the first call, waits at the
ends of blocks, the trace, and a search and compiles beside it. It does not show
CUPTI in the trace, a build without command buffers, slower candidates, or
searches in other processes instead of threads that share Python's lock.

If JAX has GPUs, all of them run one step of `--rows` instead, and the result
includes all of that. This also works on software GPUs (tests/software_gpu), as
in

    SOFTWARE_GPU_KERNEL_US=1200 SOFTWARE_GPU_LINK_GBPS=20
        python tests/software_gpu/cuda_libraries.py --num=2
        python -m benchmarks.overhead

where each kernel takes 1.2 ms and no processor time.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
import contextlib
import ctypes
import dataclasses
import functools
import gc
import math
import os
import pathlib
import re
import resource
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from typing import Any, Literal
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np
from scipy import special

from benchmarks import table as table_lib
from benchmarks.live import cpu
import lagom_xla
from lagom_xla.apply.nccl import build
from lagom_xla.live import proposals as proposals_lib
from lagom_xla.live import shutdown
from lagom_xla.live import tuned

_NAME = "lagom_xla_device"
_SOURCE = pathlib.Path(__file__).with_name("overhead_device.c")
_FLAGS = ("-std=gnu11", "-O1", "-shared", "-fPIC")


def _after(array: jax.Array, device_s: float) -> jax.Array:
  """Returns the array after `device_s` seconds on the device.

  Raises BuildError if there is no compiler.
  """
  _register()
  call = jax.ffi.ffi_call(
    _NAME,
    jax.ShapeDtypeStruct(array.shape, array.dtype),
    input_output_aliases={0: 0},
  )
  return call(array, microseconds=np.int64(1e6 * device_s))


@functools.cache
def _register() -> None:
  """Compiles the custom call and registers it with XLA."""
  with tempfile.TemporaryDirectory() as folder:
    path = pathlib.Path(folder) / f"{_NAME}.so"
    include = f"-I{jax.ffi.include_dir()}"
    command = [*build.compiler(), *_FLAGS, include, str(_SOURCE), "-o"]
    subprocess.run([*command, str(path)], check=True)
    handler = getattr(ctypes.CDLL(str(path)), _NAME)
  jax.ffi.register_ffi_target(_NAME, jax.ffi.pycapsule(handler), platform="cpu")


_NUM_LAYERS = 6
_CORES_WIDTH = 256
_GPU_WIDTH = 4096
# Sizes that leave the cores almost idle. Only two devices: eight on two cores
# deadlock with several steps in flight (XLA:CPU of JAX 0.10.2), because
# sleeping calls block its threads.
_DEVICE_WIDTH = 32
_DEVICE_ROWS = 8
_NUM_DEVICES = 2
_ONE_GROUP_BYTES = 1 << 30
_P = jax.sharding.PartitionSpec


@dataclasses.dataclass(frozen=True, kw_only=True)
class Step:
  """A data-parallel train step, with real all-reduces.

  `function` takes weights and a batch, and returns weights.
  """

  name: str
  function: Callable[..., Any]
  weights: list[jax.Array]
  batch: jax.Array
  platform: Literal["cores", "sleep", "gpu"]

  def jitted(self) -> Any:
    """The step under jit, as a new function that is not compiled yet."""
    return jax.jit(lambda *args: self.function(*args))

  @contextlib.contextmanager
  def surroundings(self) -> Iterator[None]:
    """Makes `lagom_xla.tune` handle the step as it does steps on GPUs.

    There, a search uses no core that the step needs; see also `_proposer`.
    """
    with mock.patch.dict(tuned.PROPOSERS):
      if self.platform != "gpu":
        cpu.plug_in()
      if self.platform == "sleep":
        tuned.PROPOSERS["cpu"] = lambda *unused: _proposer()
      yield


def on_cores(num_rows: int) -> Step:
  """A step with this many rows per device, limited by products on the cores."""
  name = f"{num_rows} rows"
  return _step(name, jax.devices(), _CORES_WIDTH, num_rows, device_s=0.0)


def on_gpus(num_rows: int) -> Step:
  """A step with this many rows per GPU, on all GPUs."""
  devices = jax.devices()
  name = f"{len(devices)} {devices[0].device_kind}"
  return _step(name, devices, _GPU_WIDTH, num_rows, device_s=0.0)


def on_device(device_ms: float) -> Step:
  """A step that takes this time on a device and almost none on the cores."""
  name = f"{device_ms:g} ms of a device"
  devices = jax.devices()[:_NUM_DEVICES]
  return _step(
    name, devices, _DEVICE_WIDTH, _DEVICE_ROWS, device_s=device_ms / 1e3
  )


def _step(
  name: str,
  devices: Sequence[jax.Device],
  width: int,
  num_rows: int,
  *,
  device_s: float,
) -> Step:
  mesh = jax.sharding.Mesh(np.asarray(devices), ("data",))

  def loss_of(weights: list[jax.Array], x: jax.Array) -> jax.Array:
    for weight in weights:
      x = jnp.tanh(x @ weight)
    return jnp.mean(x**2)

  def step(weights: list[jax.Array], x: jax.Array) -> list[jax.Array]:
    if device_s:
      x = _after(x, device_s)
    grads = jax.lax.pmean(jax.grad(loss_of)(weights, x), "data")
    return [w - 0.01 * g for w, g in zip(weights, grads, strict=True)]

  def placed(array: np.ndarray, spec: jax.sharding.PartitionSpec) -> jax.Array:
    return jax.device_put(array, jax.sharding.NamedSharding(mesh, spec))

  platform: Literal["cores", "sleep", "gpu"] = "sleep" if device_s else "cores"
  if devices[0].platform == "gpu":
    platform = "gpu"
  noise = np.random.default_rng(0)
  weights = [
    noise.normal(size=(width, width), scale=width**-0.5).astype(np.float32)
    for _ in range(_NUM_LAYERS)
  ]
  batch = np.ones((num_rows * len(devices), width), np.float32)
  mapped = jax.shard_map(
    step,
    mesh=mesh,
    in_specs=(_P(), _P("data")),
    out_specs=_P(),
    check_vma=False,
  )
  return Step(
    name=name,
    function=mapped,
    weights=[placed(it, _P()) for it in weights],
    batch=placed(batch, _P("data")),
    platform=platform,
  )


def _proposer() -> proposals_lib.Proposer:
  """Searches as on CPUs, and then always proposes two ways to be measured.

  Beside 50 ms on a device, no way is predicted to gain anything. But on GPUs,
  proposals are compiled and measured.
  """

  def make() -> Any:
    # In a thread, as in other runs.
    from benchmarks.live.cpu import compiling
    from benchmarks.live.cpu import proposer

    class Proposer(proposer.CpuProposer):
      def proposals(
        self,
        lowered: jax.stages.Lowered,
        measured: proposals_lib.Measured,
        stop: threading.Event,
      ) -> Generator[proposals_lib.Proposal, None, str | None]:
        yield from super().proposals(lowered, measured, stop)
        for group_bytes in (0, _ONE_GROUP_BYTES):
          way = compiling.Way(group_bytes=group_bytes, is_ordered=True)
          yield proposals_lib.Proposal(
            name=compiling.in_words(way), payload=compiling.to_bytes(way)
          )
        return None

    return Proposer()

  return proposals_lib.deferred(make)


# Imports of a user, and those of a search on CPUs beside training.
_IMPORTS = {
  "jax": "import jax",
  "lagom_xla.tune": "import lagom_xla; lagom_xla.tune",
  "a search": "import benchmarks.live.cpu.proposer, scipy.special;"
  " import lagom_xla.live.plan_cache",
}
_STEPS_PER_WAIT = 10
_TOLD = re.compile(r"overhead: (-?[\d.]+) steps")
_NOW = re.compile(r"now: (.*)")


def imports() -> dict[str, float]:
  """Processor time of each import after those before it, in seconds."""
  code = "from time import thread_time as t; begin = t()\n"
  for statement in _IMPORTS.values():
    code += f"{statement}\nprint(t() - begin); begin = t()\n"
  command = (sys.executable, "-c", code)
  said = [subprocess.check_output(command).split() for _ in range(5)]
  medians = (
    statistics.median(map(float, it)) for it in zip(*said, strict=True)
  )
  return dict(zip(_IMPORTS, medians, strict=True))


@dataclasses.dataclass(frozen=True, kw_only=True)
class Run:
  """The times and the report of one run."""

  wall_s: float
  cpu_s: float
  thread_s: float
  report: str


def measure(step: Step, *, num_steps: int, num_pairs: int) -> dict[str, Any]:
  """The row of at least two pairs of runs, in steps of plain jit."""

  def plain() -> Run:
    return _run(step, step.jitted(), num_steps)

  def tuned() -> Run:
    with step.surroundings():
      function = lagom_xla.tune(step.jitted(), cache=False)
      return _run(step, function, num_steps)

  _run(step, step.jitted(), 2 * _STEPS_PER_WAIT)
  pairs = []
  for number in range(num_pairs):
    if number % 2:
      pairs.append((plain(), tuned()))
    else:
      pairs.append((tuned(), plain())[::-1])
    for state in _NOW.findall(pairs[-1][1].report):
      table_lib.say(f"{step.name}: {state}")
  row: dict[str, Any] = {
    "step": step.name,
    "steps": num_steps,
    "step_ms": 1e3 * statistics.median(p.wall_s for p, _ in pairs) / num_steps,
    "load": os.getloadavg()[0],
  }
  for what in ("wall", "cpu", "thread"):
    field = f"{what}_s"
    row |= _interval(
      what,
      [
        (getattr(t, field) - getattr(p, field)) / p.wall_s * num_steps
        for p, t in pairs
      ],
    )
  told = [float(it[1]) for _, t in pairs if (it := _TOLD.search(t.report))]
  # Short runs do not report it.
  return row | (_interval("told", told) if len(told) == num_pairs else {})


def _run(step: Step, function: Any, num_steps: int) -> Run:
  """Trains, and waits for work that is still running at the end."""
  weights = step.weights
  cpu_s, thread_s = _cpu_s(), time.thread_time()
  wall_s = time.perf_counter()
  for number in range(num_steps):
    weights = function(weights, step.batch)
    if number % _STEPS_PER_WAIT == 0:
      jax.block_until_ready(weights)
  jax.block_until_ready(weights)
  wall_s = time.perf_counter() - wall_s
  thread_s = time.thread_time() - thread_s
  report = function.report() if hasattr(function, "report") else ""
  del function
  gc.collect()
  shutdown.join()
  cpu_s = _cpu_s() - cpu_s
  return Run(wall_s=wall_s, cpu_s=cpu_s, thread_s=thread_s, report=report)


def _cpu_s() -> float:
  """Processor time of this process and its children."""
  who = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
  return sum(it.ru_utime + it.ru_stime for it in map(resource.getrusage, who))


def _interval(what: str, values: Sequence[float]) -> dict[str, float]:
  """The mean, and its 95 % interval."""
  num = len(values)
  mean = statistics.fmean(values)
  half = statistics.stdev(values) / math.sqrt(num)
  half *= float(special.stdtrit(num - 1, 0.975))
  ends = {f"{what}_low": mean - half, f"{what}_high": mean + half}
  return {f"{what}_steps": mean, **ends}


def main() -> None:
  """Runs the command."""
  parser = table_lib.parser("benchmarks.overhead", __doc__)
  parser.add_argument("--device_ms", type=table_lib.names, default=("50",))
  parser.add_argument("--rows", type=table_lib.names, default=("64", "400"))
  parser.add_argument("--steps", type=int, default=1000)
  parser.add_argument("--pairs", type=int, default=6)
  arguments = parser.parse_args()
  jax.config.update("jax_num_cpu_devices", os.cpu_count())
  told = ", ".join(f"{name} {s:.2f} s" for name, s in imports().items())
  num_rows = [int(rows) for rows in arguments.rows]
  if jax.default_backend() == "gpu":
    steps = [on_gpus(num) for num in num_rows[:1]]
  else:
    steps = [
      *map(on_device, map(float, arguments.device_ms)),
      *map(on_cores, num_rows),
    ]
  rows = [
    measure(step, num_steps=arguments.steps, num_pairs=arguments.pairs)
    for step in steps
  ]
  ends = [
    f"{what}_{end}"
    for what in ("wall", "cpu", "thread", "told")
    for end in ("steps", "low", "high")
  ]
  table = table_lib.Table(
    name="overhead",
    title="Overhead of tuned runs over plain ones, in steps",
    columns=table_lib.columns(
      step="", step_ms=".3g", steps=",d", **dict.fromkeys(ends, "+.1f"),
      load=".1f",
    ),
    rows=rows,
    notes=(f"Processor time of imports: {told}.",),
  )  # fmt: skip
  table_lib.show([table], arguments.format, arguments.csv)


if __name__ == "__main__":
  main()
