# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Trains a GPT under `nnx.jit`, data-parallel.

`train_step` builds the step for the devices here, or for those of a cluster
that you do not have:

  python examples/gpt/train.py --cpu_devices=8
  lagom-xla tune examples/gpt/train.py:train_step --cluster=2x8xh100
"""

from __future__ import annotations

from collections.abc import Sequence
import pathlib
import sys
from typing import Any

from absl import app
from absl import flags
from flax import nnx
import jax
import numpy as np
import optax

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from common import data
from common import job
from common import tuning
from gpt import model as model_lib

FLAGS = flags.FLAGS

_SEQUENCES_PER_DEVICE = 8


@nnx.jit(donate_argnums=(0, 1))
def update(
  model: model_lib.Gpt, optimizer: nnx.Optimizer, batch: dict[str, jax.Array]
) -> jax.Array:
  """Trains on one batch, in place; returns its loss in nats per byte."""

  def loss_of(model: model_lib.Gpt) -> jax.Array:
    losses = optax.softmax_cross_entropy_with_integer_labels(
      model(batch["inputs"]), batch["targets"]
    )
    return losses.mean()

  loss, grads = nnx.value_and_grad(loss_of)(model)
  optimizer.update(model, grads)
  return loss


def train_step(
  devices: Sequence[jax.Device],
  *,
  model: str = "117m",
  batch_size: int | str = 0,
) -> tuple[Any, tuple[model_lib.Gpt, nnx.Optimizer, dict[str, Any]]]:
  """Builds the step, and the shapes and shardings of its arguments.

  Args:
    devices: The devices to run or compile for.
    model: Size, a key of model.SIZES.
    batch_size: Sequences over all devices; 0 for eight per device.

  Returns:
    The step (model, optimizer, batch) -> loss, which updates and donates the
    first two, and its arguments with ShapeDtypeStructs in place of arrays.
  """
  mesh = jax.sharding.Mesh(np.asarray(devices), ("data",))
  whole = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec())
  rows = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("data"))

  modules = nnx.eval_shape(lambda: _fresh(model, learning_rate=3e-3, seed=0))
  nnx.update(
    modules,
    jax.tree.map(
      lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=whole),
      nnx.state(modules),
    ),
  )
  num_sequences = int(batch_size) or _SEQUENCES_PER_DEVICE * len(devices)
  shape = num_sequences, model_lib.SIZES[model].seq_len
  tokens = jax.ShapeDtypeStruct(shape, np.int32, sharding=rows)
  return update, (*modules, {"inputs": tokens, "targets": tokens})


def init(
  like: tuple[model_lib.Gpt, nnx.Optimizer],
  *,
  model: str,
  learning_rate: float,
  seed: int,
) -> tuple[model_lib.Gpt, nnx.Optimizer]:
  """Makes a model and its optimizer, on the devices of `like`."""
  modules = _fresh(model, learning_rate=learning_rate, seed=seed)
  places = jax.tree.map(lambda leaf: leaf.sharding, nnx.state(like))
  nnx.update(modules, jax.device_put(nnx.state(modules), places))
  return modules


def _fresh(
  model: str, *, learning_rate: float, seed: int
) -> tuple[model_lib.Gpt, nnx.Optimizer]:
  gpt = model_lib.Gpt(model_lib.SIZES[model], rngs=nnx.Rngs(seed))
  return gpt, nnx.Optimizer(gpt, optax.adamw(learning_rate), wrt=nnx.Param)


def main(argv: Sequence[str]) -> None:
  if len(argv) > 1:
    raise app.UsageError(f"Unexpected argument {argv[1]!r}: use flags.")
  job.join()
  step, (model_like, optimizer_like, batch_like) = train_step(
    jax.devices(), model=FLAGS.model, batch_size=FLAGS.batch_size
  )
  step = tuning.tuned_as_flags_say(step)
  model, optimizer = init(
    (model_like, optimizer_like),
    model=FLAGS.model,
    learning_rate=FLAGS.learning_rate,
    seed=FLAGS.seed,
  )
  batches = data.batches_like(batch_like, seed=FLAGS.seed)
  for index in range(1, FLAGS.steps + 1):
    loss = step(model, optimizer, next(batches))
    is_shown = index == 1 or index % 10 == 0 or index == FLAGS.steps
    if is_shown and jax.process_index() == 0:
      print(f"step {index:4d}  loss {float(loss):.4f}", flush=True)
  tuning.print_report(step)


if __name__ == "__main__":
  flags.DEFINE_string("model", "tiny", "Size of the model, see model.py.")
  flags.DEFINE_integer("steps", 50, "Steps to train.")
  flags.DEFINE_integer("batch_size", 0, "Sequences; 0 for 8 per device.")
  flags.DEFINE_float("learning_rate", 3e-3, "Learning rate of AdamW.")
  flags.DEFINE_integer("seed", 0, "Seed of the parameters and the batches.")
  job.define_flags()
  tuning.define_flags()
  app.run(main)
