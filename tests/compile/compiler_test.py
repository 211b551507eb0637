# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""XLA's GPU compiler runs for every cluster, without a GPU, at two depths."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
import importlib.resources
import json
import math
import pathlib
import re
import types
from typing import Any

import jax
from jax.experimental.compilation_cache import compilation_cache
import jax.numpy as jnp
import numpy as np
import pytest

from lagom_xla import cluster as cluster_lib
from lagom_xla import errors
from lagom_xla.compile import compiler
from lagom_xla.compile import config as config_lib
from lagom_xla.compile import devices as devices_lib
from lagom_xla.compile import lowered as lowered_lib
from lagom_xla.passes import collectives
from lagom_xla.passes import hlo

_SPECS = importlib.resources.files("lagom_xla") / "cluster" / "specs"
_GPUS = sorted(
  path.name.removesuffix(".json")
  for path in _SPECS.iterdir()
  if "gpu" in json.loads(path.read_text())
  and not path.name.startswith("lagom_")
)

LowerStep = Callable[..., jax.stages.Lowered]
H100S = cluster_lib.parse("1x8xh100")


def lower_matmul(
  devices: Sequence[jax.Device], width: int = 64
) -> jax.stages.Lowered:
  """A matmul whose weight is gathered from all devices."""
  mesh = jax.sharding.Mesh(np.array(devices), ("x",))
  rows = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("x"))
  shape = jax.ShapeDtypeStruct((width, width), jnp.bfloat16, sharding=rows)
  return jax.jit(lambda w, x: x @ w, out_shardings=rows).lower(shape, shape)


def schedule(
  lowered: jax.stages.Lowered,
  cluster: cluster_lib.Cluster = H100S,
  options: dict[str, Any] | None = None,
) -> hlo.Module:
  step = lowered_lib.LoweredStep(lowered, cluster)
  return compiler.schedule(step, config_lib.XlaConfig(options=options or {}))


def compile_to_the_end(
  lowered: jax.stages.Lowered,
  cluster: cluster_lib.Cluster = H100S,
  options: dict[str, Any] | None = None,
) -> lowered_lib.Compilation:
  step = lowered_lib.LoweredStep(lowered, cluster)
  return compiler.compile(step, config_lib.XlaConfig(options=options or {}))


def summary(module: hlo.Module) -> list[tuple[Any, ...]]:
  return [
    (c.kind, c.form, c.computation, c.operand_bytes, c.groups, c.executions)
    for c in collectives.find(module)
  ]


@pytest.mark.parametrize("gpu", _GPUS)
def test_every_named_gpu_gets_a_schedule_and_code_if_cuda_13_supports_it(
  gpu, h100s
):
  cluster = cluster_lib.parse(f"1x8x{gpu}")
  lowered = lower_matmul(devices_lib.devices(cluster))
  # XLA has tables of matrix products for some GPUs, and refuses to estimate
  # anything for the others.
  module = schedule(lowered, cluster)
  assert module.is_scheduled
  assert [c.kind for c in collectives.find(module)] == ["all-gather"]
  if gpu == "h100":
    assert b"reification_cost" in module.proto.SerializeToString()
  if gpu == "v100":
    with pytest.raises(
      errors.CompileError,
      match=r"Cannot compile to the end for 1x8xv100: .* 7\.0.* 7\.5 and",
    ):
      compile_to_the_end(lowered, cluster)
    return
  compiled = compile_to_the_end(lowered, cluster)
  assert compiled.compiled is not None
  # At least a shard of each argument and of the result, and the gathered
  # weight: bfloat16 of 64 x 64, and three eighths of that.
  assert compiled.peak_bytes is not None
  assert compiled.peak_bytes >= 2 * 64 * 64 * (1 + 3 / 8)


def test_schedules_and_full_compiles_have_equal_collectives_and_donations(
  fsdp_step,
):
  lowered = fsdp_step()
  full = compile_to_the_end(lowered)
  # After a full compile as well: JAX remembers executables, not schedules.
  scheduled = schedule(lowered)
  assert len(summary(full.module)) >= 3
  assert summary(scheduled) == summary(full.module)
  aliases = scheduled.proto.input_output_alias
  assert aliases.ByteSize() > 0
  assert aliases == full.module.proto.input_output_alias
  assert full.compiled is not None
  memory = full.compiled.memory_analysis()
  assert memory is not None
  donated = [a for a in jax.tree.leaves(lowered.args_info) if a.donated]
  assert donated
  assert memory.alias_size_in_bytes == sum(
    math.prod(a.shape) * a.dtype.itemsize // 8 for a in donated
  )


@pytest.mark.parametrize(
  ("depth", "options", "message"),
  [
    (
      schedule,
      {"xla_gpu_no_such_option": 1},
      "with xla_gpu_no_such_option=1: .*No such compile option",
    ),
    (
      compile_to_the_end,
      {"xla_gpu_enable_triton_gemm": "maybe"},
      "with xla_gpu_enable_triton_gemm='maybe': .*not a valid bool",
    ),
  ],
)
def test_an_option_that_xla_refuses_is_named_first_in_the_error(
  h100s, depth, options, message
):
  with pytest.raises(
    errors.CompileError,
    match="^XLA could not compile for 1x8xh100 " + message,
  ):
    depth(lower_matmul(h100s), options=options)


def test_a_compile_error_quotes_xlas_message_up_to_a_limit(h100s):
  class Refused(lowered_lib.LoweredStep):
    def run_compiler(self, options: lowered_lib.Options) -> jax.stages.Compiled:
      raise RuntimeError("INTERNAL: no\n\nwhy not\n" + "more\n" * 50)

  with pytest.raises(errors.CompileError) as raised:
    compiler.compile(Refused(lower_matmul(h100s), H100S))
  said = str(raised.value).splitlines()
  assert said[0].endswith("1x8xh100: INTERNAL: no")
  assert said[1:3] == ["  why not", "  more"]
  assert said[-1] == "  ... and 32 more lines"


@pytest.mark.parametrize(
  ("width", "said", "held"),
  [
    (64, "%d = bf16[65536,1048576]{1,0} dot(f32[8])", "bf16[65536,1048576]"),
    (2**19, "Failed to get configs", "its part of the arguments"),
  ],
)
def test_a_step_that_is_too_large_for_xla_is_reported_as_not_fitting(
  h100s, width, said, held
):
  class Refused(lowered_lib.LoweredStep):
    def run_compiler(self, options: lowered_lib.Options) -> jax.stages.Compiled:
      raise RuntimeError(f"INTERNAL: {said}")

  # Two arguments of 2**38 bfloat16s, split over eight.
  with pytest.raises(
    errors.CompileError,
    match=r"^jit_\S+ does not fit on 1x8xh100: a GPU would hold"
    rf" {re.escape(held)}, 137.4 GB, but has only 84.9 GB\.",
  ):
    compiler.compile(Refused(lower_matmul(h100s, width), H100S))


def test_the_error_of_a_matmul_without_tiles_names_the_flag_to_set(h100s):
  # How a vision transformer of 14 x 14 patches joins the heads of attention.
  rows = jax.sharding.NamedSharding(
    jax.sharding.Mesh(h100s, ("x",)), jax.sharding.PartitionSpec()
  )
  heads = jax.ShapeDtypeStruct((2, 3, 8, 196), jnp.bfloat16, sharding=rows)
  weight = jax.ShapeDtypeStruct((3, 8, 64), jnp.bfloat16, sharding=rows)
  join = jax.jit(lambda x, w: jnp.einsum("bhkn,hkd->bnd", x, w))
  lowered = join.lower(heads, weight)
  option = "xla_gpu_enable_triton_gemm"
  assert schedule(lowered, options={option: False}).is_scheduled
  if jax.__version_info__ >= (0, 12):  # There Triton has tiles for it.
    assert schedule(lowered).is_scheduled
    return
  with pytest.raises(
    errors.CompileError, match=f"set XLA_FLAGS=--{option}=false to use"
  ):
    schedule(lowered)


_H100 = "NVIDIA H100 80GB HBM3"


@pytest.mark.parametrize(
  ("num_gpus", "kind", "are_used"),
  [(8, _H100, True), (4, _H100, False), (8, "NVIDIA A40", False)],
)
def test_live_gpus_are_used_only_if_they_match_the_cluster(
  monkeypatch, h100s, num_gpus, kind, are_used
):
  live = [types.SimpleNamespace(device_kind=kind)] * num_gpus
  monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
  monkeypatch.setattr(jax, "devices", lambda: live)
  devices = devices_lib.devices(H100S)
  assert (devices is live) == are_used
  assert len(devices) == 8


@pytest.fixture
def persistent_cache(tmp_path: pathlib.Path) -> Iterator[pathlib.Path]:
  """JAX's persistent compilation cache, which takes everything."""
  settings = {
    "jax_compilation_cache_dir": str(tmp_path),
    "jax_persistent_cache_min_compile_time_secs": 0.0,
    "jax_persistent_cache_min_entry_size_bytes": -1,
  }
  before = {name: getattr(jax.config, name) for name in settings}
  for name, value in settings.items():
    jax.config.update(name, value)
  compilation_cache.reset_cache()
  yield tmp_path
  for name, value in before.items():
    jax.config.update(name, value)
  compilation_cache.reset_cache()


def test_our_compiles_and_jaxs_persistent_cache_do_not_interfere(
  persistent_cache, h100s
):
  for _ in range(2):
    assert schedule(lower_matmul(h100s)).is_scheduled
    for _ in range(2):
      compiled = compile_to_the_end(lower_matmul(h100s))
      assert compiled.module.is_scheduled
  # JAX's own compiles are still stored.
  jax.jit(lambda x: x + 1).lower(jnp.int32(1)).compile()
  assert any("jit__lambda" in path.name for path in persistent_cache.iterdir())


@pytest.mark.parametrize(
  ("cluster", "shape"),
  [("4x8xh100", "4x1x8"), ("36x4xgb300", "2x18x4"), ("20x4xgb300", "10x2x4")],
)
def test_a_shape_counts_domains_nodes_per_domain_and_gpus_per_node(
  cluster, shape
):
  assert devices_lib.shape(cluster_lib.parse(cluster)) == shape
