# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""GPUs known by name have figures with sources, and XLA compiles for them."""

from __future__ import annotations

import importlib.util
import json
import os
import pathlib
import subprocess
import sys
import textwrap

import pytest

import cluster_figures
from lagom_xla import cluster

_SPECS = sorted(
  pathlib.Path(cluster.__file__).with_name("specs").glob("*.json")
)
_COMPILE_EACH = textwrap.dedent("""\
  import json, sys
  import jax
  import jax.numpy as jnp
  from jax.experimental import topologies
  from jax.sharding import Mesh, NamedSharding, PartitionSpec

  for name, config in json.load(sys.stdin).items():
    topology = topologies.get_topology_desc(
      platform="cuda", topology_name="", target_config=config,
      topology="1x1x8")
    mesh = Mesh(topology.devices, ("x",))
    rows = NamedSharding(mesh, PartitionSpec("x"))
    x = jax.ShapeDtypeStruct((512, 256), jnp.bfloat16, sharding=rows)
    w = jax.ShapeDtypeStruct((256, 256), jnp.bfloat16, sharding=rows)
    try:
      text = jax.jit(jnp.matmul).lower(x, w).compile().as_text()
    except jax.errors.JaxRuntimeError as e:
      print(name, str(e).splitlines()[0])
    else:
      print(name, "all-gather" if "all-gather" in text else "no collective")
  """)


def test_the_gpus_known_by_name() -> None:
  assert set(cluster.gpu_names()) == {
    *("a100_40", "a100_80", "h100", "h200", "b200", "gb200", "v100"),
    *("h100_nvl", "h100_pcie", "gh200", "h20", "b300", "gb300"),
    *("a40", "a6000", "l40s"),
  }
  assert cluster.parse("1x8xa100") == cluster.parse("1x8xa100_80")
  assert cluster.parse("1x8xH100-NVL") == cluster.parse("1x8xh100_nvl")


@pytest.mark.parametrize("path", _SPECS, ids=lambda path: path.stem)
def test_every_figure_of_a_spec_has_its_source(path: pathlib.Path) -> None:
  raw = json.loads(path.read_text(encoding="utf-8"))
  sources = raw.pop("sources")
  figures = cluster_figures.leaves(raw).keys() - {"gpu", "gpu.name"}
  assert sources.keys() == figures
  assert all(len(source) > 3 for source in sources.values())


@pytest.mark.parametrize("name", cluster.gpu_names())
def test_the_figures_of_a_gpu_agree_with_each_other(name: str) -> None:
  gpu = cluster.parse(f"1x8x{name}").gpu
  peaks = gpu.matmul_peak_tflops
  # Clocks and lanes are measured or XLA's, peaks are of data sheets.
  assert gpu.vector_f32_tflops == pytest.approx(peaks["f32"], rel=0.02)
  assert peaks.get("bf16", peaks["f16"]) == peaks["f16"]
  if "tf32" in peaks:
    assert peaks["bf16"] == pytest.approx(2 * peaks["tf32"], rel=0.03)
  if "f8" in peaks:
    # NVIDIA gives an L40S 733 where twice 362.05 would be 724.
    assert peaks["f8"] == pytest.approx(2 * peaks["bf16"], rel=0.013)
  if "s8" in peaks:
    assert "f8" not in peaks
    assert peaks["s8"] == pytest.approx(2 * peaks["bf16"], rel=0.013)


def test_an_a40_has_its_data_sheet_figures() -> None:
  gpu = cluster.parse("2x8xa40").gpu
  assert gpu.compute_capability == (8, 6)
  assert gpu.num_sms == 84
  assert gpu.hbm_bytes == 48_000_000_000
  assert gpu.hbm_gbps == 696.0
  assert gpu.matmul_peak_tflops["bf16"] == 149.7


def test_only_gpus_older_than_cuda_13_have_a_compile_obstacle() -> None:
  gpus = {
    name: cluster.parse(f"1x8x{name}").gpu for name in cluster.gpu_names()
  }
  obstacles = {name: gpu.compile_obstacle for name, gpu in gpus.items()}
  assert "capability 7.0" in (obstacles.pop("v100") or "")
  assert set(obstacles.values()) == {None}


def _cuda_plugin_installed() -> bool:
  return (
    importlib.util.find_spec("jax_plugins") is not None
    and importlib.util.find_spec("jax_plugins.xla_cuda13") is not None
  )


@pytest.mark.skipif(
  not _cuda_plugin_installed(),
  reason="needs XLA's CUDA plugin: pip install '.[aot]'",
)
def test_xla_compiles_for_every_gpu_without_an_obstacle() -> None:
  # In a process of its own: the plugin reads the environment as it registers.
  clusters = [cluster.parse(f"1x8x{name}") for name in cluster.gpu_names()]
  gpus = [known.gpu for known in clusters]
  child = subprocess.run(
    [sys.executable, "-c", _COMPILE_EACH],
    input=json.dumps({it.gpu.name: it.target_config() for it in clusters}),
    env={
      **os.environ,
      "JAX_PLATFORMS": "cpu",
      "JAX_SKIP_CUDA_CONSTRAINTS_CHECK": "1",
    },
    capture_output=True,
    text=True,
    check=False,
  )
  assert child.returncode == 0, child.stderr
  results = dict(line.split(" ", 1) for line in child.stdout.splitlines())
  for gpu in gpus:
    if gpu.compile_obstacle is None:
      assert results[gpu.name] == "all-gather"
    else:
      assert "ptxas too old" in results[gpu.name]


@pytest.mark.parametrize("name", cluster.gpu_names())
def test_copies_to_the_host_reach_no_more_than_the_link_to_it(
  name: str,
) -> None:
  link = cluster.parse(f"1x8x{name}").node.link_to_host
  assert 0.6 * link.gbps < link.effective_gbps < link.gbps


def test_a_host_link_that_is_not_given_is_pcie_as_nccl_counts_on_it() -> None:
  raw = cluster.parse("1x8xh100").to_dict()
  raw["node"]["host_link"] = None
  node = cluster.from_dict(raw, where="a test").node
  assert node.link_to_host.gbps == node.pcie_gbps
  assert node.link_to_host.effective_gbps == node.pcie_effective_gbps
