# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Batches of bytes: a token is one byte of the text."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
import pathlib

import jax
import numpy as np

TEXT = pathlib.Path(__file__).with_name("text.txt")

Batch = dict[str, np.ndarray]


def byte_batches(
  text: bytes, *, batch_size: int, seq_len: int, seed: int = 0
) -> Iterator[Batch]:
  """Yields batches of random windows of the text, without end.

  The text is read as a ring, so a window may be longer than it.

  Args:
    text: At least one byte.
    batch_size: Sequences in a batch, over all devices.
    seq_len: Tokens in a sequence.
    seed: Selects the windows; the same seed gives the same batches.

  Yields:
    {"inputs", "targets"}, each int32 [batch_size, seq_len]; targets are the
    inputs one byte later.

  Raises:
    ValueError: The text is empty.
  """
  if not text:
    raise ValueError("The training text is empty: give a file with some text.")
  tokens = np.frombuffer(text, np.uint8).astype(np.int32)
  rng = np.random.default_rng(seed)
  while True:
    starts = rng.integers(len(tokens), size=(batch_size, 1))
    windows = tokens[(starts + np.arange(seq_len + 1)) % len(tokens)]
    yield {"inputs": windows[:, :-1], "targets": windows[:, 1:]}


def batches_like(
  like: Mapping[str, jax.ShapeDtypeStruct], *, seed: int
) -> Iterator[dict[str, jax.Array]]:
  """Yields batches of `TEXT` on the devices of a step, without end.

  Args:
    like: {"inputs", "targets"}, the specs of the step's batch.
    seed: Selects the windows; must be the same in all processes of a job.
  """
  batch_size, seq_len = like["inputs"].shape
  text = TEXT.read_bytes()
  for batch in byte_batches(
    text, batch_size=batch_size, seq_len=seq_len, seed=seed
  ):
    yield placed(batch, like["inputs"].sharding)


def placed(batch: Batch, place: jax.sharding.Sharding) -> dict[str, jax.Array]:
  """Puts a batch on the devices of a job.

  Args:
    batch: The whole batch, the same in all processes.
    place: The sharding of each array.
  """

  def put(array: np.ndarray) -> jax.Array:
    return jax.make_array_from_callback(
      array.shape, place, lambda index: array[index]
    )

  return {name: put(array) for name, array in batch.items()}
