# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""The key-value store of a job's processes: JAX's distributed client.

It works over TCP, before any device is used and without collectives. Process 0
hosts it; if that process dies, JAX ends the others.
"""

from __future__ import annotations

from collections.abc import Mapping
import dataclasses
from typing import Any

import jax
from jax._src import distributed

from lagom_xla import errors


@dataclasses.dataclass(frozen=True, kw_only=True)
class Store:
  """Keys and values that all processes of a job see.

  All methods raise a ProcessesError if the store cannot be reached.
  """

  process_id: int
  num_processes: int
  _client: Any = dataclasses.field(repr=False)

  def put(self, key: str, value: bytes) -> bool:
    """Sets a key unless it is set; returns whether this call set it."""
    try:
      self._client.key_value_set_bytes(key, value)
    except jax.errors.JaxRuntimeError as error:
      _expect(error, "ALREADY_EXISTS")
      return False
    return True

  def get(self, key: str, *, timeout_s: float) -> bytes | None:
    """Waits for a key and returns its value; None if the time runs out."""
    timeout_ms = max(round(timeout_s * 1000), 1)
    try:
      return self._client.blocking_key_value_get_bytes(key, timeout_ms)
    except jax.errors.JaxRuntimeError as error:
      _expect(error, "DEADLINE_EXCEEDED")
      return None

  def in_folder(self, folder: str) -> Mapping[str, bytes]:
    """The keys set so far under `folder`/, without that prefix, and values."""
    try:
      found = self._client.key_value_dir_get_bytes(folder)
    except jax.errors.JaxRuntimeError as error:
      raise _unreachable(error) from error
    return {key.removeprefix(f"{folder}/"): value for key, value in found}


def of_job() -> Store | None:
  """This job's store; None if this process is its only one."""
  state = distributed.global_state
  if state.client is None or state.num_processes < 2:
    return None
  return Store(
    process_id=state.process_id,
    num_processes=state.num_processes,
    _client=state.client,
  )


def processes_of(lowered: jax.stages.Lowered) -> frozenset[int]:
  """The processes whose devices a step was lowered for.

  Raises:
    UnsupportedError: this JAX has other internals.
  """
  devices = getattr(lowered._lowering, "_device_list", None)
  if devices is None:
    raise errors.UnsupportedError(
      f"This lagom_xla cannot read the devices of a step that JAX"
      f" {jax.__version__} lowered."
    )
  return frozenset(device.process_index for device in devices)


def _expect(error: jax.errors.JaxRuntimeError, code: str) -> None:
  """Raises unless the error has this code."""
  if not str(error).startswith(code):
    raise _unreachable(error) from error


def _unreachable(error: Exception) -> errors.ProcessesError:
  return errors.ProcessesError(
    "The processes of this job cannot reach each other through JAX's"
    f" distributed client: {errors.first_line(error)}"
  )
