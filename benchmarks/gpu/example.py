# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""The Llama example's step on this GPU: traced, tuned, and given to commands.

The folder gets the XSpace and the scheduled module, as fixtures for tests and
for what comes after. Step times are measured without a trace, with XLA's
command buffers and without: without them a trace tells kernels apart.
"""

from __future__ import annotations

from collections.abc import Iterator
import json
import lzma
import pathlib
import statistics
import subprocess
import sys
import time
from typing import Any
import warnings

import jax

from benchmarks.gpu import kernels
from benchmarks.gpu import part as part_lib
import lagom_xla

_TRACE = "trace"
_MODEL = "small"
_EXAMPLES = part_lib.ROOT / "examples"
_NUM_WARM_UPS = 3
_NUM_TIMED = 10
_NUM_TRACED = 3


def traced_step(folder: pathlib.Path) -> dict[str, Any]:
  """Times and traces the step, and compares its kernels."""
  cluster = part_lib.cluster_name()
  figures = {"model": _MODEL, **traced(folder, *_example())}
  part_lib.keep(folder, "traced_step", figures)
  return figures | {"kernels": kernels.compared(folder / _TRACE, cluster)}


def traced(
  folder: pathlib.Path, step: Any, state: Any, batches: Iterator[Any]
) -> dict[str, Any]:
  """Times and traces a step, on the devices that are here.

  The jitted step takes a state, which it donates, and one of `batches` without
  end to a state and metrics with a loss. The folder gets trace and fixtures.
  """
  lowered = step.lower(state, next(batches))
  num_steps = _NUM_WARM_UPS + _NUM_TIMED
  compiled = lowered.compile()
  state, times_us = _run(compiled, state, batches, num_steps)
  step_us = {"as jit compiles it": _spread(times_us)}
  if jax.default_backend() == "gpu":
    compiled = lowered.compile(
      compiler_options=dict(kernels.NO_COMMAND_BUFFERS)
    )
    state, times_us = _run(compiled, state, batches, num_steps)
    step_us["without command buffers"] = _spread(times_us)
  with jax.profiler.trace(str(folder / _TRACE)):
    state, _ = _run(compiled, state, batches, _NUM_TRACED)
  (module,) = compiled.runtime_executable().hlo_modules()
  serialized = module.as_serialized_hlo_module_proto()
  (folder / "step.hlo.xz").write_bytes(lzma.compress(serialized))
  (xspace,) = (folder / _TRACE).rglob("*.xplane.pb")
  compressed = lzma.compress(xspace.read_bytes())
  (folder / "step.xplane.pb.xz").write_bytes(compressed)
  _, losses = _losses(compiled, state, batches, _NUM_TRACED)
  return {"step_us": step_us, "num_traced": _NUM_TRACED, "losses": losses}


def _example() -> tuple[Any, Any, Iterator[Any]]:
  """The jitted step, its state, and batches without end."""
  sys.path.insert(0, str(_EXAMPLES))
  from common import data
  from common import step as step_lib
  from llama import train

  step, (state_spec, batch_spec) = train.train_step(jax.devices(), model=_MODEL)
  state = step_lib.init_state(train.model_of, state_spec, model=_MODEL)
  batch_size, seq_len = batch_spec["inputs"].shape
  batches = data.byte_batches(
    data.TEXT.read_bytes(), batch_size=batch_size, seq_len=seq_len, seed=0
  )
  place = batch_spec["inputs"].sharding
  return step, state, (jax.device_put(batch, place) for batch in batches)


def _run(
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


def _losses(
  step: Any, state: Any, batches: Iterator[Any], num_steps: int
) -> tuple[Any, list[float]]:
  """The state after a few more steps, and their losses."""
  found = []
  for _ in range(num_steps):
    state, metrics = step(state, next(batches))
    found.append(float(metrics["loss"]))
  return state, found


def _spread(times_us: list[float]) -> dict[str, float]:
  """Least, median and most of times, without those of the first few steps."""
  times_us = times_us[_NUM_WARM_UPS:]
  return {
    "least_us": min(times_us),
    "median_us": statistics.median(times_us),
    "most_us": max(times_us),
  }


_NUM_STEPS = 10
_NUM_IN_TURNS = 20
_TRAINING_S = 40.0


def decorated(folder: pathlib.Path) -> dict[str, Any]:
  """The step as a user would have it tuned, beside the plain one.

  Losses are compared from the same state, then steps timed in turns.
  """
  cluster = part_lib.cluster_name()
  plain, state, batches = _example()
  _, expected = _losses(plain, state, batches, _NUM_STEPS)
  _, state, batches = _example()
  num_steps = 0
  with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    tuned: Any = lagom_xla.tune(plain, cluster=cluster)
    begin_s = time.monotonic()
    state, found = _losses(tuned, state, batches, _NUM_STEPS)
    # What measures as it trains has come to its end by then, or never does.
    end_s = time.monotonic() + _TRAINING_S
    while time.monotonic() < end_s:
      state, _ = _run(tuned, state, batches, 1)
      num_steps += 1
  differences = (abs(a - b) for a, b in zip(found, expected, strict=True))
  figures: dict[str, Any] = {
    "losses": expected,
    "are_losses_equal": found == expected,
    "largest_difference": max(differences),
    "num_steps": num_steps,
    "report": tuned.report(),
    "seconds": time.monotonic() - begin_s,
    "warnings": [str(it.message) for it in caught],
  }
  part_lib.keep(folder, "decorated", figures)
  _, state, batches = _example()
  times_us: dict[str, list[float]] = {"plain": [], "tuned": []}
  for _ in range(_NUM_IN_TURNS):
    for name, step in (("plain", plain), ("tuned", tuned)):
      state, taken_us = _run(step, state, batches, 1)
      times_us[name] += taken_us
  return figures | {"step_us": {n: _spread(us) for n, us in times_us.items()}}


_MOST_WORDS = 400


def commands(folder: pathlib.Path) -> dict[str, Any]:
  """What `lagom-xla profile` and `tune` print, and how long they take.

  `tune` runs twice: for eight of the GPU that is here, for which XLA then
  compiles with a GPU to time kernels on, and for it alone, by the trace of the
  example's step.
  """
  trace = folder / _TRACE
  lines = {"tune for eight": _tune(folder / "eight", part_lib.several(8))}
  here = _tune(folder / "here", part_lib.several(1))
  if trace.exists():
    lines["profile"] = ("profile", str(trace), "--format=json")
    here = (*here, f"--profile={trace}")
  lines["tune here"] = here
  figures: dict[str, Any] = {}
  for name, line in lines.items():
    figures[name] = {"command": " ".join(line), **_figures(line)}
    part_lib.keep(folder, "commands", figures)
  return figures


def _tune(out: pathlib.Path, cluster: str) -> tuple[str, ...]:
  return (
    *("tune", "examples/llama/train.py:train_step", f"--cluster={cluster}"),
    *(f"--arg=model={_MODEL}", f"--out={out}", "--in-process"),
    *("--time-budget=25s", "--format=json"),
  )


def _figures(line: tuple[str, ...]) -> dict[str, Any]:
  """What a command says; of a plan the options and the prediction."""
  begin_s = time.monotonic()
  try:
    done = part_lib.run_python("-m", "lagom_xla", *line, limit_s=60.0)
  except subprocess.TimeoutExpired as error:
    return {"reason": f"{error.timeout:.0f} s passed"}
  figures = {
    "status": done.returncode,
    "seconds": time.monotonic() - begin_s,
    "said": done.stderr.strip()[-_MOST_WORDS:],
  }
  try:
    printed = json.loads(done.stdout)
  except json.JSONDecodeError:
    return figures
  if "plan" not in printed:
    return figures | {"printed": printed}
  plan = printed["plan"]
  return figures | {
    "xla": plan["xla"]["options"],
    "prediction": plan["prediction"],
    "num_candidates": len(printed["candidates"]),
    "stopped": printed["stopped"],
    "profile": printed.get("profile"),
  }
