# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""The training loop of all models, and its command line."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
import pathlib
from typing import Any

from absl import app
from absl import flags
import jax

from common import data
from common import job
from common import step as step_lib
from common import tuning

FLAGS = flags.FLAGS

# Micro-batches of `--strands` without `--accumulate`.
_NUM_HALVES = 2


def train(
  step: step_lib.Step,
  state: step_lib.TrainState,
  batches: Iterator[data.Batch],
  *,
  place: Any,
  num_steps: int,
) -> Iterator[dict[str, float]]:
  """Runs steps and yields the metrics of each.

  Args:
    step: The step to run.
    state: The initial state, which is donated.
    batches: Batches on the host.
    place: The sharding of each array of a batch.
    num_steps: How many steps to run.
  """
  for _ in range(num_steps):
    state, metrics = step(state, data.placed(next(batches), place))
    yield {name: float(value) for name, value in metrics.items()}


def define_flags() -> None:
  """Defines the flags; a mere import does not add flags to a program."""
  flags.DEFINE_string("model", "tiny", "Size of the model, see config.py.")
  flags.DEFINE_string("mesh", "", "Sizes of mesh axes, such as fsdp:8.")
  flags.DEFINE_enum(
    "layers", "scan", ["scan", "unroll"], "One loop, or unrolled layers."
  )
  flags.DEFINE_integer("steps", 50, "Steps to train.")
  flags.DEFINE_integer(
    "batch_size", 0, "Sequences; 0 for 2 per shard and micro-batch."
  )
  flags.DEFINE_integer(
    "seq_len", 0, "Tokens per sequence; 0 for the model's own."
  )
  flags.DEFINE_integer(
    "accumulate", 1, "Micro-batches whose gradients are accumulated."
  )
  flags.DEFINE_float("learning_rate", 3e-3, "Learning rate of AdamW.")
  flags.DEFINE_integer("seed", 0, "Seed of the parameters and the batches.")
  flags.DEFINE_string("text", str(data.TEXT), "File to train on.")
  flags.DEFINE_bool(
    "strands", False, "Run one micro-batch beside another's collectives."
  )
  job.define_flags()
  tuning.define_flags()


def run(
  argv: Sequence[str],
  train_step: Callable[..., Any],
  model_of: Callable[..., Any],
  **arguments: Any,
) -> None:
  """Trains with the settings of the flags, and prints the loss.

  Args:
    argv: The command line without flags.
    train_step: Builds the step: `train_step` of an example.
    model_of: Makes the model: `model_of` of an example.
    **arguments: More arguments of `train_step`.
  """
  if len(argv) > 1:
    raise app.UsageError(f"Unexpected argument {argv[1]!r}: use flags.")
  job.join()
  # With accumulation, the strands are two of its micro-batches.
  halved = FLAGS.strands and FLAGS.accumulate == 1
  step, (state_spec, batch_spec) = train_step(
    jax.devices(),
    model=FLAGS.model,
    mesh=FLAGS.mesh,
    batch_size=FLAGS.batch_size,
    seq_len=FLAGS.seq_len,
    layers=FLAGS.layers,
    learning_rate=FLAGS.learning_rate,
    accumulate=FLAGS.accumulate,
    micro_batches=_NUM_HALVES if halved else 1,
    **arguments,
  )
  step = _tuned(step)
  batch_size, seq_len = batch_spec["inputs"].shape
  metrics = train(
    step,
    step_lib.init_state(
      model_of,
      state_spec,
      model=FLAGS.model,
      layers=FLAGS.layers,
      seed=FLAGS.seed,
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
  is_first = jax.process_index() == 0
  if is_first:
    print(f"{FLAGS.model}: {batch_size} sequences of {seq_len} bytes per step")
  for index, values in enumerate(metrics, start=1):
    is_shown = index == 1 or index % 10 == 0 or index == FLAGS.steps
    if is_shown and is_first:
      print(
        f"step {index:4d}  loss {values['loss']:.4f}"
        f"  grad_norm {values['grad_norm']:.3f}",
        flush=True,
      )
  tuning.print_report(step)


def _tuned(step: Any) -> Any:
  """The step with the wrappers of `--strands` and `--tune`."""
  # A search includes strands.
  if FLAGS.strands and not FLAGS.tune:
    import lagom_xla

    return lagom_xla.strands(step)
  return tuning.tuned_as_flags_say(step)
