# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Device's time, in a step on XLA:CPU: it passes, and no core is at work.

On GPUs a step takes what the device takes, and the host waits. A custom call
stands for that: it sleeps in the thread of XLA that runs a device's part, while
Python goes on and dispatches the next steps, as many as it likes. What a host
does beside the device costs such a step only what it delays: the dispatch, the
wait at the end, what is left on the cores.
"""

from __future__ import annotations

import ctypes
import functools
import pathlib
import subprocess
import tempfile

import jax
import numpy as np

from lagom_xla.apply.nccl import build

_NAME = "lagom_xla_device"
_SOURCE = pathlib.Path(__file__).with_name("device.c")
_FLAGS = ("-std=gnu11", "-O1", "-shared", "-fPIC")


def after(array: jax.Array, device_s: float) -> jax.Array:
  """An array, a device's time later.

  Args:
    array: Of any shape; under `jax.shard_map` without the check of what varies.
    device_s: That time, in seconds.

  Raises:
    BuildError: There is no C compiler.
    CalledProcessError: It cannot compile the custom call.
  """
  _register()
  call = jax.ffi.ffi_call(
    _NAME,
    jax.ShapeDtypeStruct(array.shape, array.dtype),
    input_output_aliases={0: 0},
  )
  return call(array, microseconds=np.int64(1e6 * device_s))


@functools.cache
def _register() -> None:
  """Compiles the custom call, and tells XLA of it."""
  with tempfile.TemporaryDirectory() as folder:
    path = pathlib.Path(folder) / f"{_NAME}.so"
    include = f"-I{jax.ffi.include_dir()}"
    command = [*build.compiler(), *_FLAGS, include, str(_SOURCE), "-o"]
    subprocess.run([*command, str(path)], check=True)
    handler = getattr(ctypes.CDLL(str(path)), _NAME)
  jax.ffi.register_ffi_target(_NAME, jax.ffi.pycapsule(handler), platform="cpu")
