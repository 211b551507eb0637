# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Background search: `lagom-xla tune` of a step while it trains.

    python -m lagom_xla.cli.background FOLDER PARENT

FOLDER holds a step (`compile/lowered.py`) and a task; results are appended to a
file there as they are found, a JSON object per line. The process has the lowest
priority, uses no GPU, and ends with its parent. `live/gpu.py` starts it.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import pathlib
import sys
import time
from typing import TYPE_CHECKING, Any

from lagom_xla import errors
from lagom_xla.cli import options
from lagom_xla.cli import stopping
from lagom_xla.compile import worker

if TYPE_CHECKING:
  from lagom_xla.compile import config as config_lib
  from lagom_xla.compile import target as target_lib
  from lagom_xla.live import gpu
  from lagom_xla.tuner import tuning as tuning_lib

# The lowest priority, so that the training process's threads never wait.
_NICENESS = 19


def main() -> None:
  """Runs the folder's task, and writes the results there."""
  folder, parent = pathlib.Path(sys.argv[1]), int(sys.argv[2])
  worker.end_with(parent)
  os.nice(_NICENESS)
  from lagom_xla.live import gpu

  task = gpu.read_task(folder)
  try:
    with stopping.raised(task.time_budget_s):
      if task.prove is None:
        _search(folder, task)
      else:  # An abort of XLA ends only this process.
        _prove(_target(folder), task.prove)
        _say(folder, proven=True)
  except errors.LagomError as error:
    _say(folder, error=str(error))
  except errors.Stopped as stop:
    _say(folder, error=f"stopped by {stop.reason} before any result")
  stopping.end(0)


def _search(folder: pathlib.Path, task: gpu.Task) -> None:
  """Tunes the step, and writes one proposal after another."""
  from lagom_xla.live import gpu

  begin_s = time.monotonic()
  arguments = argparse.Namespace(workers=task.num_workers, no_cache=False)
  # The training process runs the proposals, so they are proven to compile.
  with options.workers(arguments, generates_code=True) as workers:
    target = _target(folder)
    if workers is not None:
      target = target.with_workers(workers)
    tuning = _tuned(folder, target, task)
    # From here on, proposals are written even if the time is up.
    stopping.end_time_budget()
    search = tuning.search
    if not tuning.plan.xla.is_default:
      is_proven = tuning.stopped is None
      ratio = gpu.ratio(search, search.best)
      _propose(folder, tuning.plan.xla, ratio, is_proven=is_proven)
    left_s = task.time_budget_s - (time.monotonic() - begin_s)
    if tuning.stopped is not None or left_s <= 0:
      return
    with contextlib.suppress(errors.Stopped), stopping.raised(left_s):
      for runner_up in gpu.of(search):
        ratio = gpu.ratio(search, runner_up)
        try:
          _prove(target, runner_up.config)
        except errors.LagomError as error:
          _say(folder, warning=str(error))
        else:
          _propose(folder, runner_up.config, ratio, is_proven=True)


def _tuned(
  folder: pathlib.Path, target: target_lib.Target, task: gpu.Task
) -> tuning_lib.Tuning:
  """Tunes with the task's trace, or with predictions if it is unusable."""
  from lagom_xla.search.xla import arms
  from lagom_xla.tuner import tuner

  def tune() -> tuning_lib.Tuning:
    return tuner.tune(
      target,
      in_process=True,
      arms=arms.within_process(target.cluster),
    )

  try:
    with options.pricing(task.trace, target):
      return tune()
  except (errors.TraceError, errors.HloError) as error:
    _say(folder, warning=f"{error} Costs are predicted instead.")
    return tune()


def _prove(target: target_lib.Target, config: config_lib.XlaConfig) -> None:
  """Compiles a config as far as possible without a GPU."""
  if target.obstacle is None:
    target.compile(config)
  else:
    target.schedule(config)


def _target(folder: pathlib.Path) -> target_lib.Target:
  from lagom_xla.compile import lowered
  from lagom_xla.compile import target as target_lib

  return target_lib.of_sent(lowered.read_step(folder))


def _propose(
  folder: pathlib.Path,
  config: config_lib.XlaConfig,
  ratio: float,
  *,
  is_proven: bool,
) -> None:
  from lagom_xla.live import gpu

  payload = gpu.Payload(xla=config, is_proven=is_proven)
  _say(
    folder,
    name=gpu.in_words(config),
    payload=payload.to_bytes().decode(),
    predicted_ratio=ratio,
  )


def _say(folder: pathlib.Path, **facts: Any) -> None:
  from lagom_xla.live import gpu

  with (folder / gpu.FOUND).open("a") as file:
    file.write(json.dumps(facts) + "\n")


if __name__ == "__main__":
  main()
