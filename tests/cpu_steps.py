# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Steps on CPUs: many small gradients, and a chain of products."""

from __future__ import annotations

import functools
import pathlib
import threading
from typing import Any

import jax
import numpy as np

from benchmarks.live import cases
from benchmarks.live.cpu import compiling
from benchmarks.live.cpu import replay
from benchmarks.live.cpu import way as way_lib
from benchmarks.live.cpu.proposer import CpuProposer
import cpu_trace
from lagom_xla.live import proposals as proposals_lib
from lagom_xla.passes import collectives
from lagom_xla.passes import hlo

NUM_LAYERS, WIDTH = 6, 32
# A kernel and a bias of each layer, and the loss, in float32.
GRADIENT_BYTES = NUM_LAYERS * 4 * (WIDTH * WIDTH + WIDTH) + 4
NUM_ARRAYS = 2 * NUM_LAYERS + 1
ORDERED = way_lib.Way(is_ordered=True)


@functools.cache
def many_gradients() -> cases.Training:
  return cases.perceptrons(
    jax.devices(), num_layers=NUM_LAYERS, width=WIDTH, num_rows=16
  )


@functools.cache
def chain() -> cases.Training:
  return cases.products(jax.devices()[:2], width=512, num_products=3)


def lowered(made: cases.Training) -> jax.stages.Lowered:
  return made.step.lower(made.state, made.batches[0])


def bits(made: cases.Training, step: Any) -> list[bytes]:
  state = jax.tree.map(lambda leaf: leaf.copy(), made.state)
  outputs = step(state, made.batches[0])
  return [np.asarray(leaf).tobytes() for leaf in jax.tree.leaves(outputs)]


def sent(module: hlo.Module) -> list[int]:
  """Bytes of each array of a module's collectives, in their order."""
  return [b for one in collectives.find(module) for b in one.array_bytes]


def costs(**seconds: float) -> replay.Costs:
  nothing = dict.fromkeys(replay.Costs.__dataclass_fields__, 0.0)
  return replay.Costs(**{**nothing, **seconds})


def works(module: hlo.Module, each: replay.Costs) -> dict[str, cpu_trace.Did]:
  """What the instructions of a module's entry do, and take, by name."""
  found = {}
  for id_, amount in replay.amounts(module).items():
    if id_ in module.entry.by_id and (seconds := each.seconds(amount)):
      did = cpu_trace.Did(kind=amount.kind, seconds=seconds)
      found[module.entry.by_id[id_].name] = did
  return found


def proposed(
  step: jax.stages.Lowered,
  step_s: float = 1.0,
  folder: pathlib.Path | None = None,
  proposer: CpuProposer | None = None,
  search_s: float | None = None,
) -> list[proposals_lib.Proposal]:
  measured = proposals_lib.Measured(
    trace_dir=folder,
    step_s=step_s,
    num_traced=0 if folder is None else 1,
    search_s=search_s,
  )
  proposer = proposer or CpuProposer()
  return list(proposer.proposals(step, measured, threading.Event()))


@functools.cache
def scheduled_chain(way: way_lib.Way) -> hlo.Module:
  return compiling.schedule(lowered(chain()), way)
