# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Trains Llama on bytes of text; also a target of `lagom-xla tune`.

`train_step` builds the jitted step for the devices here, or for compile-only
devices of a cluster that you do not have. Both get the same program. Try it on
CPUs:

  python examples/llama/train.py --cpu_devices=8 --mesh=fsdp:4,tp:2
"""

from __future__ import annotations

from collections.abc import Sequence
import pathlib
import sys
from typing import Any, cast

from absl import app
from absl import flags
import jax

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from common import loop
from common import sharding
from common import step as step_lib
from llama import config as config_lib
from llama.model import Llama

FLAGS = flags.FLAGS


def train_step(
  devices: Sequence[jax.Device],
  *,
  model: str = "8b",
  mesh: str = "",
  batch_size: int | str = 0,
  seq_len: int | str = 0,
  layers: str = "scan",
  num_layers: int | str = 0,
  sequence_parallel: bool | str = False,
  learning_rate: float | str = 3e-4,
  accumulate: int | str = 1,
  micro_batches: int | str = 1,
) -> tuple[jax.stages.Wrapped, tuple[step_lib.TrainState, step_lib.BatchSpec]]:
  """Builds the step, and the shapes and shardings of its arguments.

  Args:
    devices: The devices to run or compile for.
    model: Size, a key of config.SIZES.
    mesh: Mesh over the devices such as "fsdp:4,tp:2"; empty for all fsdp.
    batch_size: Sequences over all devices; 0 for two per fsdp shard in each
      accumulated micro-batch.
    seq_len: Tokens per sequence; 0 for the size's own.
    layers: "scan" or "unroll".
    num_layers: Decoder layers; 0 for the size's own.
    sequence_parallel: Whether tp splits the residual stream along the sequence.
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
  config = config_lib.llama_config(
    model,
    layers=layers,
    num_layers=int(num_layers),
    sequence_parallel=_as_bool("sequence_parallel", sequence_parallel),
  )
  device_mesh = sharding.make_mesh(devices, mesh)
  num_tokens = int(seq_len) or config.seq_len
  _check_divisible(config, device_mesh, num_tokens)
  llama = Llama(config, device_mesh)

  def loss_of(params: Any, batch: step_lib.Batch) -> jax.Array:
    logits = llama.apply({"params": params}, batch["inputs"])
    return step_lib.cross_entropy(cast(jax.Array, logits), batch["targets"])

  return step_lib.build(
    llama,
    loss_of,
    batch_size=int(batch_size),
    seq_len=num_tokens,
    learning_rate=float(learning_rate),
    accumulate=int(accumulate),
    micro_batches=int(micro_batches),
  )


def model_of(
  mesh: jax.sharding.Mesh, *, model: str, layers: str = "scan"
) -> Llama:
  """The model of `train_step`, to initialize its state.

  Args:
    mesh: The devices.
    model: The size given to `train_step`.
    layers: The layers given to `train_step`.
  """
  return Llama(config_lib.llama_config(model, layers=layers), mesh)


def _as_bool(name: str, value: bool | str) -> bool:
  text = str(value).lower()
  if text not in ("true", "false"):
    raise ValueError(f"{name} is {value!r}: give true or false.")
  return text == "true"


def _check_divisible(
  config: config_lib.LlamaConfig, mesh: jax.sharding.Mesh, seq_len: int
) -> None:
  for what, size, axis in (
    ("d_model", config.d_model, "embed"),
    ("num_heads", config.num_heads, "heads"),
    ("num_kv_heads", config.num_kv_heads, "kv_heads"),
    ("d_ffn", config.d_ffn, "ffn"),
    ("vocab_size", config.vocab_size, "vocab"),
  ):
    sharding.check_divisible(what, size, axis, mesh)
  if config.sequence_parallel:
    sharding.check_divisible("seq_len", seq_len, "sequence", mesh)


def main(argv: Sequence[str]) -> None:
  loop.run(
    argv, train_step, model_of, sequence_parallel=FLAGS.sequence_parallel
  )


if __name__ == "__main__":
  loop.define_flags()
  flags.DEFINE_bool(
    "sequence_parallel", False, "Split the residual stream over tp."
  )
  app.run(main)
