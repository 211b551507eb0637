# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Recorder of what JAX asks a client to compile, in place of the client."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from jaxlib.mlir import ir


class Recorded(BaseException):
  """Ends a compile in which a client was asked; nobody else catches it."""

  def __init__(
    self, options: Any, device_ids: tuple[int, ...], has_callbacks: bool
  ):
    super().__init__()
    self.options = options
    self.device_ids = device_ids
    self.has_callbacks = has_callbacks


class Recorder:
  """Stands for a client, and tells what it is asked to compile."""

  def __init__(self, client: Any):
    self._client = client

  def __getattr__(self, name: str) -> Any:
    return getattr(self._client, name)

  def compile(
    self,
    module: ir.Module,
    executable_devices: Any,
    compile_options: Any,
    host_callbacks: Sequence[Any] = (),
  ) -> Any:
    """Raises `Recorded`."""
    del module
    device_ids = tuple(device.id for device in executable_devices)
    raise Recorded(compile_options, device_ids, bool(host_callbacks))

  # What JAX asks of clients that are not compile-only.
  compile_and_load = compile
