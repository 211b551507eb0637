# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""The Llama example's step on this GPU: traced, tuned, and passed to commands.

The folder gets the XSpace and the scheduled module, as fixtures for tests and
for later parts. Step times are measured without a trace, with and without XLA's
command buffers. Traces are taken without these, because only then do they show
single kernels.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
import itertools
import json
import lzma
import statistics
import sys
import time
from typing import Any
import warnings

import jax
import jax.numpy as jnp

from benchmarks.gpu import kernels
from benchmarks.gpu import part as part_lib
import lagom_xla

_TRACE = "trace"
_EXAMPLES = part_lib.ROOT / "examples"
_NUM_WARM_UPS = 3
_NUM_TIMED = 10
_NUM_TRACED = 3


def traced_step(task: part_lib.Task) -> dict[str, Any]:
  """Times and traces the step, and compares its kernels."""
  figures = {"model": _model(task), **traced(task, *_example(task))}
  task.keep(figures)
  compared = kernels.compared(task.path / _TRACE, task.cluster)
  return figures | {"kernels": compared}


def traced(
  task: part_lib.Task, step: Any, state: Any, batches: Iterator[Any]
) -> dict[str, Any]:
  """Times and traces a step on the devices of this machine.

  The jitted step maps a state, which it donates, and a batch to a state and
  metrics with a loss. `batches` must not end. The folder gets trace and
  fixtures.
  """
  lowered = step.lower(state, next(batches))
  ways: dict[str, Mapping[str, bool | str]] = {"as jit compiles it": {}}
  if jax.default_backend() == "gpu":
    ways["without command buffers"] = kernels.NO_COMMAND_BUFFERS
  step_us: dict[str, Any] = {}
  compiled: Any = None
  for way, options in ways.items():
    compiled = lowered.compile(compiler_options=dict(options))
    state, times_us = _run(compiled, state, batches, _NUM_WARM_UPS + _NUM_TIMED)
    step_us[way] = _spread(times_us)
    task.keep({"step_us": step_us})
  with jax.profiler.trace(str(task.path / _TRACE)):
    state, _ = _run(compiled, state, batches, _NUM_TRACED)
  (module,) = compiled.runtime_executable().hlo_modules()
  serialized = module.as_serialized_hlo_module_proto()
  (task.path / "step.hlo.xz").write_bytes(lzma.compress(serialized))
  (xspace,) = (task.path / _TRACE).rglob("*.xplane.pb")
  compressed = lzma.compress(xspace.read_bytes())
  (task.path / "step.xplane.pb.xz").write_bytes(compressed)
  _, losses = _losses(compiled, state, batches, _NUM_TRACED)
  return {"step_us": step_us, "num_traced": _NUM_TRACED, "losses": losses}


def _model(task: part_lib.Task) -> str:
  return "tiny" if task.is_brief else "small"


def _example(task: part_lib.Task) -> tuple[Any, Any, Iterator[Any]]:
  """The jitted step, its state, and endless batches."""
  sys.path.insert(0, str(_EXAMPLES))
  from common import data
  from common import step as step_lib
  from llama import train

  model = _model(task)
  step, (state_spec, batch_spec) = train.train_step(jax.devices(), model=model)
  state = step_lib.init_state(train.model_of, state_spec, model=model)
  batch_size, seq_len = batch_spec["inputs"].shape
  batches = data.byte_batches(
    data.TEXT.read_bytes(), batch_size=batch_size, seq_len=seq_len, seed=0
  )
  place = batch_spec["inputs"].sharding
  return step, state, (jax.device_put(batch, place) for batch in batches)


def _run(
  step: Any, state: Any, batches: Iterator[Any], num_steps: int
) -> tuple[Any, list[float]]:
  """Runs steps one by one; returns the state and times in us."""
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
  """Runs a few more steps; returns the state and their losses."""
  found = []
  for _ in range(num_steps):
    state, metrics = step(state, next(batches))
    found.append(float(metrics["loss"]))
  return state, found


def _spread(times_us: list[float]) -> dict[str, float]:
  """Minimum, median and maximum of times, without the first few steps."""
  times_us = times_us[_NUM_WARM_UPS:]
  return {
    "least_us": min(times_us),
    "median_us": statistics.median(times_us),
    "most_us": max(times_us),
  }


_NUM_STEPS = 10
_NUM_IN_TURNS = 20
_TRAINING_S = 40.0


def decorated(task: part_lib.Task) -> dict[str, Any]:
  """Compares the step with a user's `tune` around it to the plain one."""
  training_s = 1.0 if task.is_brief else _TRAINING_S
  return beside_tuned(task, *_example(task), training_s=training_s)


def beside_tuned(
  task: part_lib.Task,
  plain: Any,
  state: Any,
  batches: Iterator[Any],
  *,
  training_s: float,
) -> dict[str, Any]:
  """Compares losses from the same state, trains, and times alternating steps.

  Tuning gets `training_s` to finish. For the step, see `traced`.
  """
  first = list(itertools.islice(batches, _NUM_STEPS))
  copied = jax.tree.map(jnp.copy, state)
  _, expected = _losses(plain, copied, iter(first), _NUM_STEPS)
  figures: dict[str, Any] = {"losses": expected}
  task.keep(figures)
  with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    tuned: Any = lagom_xla.tune(plain, cluster=task.cluster)
    begin_s = time.monotonic()
    state, found = _losses(tuned, state, iter(first), _NUM_STEPS)
    differences = (abs(a - b) for a, b in zip(found, expected, strict=True))
    figures |= {
      "are_losses_equal": found == expected,
      "largest_difference": max(differences),
    }
    num_steps, end_s = _NUM_STEPS, begin_s + training_s
    while time.monotonic() < end_s and "now: watch" not in tuned.report():
      state, _ = _run(tuned, state, batches, _NUM_STEPS)
      num_steps += _NUM_STEPS
  figures |= {
    "num_steps": num_steps,
    "report": tuned.report(),
    "seconds": time.monotonic() - begin_s,
    "warnings": [str(it.message) for it in caught],
  }
  task.keep(figures)
  times_us: dict[str, list[float]] = {"plain": [], "tuned": []}
  for _ in range(_NUM_IN_TURNS):
    for name, step in (("plain", plain), ("tuned", tuned)):
      state, taken_us = _run(step, state, batches, 1)
      times_us[name] += taken_us
  return figures | {"step_us": {n: _spread(us) for n, us in times_us.items()}}


_MOST_WORDS = 400
# Limit of a command, so that one that hangs leaves time for the others.
_LIMIT_S = 60.0


def commands(task: part_lib.Task) -> dict[str, Any]:
  """Output and duration of `lagom-xla profile` and `tune`.

  `tune` runs twice: for eight of this machine's GPU, and for the GPUs here with
  the trace of the example's step.
  """
  trace = task.path / _TRACE
  tune = (
    *("tune", "examples/llama/train.py:train_step", "--in-process"),
    *(f"--arg=model={_model(task)}", "--format=json"),
  )
  eight, here = (
    (*tune, f"--cluster={cluster}", f"--out={task.path / cluster}")
    for cluster in (task.several(8), task.cluster)
  )
  lines: dict[str, tuple[str, ...]] = {}
  if trace.exists():
    lines["profile"] = ("profile", str(trace), "--format=json")
    here = (*here, f"--profile={trace}")
  lines["tune for eight"] = (*eight, "--time-budget=15s")
  # For the GPUs here, every compile is complete, with autotuning.
  lines["tune here"] = (*here, f"--time-budget={10 if task.is_brief else 30}s")
  figures: dict[str, Any] = {}
  for name, line in lines.items():
    figures[name] = {"command": " ".join(line), **_figures(line)}
    task.keep(figures)
  return figures


def _figures(line: tuple[str, ...]) -> dict[str, Any]:
  """The output of a command; of a plan, only the options and the prediction."""
  begin_s = time.monotonic()
  done = part_lib.run_python("-m", "lagom_xla", *line, limit_s=_LIMIT_S)
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
