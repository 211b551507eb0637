# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""JAX's CUDA backend runs on software GPUs, as far as this project needs it."""

from __future__ import annotations

from collections.abc import Callable
import pathlib

import jax
import jax.numpy as jnp
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec
import numpy as np

# The name says that these are software GPUs.
_NAME = "NVIDIA H100 80GB HBM3 (software GPU)"
_PRODUCT_US = 300.0
_KERNELS = f"{_PRODUCT_US} gemm\n{_PRODUCT_US} nvjet\n"


def _mesh() -> jax.sharding.Mesh:
  explicit = (jax.sharding.AxisType.Auto,)
  return jax.make_mesh((jax.device_count(),), ("data",), axis_types=explicit)


def arrays_are_unchanged_by_copies_between_devices() -> None:
  devices = jax.devices()
  assert [d.device_kind for d in devices] == [_NAME] * 2
  x = np.arange(2**20, dtype=np.float32)
  on_one = jax.device_put(x, devices[0])
  on_other = jax.device_put(on_one, devices[1])
  np.testing.assert_array_equal(np.asarray(on_other), x)
  assert devices[1].memory_stats()["bytes_in_use"] >= x.nbytes


def a_donated_buffer_is_deleted_and_reused() -> None:
  step = jax.jit(lambda w, x: w - x, donate_argnums=0)
  w, x = jnp.ones((256, 256)), jnp.ones((256, 256))
  at = w.unsafe_buffer_pointer()
  after = step(w, x)
  assert w.is_deleted()
  assert after.unsafe_buffer_pointer() == at


def a_command_buffer_accepts_new_arguments() -> None:
  loop = jax.jit(
    lambda x, ws: jax.lax.scan(lambda x, w: (jnp.tanh(x @ w), x.sum()), x, ws)
  )
  weights = jnp.zeros((4, 256, 256))
  kept = []  # Gives each call new buffers.
  for _ in range(6):
    kept.append(x := jax.device_put(np.ones((256, 256), np.float32)))
    kept.append(loop(x, weights))
  jax.block_until_ready(kept)


def a_trace_has_matmuls_and_collectives_with_their_times() -> None:
  mesh = _mesh()
  w = jax.device_put(
    np.zeros((2048, 2048), np.float32),
    NamedSharding(mesh, PartitionSpec("data", None)),
  )
  step = jax.jit(
    lambda w: jnp.tanh(w @ w.T).sum(0),
    out_shardings=NamedSharding(mesh, PartitionSpec(None)),
  )
  step(w).block_until_ready()
  with jax.profiler.trace("trace"):
    step(w).block_until_ready()
  (path,) = pathlib.Path("trace").glob("**/*.xplane.pb")
  data = jax.profiler.ProfileData.from_file(str(path))
  events = [
    {**dict(event.stats), "kernel": event.name, "us": event.duration_ns / 1e3}
    for plane in data.planes
    if plane.name.startswith("/device:GPU")
    for line in plane.lines
    for event in line.events
  ]
  products = [e for e in events if "gemm" in str(e.get("hlo_op"))]
  gathers = [e for e in events if "all-gather" in str(e.get("hlo_op"))]
  assert len(products) == len(gathers) == jax.device_count(), events
  assert all(e["us"] >= 0.99 * _PRODUCT_US for e in products), products
  assert all(e["kernel"].startswith("ncclDevKernel_AllGather") for e in gathers)


def test_arrays_are_unchanged_by_copies_between_devices(
  on_gpus: Callable[..., str],
) -> None:
  on_gpus(arrays_are_unchanged_by_copies_between_devices)


def test_a_donated_buffer_is_deleted_and_reused(
  on_gpus: Callable[..., str],
) -> None:
  on_gpus(a_donated_buffer_is_deleted_and_reused)


def test_a_command_buffer_accepts_new_arguments(
  on_gpus: Callable[..., str],
) -> None:
  on_gpus(a_command_buffer_accepts_new_arguments)


def test_a_trace_has_matmuls_and_collectives_with_their_times(
  on_gpus: Callable[..., str],
) -> None:
  on_gpus(
    a_trace_has_matmuls_and_collectives_with_their_times, kernels=_KERNELS
  )
