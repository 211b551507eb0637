# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Trains a perceptron, data-parallel.

Every device has the whole model and a part of the batch. `train_step` builds
the step for the devices here, or for those of a cluster that you do not have:

  python examples/mlp/train.py --cpu_devices=8 --tune
  lagom-xla tune examples/mlp/train.py:train_step --cluster=2x8xh100
"""

from __future__ import annotations

from collections.abc import Sequence
import pathlib
import sys
from typing import Any

from absl import app
from absl import flags
import jax
import jax.numpy as jnp
import numpy as np
import optax

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from common import data
from common import job
from common import tuning
from mlp import model as model_lib

FLAGS = flags.FLAGS

_SEQUENCES_PER_DEVICE = 64


def train_step(
  devices: Sequence[jax.Device],
  *,
  model: str = "large",
  batch_size: int | str = 0,
  learning_rate: float | str = 1e-3,
  donate: bool = True,
) -> tuple[jax.stages.Wrapped, tuple[Any, dict[str, jax.ShapeDtypeStruct]]]:
  """Builds the step, and the shapes and shardings of its arguments.

  Args:
    devices: The devices to run or compile for.
    model: Size, a key of model.SIZES.
    batch_size: Sequences over all devices; 0 for 64 per device.
    learning_rate: Learning rate of Adam.
    donate: Whether the step donates its state.

  Returns:
    The jitted step (state, batch) -> (state, loss), and its arguments as
    ShapeDtypeStructs.
  """
  mlp = model_lib.Mlp(model_lib.SIZES[model])
  optimizer = optax.adam(float(learning_rate))

  def step(state: Any, batch: data.Batch) -> tuple[Any, jax.Array]:
    def loss_of(params: Any) -> jax.Array:
      logits: Any = mlp.apply(params, batch["inputs"])
      losses = optax.softmax_cross_entropy_with_integer_labels(
        logits, batch["targets"][:, -1]
      )
      return losses.mean()

    params, moments = state
    loss, grads = jax.value_and_grad(loss_of)(params)
    updates, moments = optimizer.update(grads, moments, params)
    return (optax.apply_updates(params, updates), moments), loss

  mesh = jax.sharding.Mesh(np.asarray(devices), ("data",))
  whole = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec())
  rows = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("data"))
  shape = (
    int(batch_size) or _SEQUENCES_PER_DEVICE * len(devices),
    mlp.config.context,
  )
  tokens = jax.ShapeDtypeStruct(shape, np.int32, sharding=rows)
  state = jax.tree.map(
    lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=whole),
    jax.eval_shape(lambda: _fresh(model, seed=0)),
  )
  jitted = jax.jit(
    step, donate_argnums=(0,) if donate else (), out_shardings=whole
  )
  return jitted, (state, {"inputs": tokens, "targets": tokens})


def init(like: Any, *, model: str, seed: int = 0) -> Any:
  """Makes the state, on the devices of `like`."""
  places = jax.tree.map(lambda leaf: leaf.sharding, like)
  return jax.jit(lambda: _fresh(model, seed=seed), out_shardings=places)()


def _fresh(model: str, *, seed: int) -> Any:
  mlp = model_lib.Mlp(model_lib.SIZES[model])
  tokens = jnp.zeros((1, mlp.config.context), jnp.int32)
  params = mlp.init(jax.random.key(seed), tokens)
  return params, optax.adam(0.0).init(params)


def main(argv: Sequence[str]) -> None:
  if len(argv) > 1:
    raise app.UsageError(f"Unexpected argument {argv[1]!r}: use flags.")
  job.join()
  step, (state_like, batch_like) = train_step(
    jax.devices(),
    model=FLAGS.model,
    batch_size=FLAGS.batch_size,
    learning_rate=FLAGS.learning_rate,
    donate=FLAGS.donate,
  )
  step = tuning.tuned_as_flags_say(step)
  state = init(state_like, model=FLAGS.model, seed=FLAGS.seed)
  batches = data.batches_like(batch_like, seed=FLAGS.seed)
  for index in range(1, FLAGS.steps + 1):
    state, loss = step(state, next(batches))
    is_shown = index == 1 or index % FLAGS.every == 0 or index == FLAGS.steps
    if is_shown and jax.process_index() == 0:
      print(f"step {index:4d}  loss {float(loss):.4f}", flush=True)
  tuning.print_report(step)


if __name__ == "__main__":
  flags.DEFINE_string("model", "tiny", "Size of the model, see model.py.")
  flags.DEFINE_integer("steps", 50, "Steps to train.")
  flags.DEFINE_integer("every", 10, "Steps between printed lines.")
  flags.DEFINE_integer("batch_size", 0, "Sequences; 0 for 64 per device.")
  flags.DEFINE_float("learning_rate", 1e-3, "Learning rate of Adam.")
  flags.DEFINE_integer("seed", 0, "Seed of the parameters and the batches.")
  flags.DEFINE_bool("donate", True, "Donate the state to each step.")
  job.define_flags()
  tuning.define_flags()
  app.run(main)
