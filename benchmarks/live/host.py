# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""The program of each of the two hosts: a user's loop, then an A/B comparison.

    python -m benchmarks.live.host JSON

The JSON is a task of `__main__.py`. The loop runs until `tune` only watches, or
up to the time limit of a case. Then the adopted variant, compiled anew, and
XLA's default alternate in blocks; if nothing was adopted, the default
alternates with itself. The last printed line is the result, as JSON.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
import itertools
import json
import math
import os
import pathlib
import signal
import time
from typing import Any

import jax

from benchmarks import shaped_hosts
from benchmarks.live import cases
from benchmarks.live import cpu
from benchmarks.live.cpu.proposer import CpuProposer
import lagom_xla
from lagom_xla import errors
from lagom_xla.jax_internals import store as store_lib

Step = Callable[[Any, Any], tuple[Any, Any]]

# Blocks are long compared to the resolution of clocks and schedulers.
_BLOCK_S = 0.25


def run(
  made: cases.Training, step: Step, state: Any, num_steps: int
) -> tuple[Any, float]:
  """Trains for some steps; returns the state, and seconds per step.

  Steps depend on each other by their state; only the end waits for them.
  """
  begin = time.perf_counter()
  for batch in itertools.islice(itertools.cycle(made.batches), num_steps):
    state, _ = step(state, batch)
  jax.block_until_ready(state)
  return state, (time.perf_counter() - begin) / num_steps


def block_length(step_s: float) -> int:
  """The number of steps in a block."""
  return max(1, math.ceil(_BLOCK_S / step_s))


def measure(
  made: cases.Training,
  steps: Mapping[str, Step],
  state: Any,
  *,
  num_rounds: int,
  num_steps: int,
) -> tuple[Any, dict[str, list[float]]]:
  """The last state, and the seconds per step of each variant in every round.

  Each variant comes first in equally many rounds.
  """
  seconds: dict[str, list[float]] = {name: [] for name in steps}
  for name in shaped_hosts.in_turns(list(steps), num_rounds):
    state, taken_s = run(made, steps[name], state, num_steps)
    seconds[name].append(taken_s)
  return state, seconds


# Steps between checks whether tuning has ended.
_STEPS_PER_LOOK = 10
# Limits of a case: the time to its first candidate, then the time and the
# steps. `tune` judges a candidate after at most a hundred steps, however slow.
_LONGEST_SEARCH_S = 300
_TRIALS_S = 120
_NUM_TRIAL_STEPS = 120
_TIMEOUT_S = 300
_ENDED = ("watching", "stopped")
_TRYING = ("compiling", "measuring", "adopted", "rejected")


def main() -> None:
  """The program."""
  task = shaped_hosts.joined()
  made = cases.CASES[task["case"]].build(jax.devices())
  log = pathlib.Path(task["log"])
  state, trained = _train(made, log)
  trials = _shared(_trials(log))
  found = _compared(made, state, trials, task["num_rounds"])
  # Both hosts print the first process's trials.
  print(json.dumps({**trained, "trials": trials, **found}), flush=True)
  _leave_together()


def _train(made: cases.Training, log: pathlib.Path) -> tuple[Any, Any]:
  """A user's loop, until `tune` has nothing left to do."""
  cpu.plug_in()
  # Without plans of earlier runs, which may have had another link.
  train_step = lagom_xla.tune(made.step, log=log, cache=False)
  state, num_steps, begin = made.state, 0, time.perf_counter()
  first_try: tuple[int, float] | None = None
  is_over = False
  while not is_over:
    for _ in range(_STEPS_PER_LOOK):
      batch = made.batches[num_steps % len(made.batches)]
      state, _ = train_step(state, batch)
      num_steps += 1
    jax.block_until_ready(state)
    seconds = time.perf_counter() - begin
    doing = _doing(train_step)
    if first_try is None and doing.startswith(_TRYING):
      first_try = num_steps, seconds
    if first_try is None:
      is_spent = seconds > _LONGEST_SEARCH_S
    else:
      is_spent = (
        num_steps > first_try[0] + _NUM_TRIAL_STEPS
        and seconds > first_try[1] + _TRIALS_S
      )
    is_over = _shared(doing.startswith(_ENDED) or is_spent)
  return state, {
    "num_steps": num_steps,
    "loop_s": time.perf_counter() - begin,
    "has_ended": _doing(train_step).startswith(_ENDED),
    "report": train_step.report(),
  }


def _doing(train_step: Any) -> str:
  """The current state of `tune`, from its report."""
  return train_step.report().partition("now: ")[2]


def _trials(log: pathlib.Path) -> list[dict[str, Any]]:
  if not log.exists():
    return []
  return [json.loads(line) for line in log.read_text().splitlines()]


def _compared(
  made: cases.Training,
  state: Any,
  trials: list[dict[str, Any]],
  num_rounds: int,
) -> dict[str, Any]:
  """Compares XLA's default with the adopted variant."""
  lowered = made.step.lower(state, made.batches[0])
  adopted = [trial["payload"] for trial in trials if trial["adopted"]]
  default = lowered.compile()
  chosen = (
    CpuProposer().compile(lowered, adopted[-1].encode()) if adopted else default
  )
  is_same = _bits(made, default) == _bits(made, chosen)
  state, seconds = run(made, default, made.state, 2)
  steps = {"default": default, "chosen": chosen}
  num_steps = _shared(block_length(seconds))
  _, by_name = measure(
    made, steps, state, num_rounds=num_rounds, num_steps=num_steps
  )
  return {
    "seconds": by_name,
    "is_same": is_same,
    "load": os.getloadavg()[0],
  }


def _bits(made: cases.Training, step: Step) -> list[bytes]:
  """The outputs of a step, from copies of its arguments, as it may donate."""
  state = jax.tree.map(lambda leaf: leaf.copy(), made.state)
  return shaped_hosts.bits(step(state, made.batches[0]))


_num_shared = 0


def _shared(value: Any) -> Any:
  """The first process's value, in both."""
  global _num_shared
  _num_shared += 1
  key = f"benchmarks.live/{_num_shared}"
  store = _store()
  if store.process_id == 0:
    store.put(key, json.dumps(value).encode())
    return value
  found = store.get(key, timeout_s=_TIMEOUT_S)
  if found is None:
    raise errors.ProcessesError(
      f"The first host said nothing within {_TIMEOUT_S} s."
    )
  return json.loads(found)


def _leave_together() -> None:
  """Waits until both printed their results; the store's process ends last."""
  store = _store()
  store.put(f"benchmarks.live/over/{store.process_id}", b"")
  other = 1 - store.process_id
  store.get(f"benchmarks.live/over/{other}", timeout_s=_TIMEOUT_S)
  if store.process_id == 0:
    store.get("benchmarks.live/left", timeout_s=_TIMEOUT_S)
  else:
    store.put("benchmarks.live/left", b"")
  os.kill(os.getpid(), signal.SIGKILL)  # Skips JAX's barrier at exit.


def _store() -> store_lib.Store:
  store = store_lib.of_job()
  if store is None:
    raise errors.ProcessesError("A host of benchmarks.live is one of two.")
  return store


if __name__ == "__main__":
  main()
