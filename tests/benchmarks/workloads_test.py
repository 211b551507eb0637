# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""The paper's workloads are the published models, and every layout trains them.

The models are tested at sizes that run on CPU devices, and at full size only as
shapes.
"""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import jax
import numpy as np
import pytest

from benchmarks.paper import cases
from benchmarks.workloads import decoder
from benchmarks.workloads import layout as layout_lib
from benchmarks.workloads import train_step
from lagom_xla.passes import registry

LAYOUTS = {
  "fsdp": layout_lib.Layout(kind="fsdp", data=4),
  "tp": layout_lib.Layout(kind="tp", model=4),
  "ep": layout_lib.Layout(kind="ep", data=4),
  "tp, sp and dp": layout_lib.Layout(
    kind="tp", data=2, model=2, splits_tokens=True, shards_state=True
  ),
  "cp and dp": layout_lib.Layout(kind="cp", data=2, model=2),
}
# Every part that the models and the layouts differ in is in one of them.
RUNS = (
  ("phi-2", "fsdp"),
  ("phi-2", "tp, sp and dp"),
  ("llama-3-8b", "tp"),
  ("mpt-7b", "cp and dp"),
  ("deepseek-moe-16b", "ep"),
)
NUM_SEQUENCES = 8
VOCAB_SIZE = 128


def small(model: str) -> decoder.Architecture:
  """A model with all its parts, in a size for CPUs."""
  arch = decoder.ARCHITECTURES[model]
  experts = arch.experts
  if experts is not None:
    experts = dataclasses.replace(experts, num_routed=8, num_chosen=2, d_ffn=16)
  return dataclasses.replace(
    arch,
    num_layers=2,
    d_model=64,
    num_heads=16,
    num_kv_heads=16 if arch.num_kv_heads == arch.num_heads else 8,
    head_dim=8,
    d_ffn=64,
    vocab_size=VOCAB_SIZE,
    rotary_dim=min(arch.rotary_dim, 4),
    experts=experts,
  )


def workload(
  model: str, layout: layout_lib.Layout, **fields: Any
) -> train_step.Workload:
  usual: dict[str, Any] = {
    "arch": small(model),
    "layout": layout,
    "microbatch_size": NUM_SEQUENCES // layout.data,
    "seq_len": 16,
    "num_streams": 2 if layout.model == 4 else 1,
    "dtype": "float32",
    "is_fused": False,
  }
  return train_step.Workload(**usual | fields)


def per_gpu(weight: Any, sizes: tuple[int, ...], num_gpus: int) -> Any:
  """Columns in sections of these sizes, in the order of GPUs."""
  starts = np.cumsum((0, *sizes))
  columns = [
    np.arange(
      start + gpu * size // num_gpus, start + (gpu + 1) * size // num_gpus
    )
    for gpu in range(num_gpus)
    for start, size in zip(starts, sizes, strict=False)
  ]
  return np.asarray(weight)[..., np.concatenate(columns)]


def laid_out(params: Any, work: train_step.Workload) -> Any:
  """Parameters of one GPU, with fused columns in the layout's order."""
  arch, num_gpus = work.arch, work.layout.num_product_parts
  heads = tuple(
    n * arch.head_dim
    for n in (arch.num_heads, arch.num_kv_heads, arch.num_kv_heads)
  )
  hidden = (arch.d_ffn,) * (2 if arch.is_gated else 1)

  def place(path: Any, leaf: Any) -> Any:
    name = path[-1].key
    if name.startswith("qkv"):
      return per_gpu(leaf, heads, num_gpus)
    return per_gpu(leaf, hidden, num_gpus) if name.startswith("up") else leaf

  return jax.tree_util.tree_map_with_path(place, params)


def filled(spec: Any) -> Any:
  """Initial parameters and Adam's state."""
  rng = np.random.default_rng(0)

  def fill(path: Any, leaf: Any) -> np.ndarray:
    if path[-1].key == "scale" or path[-1].key.endswith("_scale"):
      return np.ones(leaf.shape, leaf.dtype)
    if path[-1].key.endswith("bias"):
      return np.zeros(leaf.shape, leaf.dtype)
    return rng.normal(scale=0.02, size=leaf.shape).astype(leaf.dtype)

  params, adam = spec
  return (
    jax.tree_util.tree_map_with_path(fill, params),
    jax.tree.map(lambda leaf: np.zeros(leaf.shape, leaf.dtype), adam),
  )


@functools.cache
def losses(work: train_step.Workload) -> tuple[float, ...]:
  """Losses of two steps on one batch, from equal parameters on every layout."""
  num_gpus = work.layout.data * work.layout.model
  step, (spec, tokens) = train_step.train_step(jax.devices()[:num_gpus], work)
  params, adam = filled(spec)
  if work.layout.num_product_parts > 1:
    params = laid_out(params, work)
  state = jax.tree.map(
    lambda leaf, place: jax.device_put(leaf, place.sharding),
    (params, adam),
    spec,
  )
  rng = np.random.default_rng(1)
  batch = rng.integers(VOCAB_SIZE, size=tokens.shape, dtype=np.int32)
  batch = jax.device_put(batch, tokens.sharding)
  compiled = step.lower(spec, tokens).compile()
  found = []
  for _ in range(2):
    state, loss = compiled(state, batch)
    found.append(float(loss))
  return tuple(found)


@pytest.mark.parametrize("model", decoder.ARCHITECTURES)
def test_a_model_has_its_published_number_of_parameters(model: str):
  arch = decoder.ARCHITECTURES[model]
  kind = "ep" if arch.experts else "fsdp"
  _, ((params, _), _) = train_step.train_step(
    jax.devices()[:4],
    train_step.Workload(arch=arch, layout=LAYOUTS[kind], microbatch_size=1),
  )
  num_params = sum(leaf.size for leaf in jax.tree.leaves(params))
  assert num_params == arch.num_params


@pytest.mark.parametrize(("model", "kind"), RUNS)
def test_every_layout_has_the_losses_of_one_gpu(model: str, kind: str):
  work = workload(model, LAYOUTS[kind])
  found = losses(work)
  assert found[0] == pytest.approx(np.log(VOCAB_SIZE), rel=0.02)  # Chance.
  assert found[0] > found[1]
  # On one GPU all layouts are one.
  alone = workload(model, layout_lib.Layout(kind="fsdp"))
  # Capacity is counted per GPU, so that other tokens are dropped.
  tolerance = 1e-3 if kind == "ep" else 1e-5
  np.testing.assert_allclose(found, losses(alone), rtol=tolerance)


@pytest.mark.parametrize(
  ("name", "kinds"),
  [
    ("llama-3-8b/tp/8/a", {"all-reduce"}),
    ("olmoe-1b-7b/ep/8/a", {"all-to-all", "all-reduce"}),
  ],
)
def test_layers_have_collectives_that_kernels_hide(name: str, kinds: set[str]):
  if registry.plugin_path() is None:
    pytest.skip("JAX's CUDA plugin is not installed: nothing compiles for GPUs")
  (case,) = [case for case in cases.table_2() if case.name == name]
  analysis = case.step().analysis
  in_layers = [c for c in analysis.collectives if c.executions >= 7]
  assert {c.kind for c in in_layers} == kinds
  hidden = {c.kind for c in in_layers if analysis.kernels_beside[c.start_id]}
  assert hidden == kinds
