# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Times of kernels on a GPU, compared as far as that goes without one.

Programs are compiled for H200s that are not here, and traces have times that
were put there.
"""

from __future__ import annotations

import collections
from collections.abc import Iterator
import pathlib
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from benchmarks.gpu import kernel_times
from benchmarks.gpu import lone_kernels
from benchmarks.gpu import rank as rank_lib
from benchmarks.gpu import two_ranks
from lagom_xla import cluster as cluster_lib
from lagom_xla.compile import compiler
from lagom_xla.compile import config as config_lib
from lagom_xla.compile import devices as devices_lib
from lagom_xla.compile import lowered as lowered_lib
from lagom_xla.costs import kernel as kernel_lib
from lagom_xla.passes import hlo
from lagom_xla.passes import overlap
from lagom_xla.profiling import profile as profile_lib
from lagom_xla.profiling import xspace
import xspace_text

_ONE = cluster_lib.parse("1x1xh200")
_TWO = cluster_lib.parse("1x2xh200")
_LONE_US, _BESIDE_US, _COLLECTIVE_US = 100.0, 130.0, 5000.0
_NUM_CHANNELS, _NUM_STEPS = 8, 3
_MATRIX = jax.ShapeDtypeStruct((1024, 1024), jnp.bfloat16)
_COMPUTE, _COMMUNICATION = "Stream #20(Compute)", "Stream #24"


@pytest.fixture(scope="module")
def h200s(h100s: Any) -> Any:
  del h100s  # Only says whether there is anything to compile with.
  return devices_lib.devices(_TWO)


def scheduled(
  lowered: jax.stages.Lowered, cluster: Any, **options: Any
) -> hlo.Module:
  step = lowered_lib.LoweredStep(lowered, cluster)
  return compiler.schedule(step, config_lib.XlaConfig(options=options))


def on_one_gpu(case: tuple[Any, Any], **options: Any) -> hlo.Module:
  """The schedule of a function on one H200."""
  function, args = case
  (device,) = devices_lib.devices(_ONE)
  place = jax.sharding.SingleDeviceSharding(device)
  placed = jax.tree.map(
    lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=place), args
  )
  return scheduled(jax.jit(function).lower(*placed), _ONE, **options)


def profile_of(
  module: hlo.Module, kernels: Iterator[xspace_text.Kernel]
) -> bytes:
  return xspace_text.serialized(
    xspace_text.Process(devices=[list(kernels)], module=module)
  )


def alone(
  module: hlo.Module, time_us: float = _LONE_US
) -> Iterator[xspace_text.Kernel]:
  """Steps of all kernels, one after the other."""
  begin_us = 0.0
  for _ in range(_NUM_STEPS):
    for kernel in overlap.analyze(module).kernels.values():
      yield xspace_text.Kernel(
        op=kernel.name, begin_us=begin_us, time_us=time_us, stream=_COMPUTE
      )
      begin_us += time_us + 1.0
    begin_us += 50.0


def beside_a_collective(
  module: hlo.Module, time_us: float
) -> Iterator[xspace_text.Kernel]:
  """Steps in which all kernels run while the one collective does."""
  (collective,) = overlap.analyze(module).collectives
  begin_us = 0.0
  for _ in range(_NUM_STEPS):
    yield xspace_text.Kernel(
      op=collective.name,
      begin_us=begin_us,
      time_us=_COLLECTIVE_US,
      stream=_COMMUNICATION,
      num_blocks=_NUM_CHANNELS,
    )
    for index, kernel in enumerate(overlap.analyze(module).kernels.values()):
      yield xspace_text.Kernel(
        op=kernel.name,
        begin_us=begin_us + 10.0 + index * (time_us + 1.0),
        time_us=time_us,
        stream=_COMPUTE,
      )
    begin_us += _COLLECTIVE_US + 100.0


def test_kernel_times_are_compared_one_by_one(h200s: Any) -> None:
  del h200s
  shapes = [(1024, 1024, 1024), (2048, 2048, 2048)]
  module = on_one_gpu(lone_kernels.products(shapes))
  serialized = profile_of(module, alone(module))
  profile = profile_lib.of_trace(xspace.of_bytes({"host": serialized}))
  figures = kernel_times.compared(profile, _ONE)
  assert sorted(row["shape"] for row in figures["kernels"]) == [
    (1, *shape) for shape in shapes
  ]
  for row in figures["kernels"]:
    assert row["measured_us"] == pytest.approx(_LONE_US)
    predicted = kernel_lib.predict(profile.kernels[row["name"]], _ONE.gpu)
    assert row["predicted_us"] == predicted.run_us
  (kind,) = figures["by_kind"]
  assert kind["measured_us"] == pytest.approx(2 * _LONE_US)
  replayed_us = figures["step_us"]["replayed with measured kernels"]
  assert replayed_us == pytest.approx(2 * _LONE_US, rel=0.05)


def test_every_product_is_a_kernel_of_its_own(h200s: Any) -> None:
  del h200s
  module = on_one_gpu(lone_kernels.products(lone_kernels.SHAPES))
  flops = [kernel.flops for kernel in overlap.analyze(module).kernels.values()]
  # What reduces a product whose k XLA splits has none.
  assert sorted(filter(None, flops)) == sorted(
    2 * m * n * k for m, n, k in lone_kernels.SHAPES
  )


def test_every_fusion_is_a_kernel_of_its_own(h200s: Any) -> None:
  del h200s
  sizes = lone_kernels.SIZES[:2]
  module = on_one_gpu(lone_kernels.fusions(sizes))
  kernels = overlap.analyze(module).kernels.values()
  patterns = collections.Counter(kernel.pattern for kernel in kernels)
  assert patterns == {
    "elementwise": 2 * len(sizes),
    "transpose": len(sizes),
    "row-reduction": len(sizes),
    "column-reduction": len(sizes),
  }


@pytest.fixture
def traces(h200s: Any, tmp_path: pathlib.Path) -> pathlib.Path:
  """Traces of a rank's three programs, with times that were put there."""
  mesh = jax.sharding.Mesh(np.array(h200s), ("ranks",))
  spec = jax.sharding.PartitionSpec("ranks")
  place = jax.sharding.NamedSharding(mesh, spec)

  def shape(*sizes: int, dtype: Any = jnp.bfloat16) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(sizes, dtype, sharding=place)

  def lowered(width: int) -> jax.stages.Lowered:
    pair = (shape(2 * width, width), shape(2 * width, width))
    return rank_lib.both_of(mesh).lower(
      (shape(2, 2**26, dtype=jnp.float32),), [pair, pair]
    )

  both = scheduled(lowered(1024), _TWO)
  tiny = scheduled(lowered(128), _TWO)
  pair = (_MATRIX, _MATRIX)
  kernels = on_one_gpu((rank_lib.run_kernels, ([pair, pair],)))
  for name, serialized in {
    "kernels": profile_of(kernels, alone(kernels)),
    "collective": profile_of(tiny, beside_a_collective(tiny, 5.0)),
    "both": profile_of(both, beside_a_collective(both, _BESIDE_US)),
  }.items():
    (tmp_path / name).mkdir()
    (tmp_path / name / "host.xplane.pb").write_bytes(serialized)
  return tmp_path


def test_contention_is_compared_by_what_was_measured_alone(
  traces: pathlib.Path,
) -> None:
  figures = two_ranks.compared(traces, _TWO, chunk_bytes=2**19)
  assert figures["num_channels"] == _NUM_CHANNELS
  assert figures["collective_us"] == pytest.approx(_COLLECTIVE_US)
  assert figures["memory_gbps"] > 0
  # Both ranks send each of 2**28 bytes once, and memory sees all of it twice.
  least_gbps = 2 * 2 * 2**28 / (_COLLECTIVE_US * 1e3)
  assert figures["memory_gbps"] >= least_gbps * 0.999
  kinds = [row["kind"] for row in figures["kernels"]]
  assert kinds.count("gemm") == 2
  assert len(kinds) > 2
  for row in figures["kernels"]:
    assert row["lone_us"] == pytest.approx(_LONE_US)
    assert row["beside_us"] == pytest.approx(_BESIDE_US)
    assert row["predicted_us"] >= row["lone_us"] * 0.999


def test_xla_takes_the_options_of_ranks(h200s: Any) -> None:
  del h200s
  kernels = (rank_lib.run_kernels, ([(_MATRIX, _MATRIX)],))
  assert on_one_gpu(kernels, **rank_lib.OPTIONS).is_scheduled
