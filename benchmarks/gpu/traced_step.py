# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Trace of the Llama example's step on this GPU, and the module that ran.

The folder gets the XSpace and the scheduled module, as fixtures for tests and
for the parts that come after. Step times are measured without a trace, with
XLA's command buffers and without: without them a trace tells kernels apart.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
import lzma
import pathlib
import statistics
import sys
import time
from typing import Any

import jax

from benchmarks.gpu import environment
from benchmarks.gpu import part as part_lib

TRACE = "trace"
MODEL = "small"
_EXAMPLES = pathlib.Path(__file__).parents[2] / "examples"
_NUM_WARM_UPS = 3
_NUM_TIMED = _NUM_WARM_UPS + 10
_NUM_TRACED = 3
NO_COMMAND_BUFFERS: Mapping[str, bool | str] = {
  "xla_gpu_enable_command_buffer": ""
}


def measure(folder: pathlib.Path) -> dict[str, Any]:
  """Times and traces the step, and compares its kernels."""
  environment.check()
  figures = {"model": MODEL, **traced(folder, *example())}
  part_lib.keep(folder, "traced_step", figures)
  # The trace is there by now, whatever becomes of the comparison.
  from benchmarks.gpu import kernel_times

  cluster = environment.cluster_name()
  return figures | {"kernels": kernel_times.compared(folder / TRACE, cluster)}


def traced(
  folder: pathlib.Path, step: Any, state: Any, batches: Iterator[Any]
) -> dict[str, Any]:
  """Times and traces a step, on the devices that are here.

  The jitted step takes a state, which it donates, and one of `batches` without
  end to a state and metrics with a loss. The folder gets trace and fixtures.
  """
  lowered = step.lower(state, next(batches))
  compiled = lowered.compile()
  state, times_us = run(compiled, state, batches, _NUM_TIMED)
  step_us = {"as jit compiles it": spread(times_us)}
  if jax.default_backend() == "gpu":
    compiled = lowered.compile(compiler_options=dict(NO_COMMAND_BUFFERS))
    state, times_us = run(compiled, state, batches, _NUM_TIMED)
    step_us["without command buffers"] = spread(times_us)
  with jax.profiler.trace(str(folder / TRACE)):
    state, _ = run(compiled, state, batches, _NUM_TRACED)
  (module,) = compiled.runtime_executable().hlo_modules()
  serialized = module.as_serialized_hlo_module_proto()
  (folder / "step.hlo.xz").write_bytes(lzma.compress(serialized))
  (xspace,) = (folder / TRACE).rglob("*.xplane.pb")
  compressed = lzma.compress(xspace.read_bytes())
  (folder / "step.xplane.pb.xz").write_bytes(compressed)
  _, found = losses(compiled, state, batches, _NUM_TRACED)
  return {"step_us": step_us, "num_traced": _NUM_TRACED, "losses": found}


def example() -> tuple[Any, Any, Iterator[Any]]:
  """The Llama example's jitted step, its state, and batches without end.

  Raises:
    NotMeasuredError: Flax is not installed.
  """
  sys.path.insert(0, str(_EXAMPLES))
  try:
    from common import data
    from common import step as step_lib
    from llama import train
  except ImportError as error:
    raise part_lib.NotMeasuredError(
      f"The example needs Flax and Optax: {error}."
    ) from error
  step, (state_spec, batch_spec) = train.train_step(jax.devices(), model=MODEL)
  state = step_lib.init_state(train.model_of, state_spec, model=MODEL)
  batch_size, seq_len = batch_spec["inputs"].shape
  batches = data.byte_batches(
    data.TEXT.read_bytes(), batch_size=batch_size, seq_len=seq_len, seed=0
  )
  place = batch_spec["inputs"].sharding
  return step, state, (jax.device_put(batch, place) for batch in batches)


def run(
  step: Any, state: Any, batches: Iterator[Any], num_steps: int
) -> tuple[Any, list[float]]:
  """Runs steps, each to its end; returns the state and times in us."""
  times_us = []
  for _ in range(num_steps):
    batch = next(batches)
    jax.block_until_ready((state, batch))
    begin_s = time.perf_counter()
    state, _ = jax.block_until_ready(step(state, batch))
    times_us.append((time.perf_counter() - begin_s) * 1e6)
  return state, times_us


def losses(
  step: Any, state: Any, batches: Iterator[Any], num_steps: int
) -> tuple[Any, list[float]]:
  """The state after a few more steps, and their losses."""
  found = []
  for _ in range(num_steps):
    state, metrics = step(state, next(batches))
    found.append(float(metrics["loss"]))
  return state, found


def spread(times_us: list[float]) -> dict[str, float]:
  """Least, median and most of times, without those of the first few steps."""
  times_us = times_us[_NUM_WARM_UPS:]
  return {
    "least_us": min(times_us),
    "median_us": statistics.median(times_us),
    "most_us": max(times_us),
  }
