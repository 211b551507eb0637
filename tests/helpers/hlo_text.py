# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""HLO modules from text, for which a test gives only the relevant lines."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
from jax.sharding import Mesh
from jax.sharding import PartitionSpec
import numpy as np

from lagom_xla.passes import hlo
from lagom_xla.passes import registry

HEADER = "is_scheduled=true, num_partitions=8"
# Attributes of a collective over all eight devices, of a gather, and of a
# product of two matrices.
ALL = "channel_id=1, replica_groups=[1,8]<=[8], use_global_device_ids=true"
GATHER = f"{ALL}, dimensions={{0}}"
DOT = "lhs_contracting_dims={1}, rhs_contracting_dims={0}"

_ADD = """
add {
  add.lhs = f32[] parameter(0)
  add.rhs = f32[] parameter(1)
  ROOT add.sum = f32[] add(add.lhs, add.rhs)
}
"""


def text(body: str, *, computations: str = "", header: str = HEADER) -> str:
  """A module with the entry `body`, and with `add` if it is applied."""
  add = _ADD if "to_apply=add" in computations + body else ""
  return (
    f"HloModule step{header and ', '}{header}\n{add}\n{computations}\n"
    f"ENTRY main {{\n{body}\n}}\n"
  )


def load(
  body: str, *, computations: str = "", header: str = HEADER
) -> hlo.Module:
  """The module of `text`, marked as scheduled by XLA's latency hiding."""
  module = hlo.load(text(body, computations=computations, header=header))
  for computation in module.proto.computations:
    for instruction in computation.instructions:
      instruction.metadata.scheduling_name = instruction.name
  return hlo.Module(module.proto, module.num_partitions)


def run(module: hlo.Module, x: np.ndarray) -> np.ndarray:
  """Runs a module on eight CPU devices, like a jitted step.

  Each device has an eighth of x and of the result.
  """
  sizes = tuple(module.entry.root.shape.dimensions)
  mesh, spec = Mesh(np.array(jax.devices()), ("x",)), PartitionSpec("x")

  @functools.partial(jax.shard_map, mesh=mesh, in_specs=spec, out_specs=spec)
  def step(shard: jax.Array) -> jax.Array:
    return jnp.full(sizes, jnp.sum(shard), shard.dtype)

  def replace(serialized: bytes) -> bytes | None:
    is_step = hlo.load(serialized).name == f"jit_{step.__name__}"
    return module.proto.SerializeToString() if is_step else None

  with registry.transformation(
    replace, stage=registry.Stage.PRE_SCHEDULER, platform="cpu"
  ):
    compiled = jax.jit(step).lower(x).compile()
  return np.asarray(compiled(x))


def all_gather(name: str, *sizes_bytes: int) -> tuple[str, str]:
  """Start and done of an all-gather with results of these bytes."""
  parts = [f"f32[{num_bytes // 32}]" for num_bytes in sizes_bytes]
  wholes = [f"f32[{num_bytes // 4}]" for num_bytes in sizes_bytes]
  operands = [f"{name}-in{i}" for i in range(len(parts))]
  inputs = [
    f'{operand} = {part} custom-call(), custom_call_target="AllocateBuffer"'
    for operand, part in zip(operands, parts, strict=True)
  ]
  start = (
    f"{name} = ({_tuple(parts)}, {_tuple(wholes)})"
    f" all-gather-start({', '.join(operands)}), {GATHER}"
  )
  done = f"{name}-done = {_tuple(wholes)} all-gather-done({name})"
  return "\n".join([*inputs, start]), done


def kernel(name: str, time_us: float, *, size: int = 256) -> str:
  """A library call on p, f32[size,size], whose time XLA's estimate sets."""
  return (
    f"{name} = f32[{size},{size}] custom-call(p),"
    ' custom_call_target="Kernel", backend_config='
    f'{{"reification_cost":[{{"name":"sol","exec_time_us":{time_us}}}]}}'
  )


@functools.cache
def exposed_gather(kernel_us: float) -> hlo.Module:
  """An exposed all-gather, and then a kernel."""
  start, done = all_gather("all-gather", 256 * 2**10)
  return load(f"""
    p = f32[256,256] parameter(0)
    {start}
    {done}
    {kernel("kernel", kernel_us)}
    ROOT result = (f32[256,256]) tuple(kernel)
  """)


def trips(num_trips: int) -> str:
  """The attribute of a loop with this number of trips."""
  return f'backend_config={{"known_trip_count":{{"n":"{num_trips}"}}}}'


def _tuple(types: list[str]) -> str:
  return types[0] if len(types) == 1 else f"({', '.join(types)})"
