# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Schedules without what XLA does for nothing, beside those with all of it.

  python -m benchmarks.left_out 1x8xh100 examples/llama/train.py:train_step ...

Without a GPU some of XLA's work changes nothing and is left out
(lagom_xla/compile/deviceless.py). For each target, by XLA's defaults and
with loops pipelined and doubled: CPU seconds of a schedule with all of it and
with that left out; whether the same instructions run in the same order, however
bitcasts are called; if not, what differs, and by how much the step is
predicted longer under NCCL's own choices.
"""

from __future__ import annotations

import argparse
import collections
from collections.abc import Iterator
import contextlib
import dataclasses
import time
from unittest import mock

from lagom_xla import cluster as cluster_lib
from lagom_xla import errors
from lagom_xla.compile import config as config_lib
from lagom_xla.compile import deviceless
from lagom_xla.compile import load
from lagom_xla.compile import target as target_lib
from lagom_xla.costs import step as step_lib
from lagom_xla.flags import options as options_lib
from lagom_xla.passes import hlo

_OPTIONS = {
  "defaults": {},
  "pipelined, doubled": {
    "xla_gpu_enable_pipelined_all_gather": True,
    "xla_gpu_enable_pipelined_reduce_scatter": True,
    "xla_gpu_enable_while_loop_double_buffering": True,
  },
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Schedule:
  """A schedule.

  Attributes:
    cpu_s: CPU seconds that it took.
    names: of what runs one by one, but for bitcasts, in order.
    opcodes: how often each is in the module; library calls by their names.
    step_us: predicted, under NCCL's own choices.
  """

  cpu_s: float
  names: tuple[str, ...]
  opcodes: collections.Counter[str]
  step_us: float


@dataclasses.dataclass(frozen=True, kw_only=True)
class Row:
  """A target under some options, both ways.

  Attributes:
    options: in words.
    whole: with all that XLA does.
    less: without what changes nothing.
  """

  options: str
  whole: Schedule
  less: Schedule

  @property
  def is_same(self) -> bool:
    """Whether the same runs in the same order and takes as long."""
    return (
      self.whole.names == self.less.names
      and self.whole.step_us == self.less.step_us
    )

  def __str__(self) -> str:
    times = f"{self.whole.cpu_s:7.2f} {self.less.cpu_s:7.2f}"
    if self.is_same:
      return f"{times}  the same  {self.options}"
    excess = self.less.step_us / self.whole.step_us - 1
    lost = self.whole.opcodes - self.less.opcodes
    new = self.less.opcodes - self.whole.opcodes
    return (
      f"{times}  another, {excess:+.3%}  {self.options}: less"
      f" {dict(lost)}, more {dict(new)}"
    )


def rows(target: target_lib.Target) -> Iterator[Row]:
  """A target under each set of options."""
  target.schedule()  # What is loaded and lowered once is in no row.
  for words, options in _OPTIONS.items():
    config = config_lib.XlaConfig(options=options_lib.fit(options).options)
    with _nothing_left_out():
      whole = _schedule(target, config)
    less = _schedule(target, config)
    yield Row(options=words, whole=whole, less=less)


def _schedule(
  target: target_lib.Target, config: config_lib.XlaConfig
) -> Schedule:
  begin_s = time.process_time()
  module = target.schedule(config)
  cpu_s = time.process_time() - begin_s
  step = step_lib.of_module(module, target.cluster)
  return Schedule(
    cpu_s=cpu_s,
    names=tuple(
      instruction.name
      for computation_id, computation in module.computations.items()
      if computation_id in module.executions
      for instruction in computation.instructions
      if instruction.opcode != "bitcast"
    ),
    opcodes=_opcodes(module),
    step_us=step.timeline(step.default).step_time_us,
  )


def _opcodes(module: hlo.Module) -> collections.Counter[str]:
  return collections.Counter(
    instruction.custom_call_target or instruction.opcode
    for computation in module.proto.computations
    for instruction in computation.instructions
  )


@contextlib.contextmanager
def _nothing_left_out() -> Iterator[None]:
  with mock.patch.object(
    deviceless, "asked", lambda lowered, options, **_: options
  ):
    yield


def main() -> None:
  """Prints a line for each target and set of options."""
  parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
  parser.add_argument("cluster")
  parser.add_argument("targets", nargs="+")
  arguments = parser.parse_args()
  cluster = cluster_lib.parse(arguments.cluster)
  print("CPU s with all of it and with less, what runs, options")
  num_rows = num_same = 0
  for text in arguments.targets:
    print(text)
    try:
      for row in rows(load.load(text, cluster)):
        print(row, flush=True)
        num_rows += 1
        num_same += row.is_same
    except errors.CompileError as error:
      print(f"  {error}")
  print(f"{num_rows} schedules, {num_same} of them the same")


if __name__ == "__main__":
  main()
