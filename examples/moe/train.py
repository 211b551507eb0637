# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Trains a Mixture of Experts; also a target of `lagom-xla tune`.

`train_step` builds the jitted step for the devices here, or for compile-only
devices of a cluster that you do not have. Both get the same program. Try it on
CPUs:

  python examples/moe/train.py --cpu_devices=8 --mesh=fsdp:2,expert:4
"""

from __future__ import annotations

from collections.abc import Sequence
import pathlib
import sys
from typing import Any

from absl import app
from flax import linen as nn
import jax
import jax.numpy as jnp

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from common import loop
from common import sharding
from common import step as step_lib
from moe import config as config_lib
from moe import model as model_lib

_MESH_AXES = ("fsdp", "expert")


def train_step(
  devices: Sequence[jax.Device],
  *,
  model: str = "olmoe-1b-7b",
  mesh: str = "",
  batch_size: int | str = 0,
  seq_len: int | str = 0,
  layers: str = "scan",
  num_layers: int | str = 0,
  learning_rate: float | str = 3e-4,
  accumulate: int | str = 1,
  micro_batches: int | str = 1,
) -> tuple[jax.stages.Wrapped, tuple[step_lib.TrainState, step_lib.BatchSpec]]:
  """Builds the step, and the shapes and shardings of its arguments.

  Args:
    devices: The devices to run or compile for.
    model: Size, a key of config.SIZES.
    mesh: Mesh over the devices such as "fsdp:2,expert:4"; empty for all expert.
    batch_size: Sequences over all devices; 0 for two per device in each
      accumulated micro-batch.
    seq_len: Tokens per sequence; 0 for the size's own.
    layers: "scan" or "unroll".
    num_layers: Decoder layers; 0 for the size's own.
    learning_rate: Learning rate of AdamW.
    accumulate: Micro-batches whose gradients a loop accumulates.
    micro_batches: Micro-batches that each of those is split into, side by side
      (`lagom_xla.micro_batches`).

  Returns:
    The jitted step (state, batch) -> (state, metrics), which donates the state
    and returns one with the same layout, and its arguments as
    ShapeDtypeStructs.

  Raises:
    ValueError: A name is unknown, or the mesh does not fit devices or model.
  """
  config = config_lib.moe_config(
    model, layers=layers, num_layers=int(num_layers)
  )
  device_mesh = sharding.make_mesh(
    devices, mesh or f"expert:{len(devices)}", _MESH_AXES
  )
  for what, size, axis in (
    ("d_model", config.d_model, "embed"),
    ("num_experts", config.num_experts, "experts"),
  ):
    sharding.check_divisible(what, size, axis, device_mesh)
  moe = model_lib.moe(config, device_mesh)

  def loss_of(params: Any, batch: step_lib.Batch) -> jax.Array:
    logits, sown = moe.apply(
      {"params": params}, batch["inputs"], mutable=["losses"]
    )
    of_routers = sum(jnp.sum(leaf) for leaf in jax.tree.leaves(sown))
    of_tokens = step_lib.cross_entropy(logits, batch["targets"])
    return of_tokens + of_routers / config.num_layers

  return step_lib.build(
    moe,
    loss_of,
    batch_size=int(batch_size),
    seq_len=int(seq_len) or config.seq_len,
    learning_rate=float(learning_rate),
    accumulate=int(accumulate),
    micro_batches=int(micro_batches),
  )


def model_of(
  mesh: jax.sharding.Mesh, *, model: str, layers: str = "scan"
) -> nn.Module:
  """The model of `train_step`, to initialize its state.

  Args:
    mesh: The devices.
    model: The size given to `train_step`.
    layers: The layers given to `train_step`.
  """
  return model_lib.moe(config_lib.moe_config(model, layers=layers), mesh)


def main(argv: Sequence[str]) -> None:
  loop.run(argv, train_step, model_of)


if __name__ == "__main__":
  loop.define_flags()
  app.run(main)
