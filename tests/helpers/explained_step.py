# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Steps for tests of explanations, with schedules in any legal order.

Each is compiled for eight H100s. The relevant operations are in scopes named by
letters, and a schedule is a string of these letters.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp
from jax.sharding import Mesh
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec
import numpy as np

from lagom_xla import cluster as cluster_lib
from lagom_xla.costs import step as step_lib
from lagom_xla.passes import collectives as collectives_lib
from lagom_xla.passes import dependencies
from lagom_xla.passes import hlo

CLUSTER = "1x8xh100"

# Size of square matrices, and rows of arrays from which a gather makes one.
SIZE = 4096
THIN = SIZE // 8


def lower(
  devices: Sequence[jax.Device],
  body: Callable[..., object],
  shapes: Sequence[tuple[int, int]],
) -> jax.stages.Lowered:
  """Lowers a function that each device runs on arrays of these shapes.

  Its collectives over "x" are explicit.
  """
  mesh = Mesh(np.array(devices), ("x",))
  rows = NamedSharding(mesh, PartitionSpec("x", None))
  arguments = [
    jax.ShapeDtypeStruct((m * len(devices), n), jnp.bfloat16, sharding=rows)
    for m, n in shapes
  ]
  spec = PartitionSpec("x", None)
  step = jax.shard_map(body, mesh=mesh, in_specs=spec, out_specs=spec)
  return jax.jit(step).lower(*arguments)


def product(letter: str, left: jax.Array, right: jax.Array) -> jax.Array:
  """A product of two matrices, in a scope."""
  with jax.named_scope(letter):
    return left @ right


def gather(letter: str, array: jax.Array) -> jax.Array:
  """An array gathered from all devices, in a scope."""
  with jax.named_scope(letter):
    return jax.lax.all_gather(array, "x", tiled=True)


def ordered(module: hlo.Module, order: str) -> step_lib.Step:
  """A step with its entry in another order, given by letters.

  A letter is a kernel, "+g" the start of a gather, "-g" its done. Their
  dependences come right before them, all other instructions at the end.
  """
  graph = dependencies.of(module.entry)
  wanted = [_find(module, word).id for word in order.split()]
  wanted += [i.id for i in module.entry.instructions]
  ids = dependencies.in_order(wanted, graph.predecessors.__getitem__)
  proto = type(module.proto).FromString(module.proto.SerializeToString())
  sequence = proto.schedule.sequences[module.entry.id]
  sequence.instruction_ids[:] = ids
  other = hlo.Module(proto, module.num_partitions)
  return step_lib.of_module(other, cluster_lib.parse(CLUSTER))


def collective(step: step_lib.Step, letter: str) -> str:
  """The name of the gather in a scope."""
  return _find(step.analysis.module, f"+{letter}").name


def kernel_us(step: step_lib.Step, letter: str) -> float:
  """Time of the kernel in a scope alone."""
  instruction = _find(step.analysis.module, letter)
  return step.kernel_cost(step.analysis.kernels[instruction.id]).time_us


def gather_us(step: step_lib.Step, letter: str) -> float:
  """Time of the gather in a scope alone."""
  key = step.key_of[collective(step, letter)]
  return step.predict(key, step.default[key]).time_us


def _find(module: hlo.Module, word: str) -> hlo.Instruction:
  """The instruction for a word of an order."""
  letter = word.lstrip("+-")
  found = [
    i
    for i in module.entry.instructions
    if f"/{letter}/" in i.metadata.op_name
    and i.opcode not in collectives_lib.NOPS
  ]
  assert found, f"there is no {letter} in {module.name}"
  dones = [i for i in found if i.opcode.endswith("-done")]
  # Newer XLA writes synchronous collectives without a done.
  return dones[0] if dones and word.startswith("-") else found[0]
