# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""The training of Llama on bytes of text; also a target for `lagom-xla tune`.

`train_step` builds the jitted step for any devices: those that train here, or
compile-only devices of a cluster that is not at hand. Both get the same
program. Try it on a CPU:

  python examples/llama/train.py --cpu_devices=8 --mesh=fsdp:4,tp:2
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
import pathlib
from typing import Any, cast

from absl import app
from absl import flags
from flax import linen as nn
from flax import struct
import jax
import jax.numpy as jnp
import optax

from config import llama_config
import data
from model import Llama
import sharding

FLAGS = flags.FLAGS

_SEQUENCES_PER_FSDP_SHARD = 2


class TrainState(struct.PyTreeNode):
  """What a step takes, donates and returns; arrays of any kind as leaves."""

  step: Any
  params: Any
  opt_state: Any


BatchSpec = dict[str, jax.ShapeDtypeStruct]
Metrics = dict[str, jax.Array]
Step = Callable[..., tuple[TrainState, Metrics]]


def train_step(
  devices: Sequence[jax.Device],
  *,
  model: str = "8b",
  mesh: str = "",
  batch_size: int | str = 0,
  seq_len: int | str = 0,
  layers: str = "scan",
  num_layers: int | str = 0,
  learning_rate: float | str = 3e-4,
) -> tuple[jax.stages.Wrapped, tuple[TrainState, BatchSpec]]:
  """Builds the step, and the shapes and shardings of what it takes.

  Args:
    devices: The devices to run or compile for.
    model: Size, a key of config.SIZES.
    mesh: Mesh over the devices such as "fsdp:4,tp:2"; empty for all fsdp.
    batch_size: Sequences over all devices; 0 for two per fsdp shard.
    seq_len: Tokens per sequence; 0 for the size's own.
    layers: "scan" or "unroll".
    num_layers: Decoder layers; 0 for the size's own.
    learning_rate: Of AdamW.

  Returns:
    The jitted step (state, batch) -> (state, metrics), which donates the state
    and returns one laid out alike, and its arguments as ShapeDtypeStructs.

  Raises:
    ValueError: A name is unknown, or the mesh does not fit devices or model.
  """
  config = llama_config(model, layers=layers, num_layers=int(num_layers))
  device_mesh = sharding.make_mesh(devices, mesh)
  num_shards = device_mesh.shape["fsdp"]
  num_sequences = int(batch_size) or _SEQUENCES_PER_FSDP_SHARD * num_shards
  sharding.check_divisible(config, device_mesh, num_sequences)

  llama = Llama(config, device_mesh)
  optimizer = _optimizer(float(learning_rate))
  key = jax.eval_shape(jax.random.key, 0)
  boxed = jax.eval_shape(_initializer(llama, optimizer), key)
  state_sharding = sharding.named_shardings(boxed, device_mesh)
  state = jax.tree.map(_spec, nn.unbox(boxed), state_sharding)

  tokens = jax.ShapeDtypeStruct(
    (num_sequences, int(seq_len) or config.seq_len),
    jnp.int32,
    sharding=jax.sharding.NamedSharding(
      device_mesh, jax.sharding.PartitionSpec("fsdp")
    ),
  )
  whole = jax.sharding.NamedSharding(device_mesh, jax.sharding.PartitionSpec())
  step = jax.jit(
    _step_function(llama, optimizer),
    donate_argnums=0,
    out_shardings=(state_sharding, whole),
  )
  return step, (state, {"inputs": tokens, "targets": tokens})


def init_state(
  state: TrainState, *, model: str, layers: str = "scan", seed: int = 0
) -> TrainState:
  """Fills a state with fresh values, each made on the devices that keep it.

  Args:
    state: The ShapeDtypeStructs from `train_step`.
    model: The size given to `train_step`.
    layers: The layers given to `train_step`.
    seed: The same seed gives the same parameters on every mesh.
  """
  config = llama_config(model, layers=layers)
  llama = Llama(config, state.step.sharding.mesh)
  init = _initializer(llama, _optimizer(learning_rate=0.0))
  shardings = jax.tree.map(lambda spec: spec.sharding, state)
  unboxed = jax.jit(lambda key: nn.unbox(init(key)), out_shardings=shardings)
  return unboxed(jax.random.key(seed))


def _optimizer(learning_rate: float) -> optax.GradientTransformation:
  return optax.chain(
    optax.clip_by_global_norm(1.0),
    optax.adamw(learning_rate, b1=0.9, b2=0.95, weight_decay=0.1),
  )


def _initializer(
  llama: Llama, optimizer: optax.GradientTransformation
) -> Callable[[jax.Array], TrainState]:
  def init(key: jax.Array) -> TrainState:
    # The smallest batch that every fsdp shard has a part of.
    tokens = jnp.zeros((llama.mesh.shape["fsdp"], 1), jnp.int32)
    params = llama.init(key, tokens)["params"]
    return TrainState(
      step=jnp.zeros((), jnp.int32),
      params=params,
      opt_state=optimizer.init(params),
    )

  return init


def _spec(
  value: jax.ShapeDtypeStruct, place: jax.sharding.Sharding
) -> jax.ShapeDtypeStruct:
  return jax.ShapeDtypeStruct(value.shape, value.dtype, sharding=place)


def _step_function(
  llama: Llama, optimizer: optax.GradientTransformation
) -> Step:
  def loss_of(params: Any, batch: dict[str, jax.Array]) -> jax.Array:
    logits = llama.apply({"params": params}, batch["inputs"])
    return cross_entropy(cast(jax.Array, logits), batch["targets"])

  def train_step(
    state: TrainState, batch: dict[str, jax.Array]
  ) -> tuple[TrainState, Metrics]:
    loss, grads = jax.value_and_grad(loss_of)(state.params, batch)
    updates, opt_state = optimizer.update(grads, state.opt_state, state.params)
    new_state = TrainState(
      step=state.step + 1,
      params=optax.apply_updates(state.params, updates),
      opt_state=opt_state,
    )
    metrics = {"loss": loss, "grad_norm": optax.tree.norm(grads)}
    return new_state, metrics

  return train_step


def cross_entropy(logits: jax.Array, targets: jax.Array) -> jax.Array:
  """Returns the mean negative log-likelihood in nats.

  The target's logit is picked with a mask, which stays local when the
  vocabulary is split over devices; an index would gather the logits.

  Args:
    logits: float32 [B, S, vocab_size].
    targets: int32 [B, S].
  """
  vocab = jnp.arange(logits.shape[-1])
  is_target = targets[..., None] == vocab
  target_logits = jnp.sum(jnp.where(is_target, logits, 0.0), axis=-1)
  return jnp.mean(jax.nn.logsumexp(logits, axis=-1) - target_logits)


def train(
  step: Step,
  state: TrainState,
  batches: Iterator[data.Batch],
  *,
  place: Any,
  num_steps: int,
) -> Iterator[dict[str, float]]:
  """Runs steps and yields the metrics of each.

  Args:
    step: The step to run.
    state: Where to start; it is donated.
    batches: Batches on the host.
    place: The sharding of each array of a batch.
    num_steps: How many steps to run.
  """
  for _ in range(num_steps):
    state, metrics = step(state, jax.device_put(next(batches), place))
    yield {name: float(value) for name, value in metrics.items()}


def define_flags() -> None:
  """Defines the flags; importing this file leaves a program's own alone."""
  flags.DEFINE_string("model", "tiny", "Size of the model, see config.py.")
  flags.DEFINE_string("mesh", "", "Such as fsdp:4,tp:2; empty for all fsdp.")
  flags.DEFINE_enum("layers", "scan", ["scan", "unroll"], "How layers run.")
  flags.DEFINE_integer("steps", 50, "Steps to train.")
  flags.DEFINE_integer("batch_size", 0, "Sequences; 0 for 2 per fsdp shard.")
  flags.DEFINE_integer(
    "seq_len", 0, "Tokens a sequence; 0 for the model's own."
  )
  flags.DEFINE_float("learning_rate", 3e-3, "Peak learning rate of AdamW.")
  flags.DEFINE_integer("seed", 0, "Chooses the parameters and the batches.")
  flags.DEFINE_string("text", str(data.TEXT), "File to train on.")
  flags.DEFINE_integer("cpu_devices", 0, "Train on this many CPU devices.")
  flags.DEFINE_bool("tune", False, "Tune the step with lagom_xla.")
  flags.DEFINE_string(
    "cluster", "", "What to tune for, such as 1x8xh100; empty for these GPUs."
  )


def main(argv: Sequence[str]) -> None:
  if len(argv) > 1:
    raise app.UsageError(f"Unexpected argument {argv[1]!r}: use flags.")
  if FLAGS.cpu_devices:
    jax.config.update("jax_platforms", "cpu")
    jax.config.update("jax_num_cpu_devices", FLAGS.cpu_devices)

  step, (state_spec, batch_spec) = train_step(
    jax.devices(),
    model=FLAGS.model,
    mesh=FLAGS.mesh,
    batch_size=FLAGS.batch_size,
    seq_len=FLAGS.seq_len,
    layers=FLAGS.layers,
    learning_rate=FLAGS.learning_rate,
  )
  if FLAGS.tune:
    import lagom_xla

    step = lagom_xla.tune(step, cluster=FLAGS.cluster or None)

  batch_size, seq_len = batch_spec["inputs"].shape
  metrics = train(
    step,
    init_state(
      state_spec, model=FLAGS.model, layers=FLAGS.layers, seed=FLAGS.seed
    ),
    data.byte_batches(
      pathlib.Path(FLAGS.text).read_bytes(),
      batch_size=batch_size,
      seq_len=seq_len,
      seed=FLAGS.seed,
    ),
    place=batch_spec["inputs"].sharding,
    num_steps=FLAGS.steps,
  )
  print(f"{FLAGS.model}: {batch_size} sequences of {seq_len} bytes a step")
  for index, values in enumerate(metrics, start=1):
    if index == 1 or index % 10 == 0 or index == FLAGS.steps:
      print(
        f"step {index:4d}  loss {values['loss']:.4f}"
        f"  grad_norm {values['grad_norm']:.3f}",
        flush=True,
      )


if __name__ == "__main__":
  define_flags()
  app.run(main)
