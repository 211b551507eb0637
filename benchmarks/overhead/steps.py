# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Steps whose runs are measured: on the host's cores, and on a device.

On GPUs a step takes what the device takes, and the host waits. On XLA:CPU a
custom call stands for that: it sleeps in the thread of XLA that runs a device's
part, while Python goes on and dispatches the next steps, as many as it likes.
What a host does beside the device costs such a step only what it delays: the
dispatch, the wait at the end, what is left on the cores.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
import contextlib
import ctypes
import dataclasses
import functools
import pathlib
import subprocess
import tempfile
import threading
from typing import Any
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.live import cpu
from lagom_xla.apply.nccl import build
from lagom_xla.live import proposals as proposals_lib
from lagom_xla.live import tuned

_NAME = "lagom_xla_device"
_SOURCE = pathlib.Path(__file__).with_name("device.c")
_FLAGS = ("-std=gnu11", "-O1", "-shared", "-fPIC")


def after(array: jax.Array, device_s: float) -> jax.Array:
  """An array, so many seconds later.

  Under `jax.shard_map` without the check of what varies; a BuildError where
  there is no C compiler.
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


_NUM_LAYERS = 6
_CORES_WIDTH = 256
# Beside devices the cores have next to nothing to do. There are two: eight on
# two cores, with some steps in flight, wait for each other for ever (XLA:CPU of
# JAX 0.10.2; the calls that sleep take its threads).
_DEVICE_WIDTH = 32
_DEVICE_ROWS = 8
_NUM_DEVICES = 2
_ONE_GROUP_BYTES = 1 << 30
_P = jax.sharding.PartitionSpec


@dataclasses.dataclass(frozen=True, kw_only=True)
class Step:
  """A data-parallel train step, with real all-reduces.

  `function` takes weights and a batch, and returns weights.
  """

  name: str
  function: Callable[..., Any]
  weights: list[jax.Array]
  batch: jax.Array
  is_on_cores: bool

  def jitted(self) -> Any:
    """The step as jit runs it, in a function that jit has not compiled yet."""
    return jax.jit(lambda *args: self.function(*args))

  @contextlib.contextmanager
  def surroundings(self) -> Iterator[None]:
    """Where `lagom_xla.tune` knows of it what it knows of steps on GPUs.

    That a search takes no core that the step needs; see also `_proposer`.
    """
    with mock.patch.dict(tuned.PROPOSERS):
      cpu.plug_in()
      if not self.is_on_cores:
        tuned.PROPOSERS["cpu"] = lambda *unused: _proposer()
      yield


def on_cores(num_rows: int) -> Step:
  """A step of so many rows a device, whose products take the cores."""
  name = f"{num_rows} rows"
  return _step(name, jax.devices(), _CORES_WIDTH, num_rows, device_s=0.0)


def on_device(device_ms: float) -> Step:
  """A step that takes so long of a device, and next to none of the cores."""
  name = f"{device_ms:g} ms of a device"
  devices = jax.devices()[:_NUM_DEVICES]
  return _step(
    name, devices, _DEVICE_WIDTH, _DEVICE_ROWS, device_s=device_ms / 1e3
  )


def _step(
  name: str,
  devices: Sequence[jax.Device],
  width: int,
  num_rows: int,
  *,
  device_s: float,
) -> Step:
  mesh = jax.sharding.Mesh(np.asarray(devices), ("data",))

  def loss_of(weights: list[jax.Array], x: jax.Array) -> jax.Array:
    for weight in weights:
      x = jnp.tanh(x @ weight)
    return jnp.mean(x**2)

  def step(weights: list[jax.Array], x: jax.Array) -> list[jax.Array]:
    if device_s:
      x = after(x, device_s)
    grads = jax.lax.pmean(jax.grad(loss_of)(weights, x), "data")
    return [w - 0.01 * g for w, g in zip(weights, grads, strict=True)]

  def placed(array: np.ndarray, spec: jax.sharding.PartitionSpec) -> jax.Array:
    return jax.device_put(array, jax.sharding.NamedSharding(mesh, spec))

  noise = np.random.default_rng(0)
  weights = [
    noise.normal(size=(width, width), scale=width**-0.5).astype(np.float32)
    for _ in range(_NUM_LAYERS)
  ]
  batch = np.ones((num_rows * len(devices), width), np.float32)
  mapped = jax.shard_map(
    step,
    mesh=mesh,
    in_specs=(_P(), _P("data")),
    out_specs=_P(),
    check_vma=False,
  )
  return Step(
    name=name,
    function=mapped,
    weights=[placed(it, _P()) for it in weights],
    batch=placed(batch, _P("data")),
    is_on_cores=not device_s,
  )


def _proposer() -> proposals_lib.Proposer:
  """Searches as on CPUs, and then has two ways measured in any case.

  Beside 50 ms of a device no way of its all-reduces is foreseen to gain
  anything; on GPUs proposals are compiled and measured.
  """

  def make() -> Any:
    # In a thread, as in other runs.
    from benchmarks.live.cpu import proposer
    from benchmarks.live.cpu import way as way_lib

    class Proposer(proposer.CpuProposer):
      def proposals(
        self,
        lowered: jax.stages.Lowered,
        measured: proposals_lib.Measured,
        stop: threading.Event,
      ) -> Generator[proposals_lib.Proposal, None, str | None]:
        yield from super().proposals(lowered, measured, stop)
        for group_bytes in (0, _ONE_GROUP_BYTES):
          way = way_lib.Way(group_bytes=group_bytes, is_ordered=True)
          yield proposals_lib.Proposal(
            name=way_lib.in_words(way), payload=way_lib.to_bytes(way)
          )
        return None

    return Proposer()

  return proposals_lib.deferred(make)
