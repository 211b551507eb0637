# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""XLA compiles for the GPU of the cluster.

XLA's source has the target configs of some GPUs, written by live clients.
"""

from __future__ import annotations

from collections.abc import Iterator
import pathlib
import re
from typing import Any

import jax
from jax.experimental import topologies
import jax.numpy as jnp
from jax.sharding import Mesh
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec
import numpy as np
import pytest

from lagom_xla import cluster as cluster_lib
from lagom_xla.compile import compiler
from lagom_xla.compile import devices as devices_lib
from lagom_xla.compile import lowered as lowered_lib
from lagom_xla.passes import hlo
from lagom_xla.passes.schedule import digest

_SHIPPED = pathlib.Path(__file__).resolve().parents[3] / "shared/data/specs"
_FILES = {
  "a100_40": "a100_sxm_40",
  "a100_80": "a100_sxm_80",
  "a6000": "a6000",
  "b200": "b200",
  "gb200": "gb200",
  "h100": "h100_sxm",
  "h200": "h200",
  "v100": "v100",
}
# GPUs whose files have the fields of JAX 0.12; older files lack the NVLinks.
_NEW = ("b200", "gb200", "h100", "h200")
# Fields without effect on a schedule, as is tested below: versions, names, and
# fields that JAX 0.10.2 does not know or that our tables lack.
_NOT_WRITTEN = frozenset(
  "collective_memory_granularity compile_time_toolkit_version cub_version"
  " device_address_bits device_vendor dnn_version driver_version ecc_enabled"
  " matrix_unit_description max_blocks_per_multiprocessor mem_clock_ghz"
  " model_str name pcie_bandwidth platform_version"
  " reserved_shared_memory_per_block runtime_version"
  " scalar_unit_description".split()
)
_TOKEN = re.compile(r'"[^"]*"|[{}]|[^\s{}:]+')
_needs_shipped = pytest.mark.skipif(
  not _SHIPPED.is_dir(), reason=f"{_SHIPPED} is not here"
)


@_needs_shipped
@pytest.mark.parametrize("name", _FILES)
def test_target_configs_match_the_configs_that_xla_ships(name):
  shipped = _device(_text(name))
  ours = _device(_cluster(name).target_config())
  if name not in _NEW:
    for device in (shipped, ours):
      device.pop("device_interconnect_info", None)
  assert shipped.keys() - ours.keys() <= _NOT_WRITTEN
  assert {key: ours[key] for key in shipped.keys() & ours.keys()} == {
    key: shipped[key] for key in shipped.keys() & ours.keys()
  }


@_needs_shipped
@pytest.mark.skipif(
  jax.__version_info__ < (0, 12), reason="XLA refuses fields that came later"
)
@pytest.mark.parametrize("name", _NEW)
def test_omitted_fields_of_target_configs_change_no_schedule(name, monkeypatch):
  ours = digest.of(_schedule(_cluster(name)).proto)
  monkeypatch.setattr(
    cluster_lib.Cluster, "target_config", lambda _: _text(name)
  )
  assert digest.of(_schedule(_cluster(name)).proto) == ours


@pytest.mark.parametrize("name", ["h100", "b200"])
def test_xla_chooses_its_own_kernel_for_a_small_all_reduce(name):
  assert "KERNEL_STRATEGY_TRITON_TWO_SHOT" in str(
    _schedule(_cluster(name)).proto
  )


@pytest.mark.parametrize("name", cluster_lib.gpu_names())
def test_xla_compiles_for_every_gpu_without_an_obstacle(name):
  cluster = _cluster(name)
  topology = topologies.get_topology_desc(
    platform="cuda",
    topology_name="",
    target_config=cluster.target_config(),
    topology="1x1x8",
  )
  rows = NamedSharding(Mesh(topology.devices, ("x",)), PartitionSpec("x"))
  x = jax.ShapeDtypeStruct((512, 512), jnp.bfloat16, sharding=rows)
  lowered = jax.jit(jnp.matmul).lower(x, x)
  if cluster.gpu.compile_obstacle is None:
    assert "all-gather" in (lowered.compile().as_text() or "")
  else:
    with pytest.raises(jax.errors.JaxRuntimeError, match="ptxas too old"):
      lowered.compile()


def test_gpus_connected_only_by_pcie_have_no_nvlinks():
  config = _cluster("l40s").target_config()
  assert "device_interconnect_info { active_links: 0 }" in config


def _cluster(name: str) -> cluster_lib.Cluster:
  return cluster_lib.parse(f"1x8x{name}")


def _text(name: str) -> str:
  text = (_SHIPPED / f"{_FILES[name]}.txtpb").read_text(encoding="utf-8")
  return re.sub(r"#.*", "", text)


def _device(config: str) -> dict[str, Any]:
  device = _parsed(iter(_TOKEN.findall(config)))["gpu_device_info"]
  # A missing number is zero.
  device["cuda_compute_capability"].setdefault("minor", 0.0)
  return device


def _parsed(tokens: Iterator[str]) -> dict[str, Any]:
  """A message in the text format without repeated fields."""
  fields: dict[str, Any] = {}
  for name in tokens:
    if name == "}":
      break
    value = next(tokens)
    if value == "{":
      fields[name] = _parsed(tokens)
    else:
      is_number = re.fullmatch(r"[\d.]+", value)
      fields[name] = float(value) if is_number else value
  return fields


def _schedule(cluster: cluster_lib.Cluster) -> hlo.Module:
  """Products and an all-reduce of 2 MiB, scheduled by XLA's own estimates."""
  mesh = Mesh(np.array(devices_lib.devices(cluster)), ("x",))
  everywhere = NamedSharding(mesh, PartitionSpec())
  split = NamedSharding(mesh, PartitionSpec("x"))

  def local(
    small: jax.Array, x: jax.Array, weights: jax.Array
  ) -> tuple[jax.Array, jax.Array]:
    summed = jax.lax.psum(jnp.sin(small) * x[0, 0].astype(jnp.float32), "x")
    return summed, jnp.sin(x @ weights) @ weights

  @jax.jit
  def step(*arrays: jax.Array) -> tuple[jax.Array, jax.Array]:
    specs = (PartitionSpec(), PartitionSpec("x"), PartitionSpec())
    return jax.shard_map(local, mesh=mesh, in_specs=specs, out_specs=specs[:2])(
      *arrays
    )

  lowered = step.lower(
    jax.ShapeDtypeStruct((2**19,), jnp.float32, sharding=everywhere),
    jax.ShapeDtypeStruct((2**14, 2**11), jnp.bfloat16, sharding=split),
    jax.ShapeDtypeStruct((2**11, 2**11), jnp.bfloat16, sharding=everywhere),
  )
  return compiler.schedule(lowered_lib.LoweredStep(lowered, cluster))
