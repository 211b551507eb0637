# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Collectives that XLA runs in its own kernels, in modules compiled here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
import dataclasses

import jax
from jax import lax
import jax.numpy as jnp
import numpy as np
import pytest

import all_reduces_by_nccl
import hlo_text
from lagom_xla import cluster as cluster_lib
from lagom_xla.compile import compiler
from lagom_xla.compile import config as config_lib
from lagom_xla.compile import devices as devices_lib
from lagom_xla.compile import lowered as lowered_lib
from lagom_xla.costs import collective as collective_lib
from lagom_xla.costs import step as step_lib
from lagom_xla.costs import xla_kernels
from lagom_xla.flags import debug_options
from lagom_xla.flags import xla_kernels as options_lib
from lagom_xla.passes import collectives as collectives_lib
from lagom_xla.passes import hlo
from lagom_xla.report import notes
from lagom_xla.search.xla import evaluation
from lagom_xla.search.xla import knobs
from lagom_xla.verify import effects

_KIB, _MIB = 2**10, 2**20
_H100 = cluster_lib.parse("1x8xh100")
_B200 = cluster_lib.parse("1x8xb200")


def _mesh(devices: Sequence[jax.Device]) -> jax.sharding.Mesh:
  return jax.sharding.Mesh(np.array(devices), ("x",))


def _step(
  module: hlo.Module,
  cluster: cluster_lib.Cluster,
  options: Mapping[str, object] | None = None,
) -> step_lib.Step:
  switches = evaluation.switches(options or {}, cluster)
  return step_lib.of_module(module, cluster, switches=switches)


@pytest.fixture(scope="module")
def reduced(h100s, scheduled):
  """Compiles the sum of an array of this many bytes over eight H100s."""

  def compile_(num_bytes: int, **options: object) -> hlo.Module:
    rows, whole = (
      jax.sharding.NamedSharding(_mesh(h100s), jax.sharding.PartitionSpec(*a))
      for a in (("x",), ())
    )
    shape = (len(h100s), num_bytes // 4)
    x = jax.ShapeDtypeStruct(shape, jnp.float32, sharding=rows)
    summed = jax.jit(lambda x: jnp.tanh(x.sum(0)), out_shardings=whole)
    return scheduled(summed.lower(x), **options)

  return compile_


@pytest.fixture(scope="module")
def exchanged(h100s):
  """A ragged-all-to-all of 58.7 MB on eight B200s, rows for each at once."""
  del h100s  # Only says whether there is anything to compile with.
  devices = devices_lib.devices(_B200)
  sharding = jax.sharding.NamedSharding(
    _mesh(devices), jax.sharding.PartitionSpec("x")
  )

  def exchange(rows, sizes):
    offsets = jnp.cumsum(sizes) - sizes
    out = jnp.zeros_like(rows)
    return lax.ragged_all_to_all(
      rows, out, offsets, sizes, offsets, sizes, axis_name="x"
    )

  spec = jax.sharding.PartitionSpec("x")
  mapped = jax.shard_map(
    exchange, mesh=_mesh(devices), in_specs=(spec, spec), out_specs=spec
  )
  rows = jax.ShapeDtypeStruct((8 * 4096, 7168), jnp.bfloat16, sharding=sharding)
  sizes = jax.ShapeDtypeStruct((64,), jnp.int32, sharding=sharding)
  lowered = lowered_lib.LoweredStep(jax.jit(mapped).lower(rows, sizes), _B200)
  return compiler.schedule(lowered, config_lib.DEFAULT)


@pytest.mark.parametrize(
  ("num_bytes", "form", "num_blocks", "read_bytes"),
  [
    # 16,384 elements, four to a thread and 512 threads to a block.
    (64 * _KIB, "one-shot", 8, 7 * 64 * _KIB),
    # An eighth of 524,288 elements exceeds one pass of 32 blocks.
    (2 * _MIB, "two-shot", 32, 2 * 7 / 8 * 2 * _MIB),
  ],
)
def test_small_all_reduces_run_in_one_shot_and_larger_ones_in_two(
  reduced, num_bytes, form, num_blocks, read_bytes
):
  step = step_lib.of_module(reduced(num_bytes), _H100)
  (key,) = step.keys
  (kernel,) = step.own_kernels.values()
  assert kernel == xla_kernels.Kernel(form=form, num_blocks=num_blocks)
  cost = step.predict(key, step.default[key])
  assert cost.num_channels == num_blocks
  latency_us = {"one-shot": 4.9, "two-shot": 11.9}[form]
  share = {"one-shot": 0.87, "two-shot": 0.75}[form]
  moving_us = read_bytes / (share * 18 * 20.6 * 1e3)
  assert cost.time_us == pytest.approx(latency_us + moving_us)
  # The step uses this cost and asks no tuner.
  timeline = step.timeline(step.default)
  assert timeline.collective_us == pytest.approx(cost.time_us)
  assert step.calls[key] == ()
  assert any("in its own kernel" in note for note in notes.step_notes(step))


# On H100s, 0.5, 1, 1.5, 2, 3 and 4 MiB of bf16: microseconds of vLLM's kernels.
_ON_SIX = {
  "one-shot": (13, 21, 30, 38, 53, 70),
  "two-shot": (15, 17, 20, 26, 29, 37),
}  # vllm#24111, which the latencies and rates were fitted to.
_ON_FOUR = {
  "one-shot": (10, 14, 19, 23, 30, 38),
  "two-shot": (17, 18, 25, 26, 35, 42),
}  # vllm#24532, which nothing was fitted to.


@pytest.mark.parametrize(
  ("num_ranks", "measured_us", "most"), [(6, _ON_SIX, 0.1), (4, _ON_FOUR, 0.2)]
)
@pytest.mark.parametrize("form", ["one-shot", "two-shot"])
def test_one_shot_and_two_shot_kernels_match_measured_times(
  num_ranks, measured_us, most, form
):
  kernel = xla_kernels.Kernel(form=form, num_blocks=32)
  for num_mib, us in zip(
    (0.5, 1, 1.5, 2, 3, 4), measured_us[form], strict=True
  ):
    key = collective_lib.TuningKey(
      kind="all-reduce",
      num_ranks=num_ranks,
      num_nodes=1,
      num_bytes=int(num_mib * _MIB),
    )
    predicted_us = xla_kernels.predict(key, kernel, _H100).time_us
    assert predicted_us == pytest.approx(us, rel=most)


@pytest.mark.skipif(
  debug_options.find(options_lib.KERNELS) is None,
  reason="this jaxlib has such kernels for all-reduces alone",
)
@pytest.mark.parametrize(
  ("kind", "num_bytes", "num_blocks"),
  [
    # Each thread takes four elements at a time: of its rank's part in a gather,
    # of the result in a scatter.
    ("all-gather", _MIB, 16),
    ("all-gather", 16 * _MIB, 32),
    ("reduce-scatter", 256 * _KIB, 4),
  ],
)
def test_gathers_and_scatters_run_in_one_shot_if_an_option_names_them(
  h100s, scheduled, kind, num_bytes, num_blocks
):
  rows, whole = (jax.sharding.PartitionSpec(*axes) for axes in (("x",), ()))
  is_gather = kind == "all-gather"

  def each(x):
    if is_gather:
      return lax.all_gather(x, "x", tiled=True)
    return lax.psum_scatter(x, "x", tiled=True)

  given, taken = (rows, whole) if is_gather else (whole, rows)
  mapped = jax.shard_map(
    each, mesh=_mesh(h100s), in_specs=given, out_specs=taken, check_vma=False
  )
  x = jax.ShapeDtypeStruct(
    (num_bytes // 4,),
    jnp.float32,
    sharding=jax.sharding.NamedSharding(_mesh(h100s), given),
  )
  option = f"COLLECTIVE_KERNEL_{kind.replace('-', '_').upper()}"
  module = scheduled(jax.jit(mapped).lower(x), **{options_lib.KERNELS: option})
  step = step_lib.of_module(module, _H100)
  (collective,), (key,) = step.analysis.collectives, step.keys
  assert (collective.kind, key.num_bytes) == (kind, num_bytes)
  (kernel,) = step.own_kernels.values()
  assert kernel == xla_kernels.Kernel(form="one-shot", num_blocks=num_blocks)
  read_bytes = 7 / 8 * num_bytes
  assert step.predict(key, step.default[key]).time_us == pytest.approx(
    4.9 + read_bytes / (0.87 * 18 * 20.6 * 1e3)
  )
  assert not step.calls[key]


@pytest.mark.parametrize(
  ("num_bytes", "form"), [(256 * _KIB, "one-shot"), (512 * _KIB, "two-shot")]
)
def test_a_triton_collective_fusion_gets_its_form_from_its_size(
  num_bytes, form
):
  array = f"f32[{num_bytes // 4}]"
  config = '{"fusion_backend_config":{"kind":"__triton_collective"}}'
  step = step_lib.of_module(
    hlo_text.load(
      f"x = {array} parameter(0)\nROOT r = {array} fusion(x), kind=kCustom,"
      f" calls=fused, backend_config={config}",
      computations=f"fused {{\nq = {array} parameter(0)\n"
      f"ROOT s = {array} all-reduce(q), {hlo_text.ALL}, to_apply=add\n}}",
    ),
    _H100,
  )
  (kernel,) = step.own_kernels.values()
  assert kernel.form == form


def test_a_large_all_reduce_is_run_by_nccl(reduced):
  step = step_lib.of_module(reduced(64 * _MIB), _H100)
  assert not step.own_kernels
  assert not any("of its own" in note for note in notes.step_notes(step))


def test_one_process_per_gpu_uses_xla_kernels_only_if_they_span_processes(
  reduced,
):
  apart = dataclasses.replace(_H100, processes_per_node=8)
  step = _step(reduced(64 * _KIB), apart)
  across = "xla_gpu_unsupported_use_cross_host_one_shot_kernel"
  spans = debug_options.find(across) is not None
  assert bool(step.own_kernels) == spans
  (key,) = step.keys
  assert bool(step.calls[key]) != spans


def test_a_group_that_spans_nodes_has_no_xla_kernel(reduced):
  nodes = cluster_lib.parse("2x4xh100")
  step = step_lib.of_module(
    reduced(64 * _KIB),
    dataclasses.replace(nodes, processes_per_node=4),
    switches=xla_kernels.Switches(across_processes=collectives_lib.KINDS),
  )
  assert not step.own_kernels


def test_an_option_lists_the_kinds_whose_kernels_span_processes(monkeypatch):
  across = "xla_gpu_unsupported_use_cross_host_one_shot_kernel"
  if debug_options.find(across) is None:
    assert not options_lib.span_processes("all-reduce")
    return
  assert options_lib.span_processes("all-reduce")
  monkeypatch.setenv("XLA_FLAGS", f"--{across}=raggedalltoall,allgather")
  assert options_lib.span_processes("ragged-all-to-all")
  assert not options_lib.span_processes("all-reduce")


def test_a_ragged_all_to_all_in_a_node_copies_with_a_block_per_update(
  exchanged,
):
  step = step_lib.of_module(exchanged, _B200)
  (key,) = [key for key in step.keys if key.kind == "ragged-all-to-all"]
  kernel = step.by_xla[key]
  assert kernel == xla_kernels.Kernel(form="copies", num_blocks=8)
  cost = step.predict(key, step.default[key])
  # xla#33386: 16.42 GiB/s.
  measured_us = 4096 * 7168 * 2 / (16.42 * 2**30) * 1e6
  assert cost.time_us == pytest.approx(measured_us, rel=0.01)
  # marin#8077: 32 updates per rank in place of one, 17.8 times faster.
  many = dataclasses.replace(kernel, num_blocks=8 * 32)
  fast_us = xla_kernels.predict(key, many, _B200).time_us
  assert 15 < cost.time_us / fast_us <= 32


def test_the_device_kernel_runs_only_if_both_of_its_flags_are_set(
  exchanged, monkeypatch
):
  on_device = "--xla_gpu_experimental_ragged_all_to_all_use_device_kernel=true"
  windows = "--xla_enable_nccl_symmetric_buffers_for_collectives=RaggedAllToAll"
  for flags, form in (
    (on_device, "copies"),
    (windows, "copies"),
    (f"{on_device} {windows}", "device"),
  ):
    monkeypatch.setenv("XLA_FLAGS", flags)
    step = _step(exchanged, _B200)
    (kernel,) = (k for k in step.by_xla.values() if k.form != "one-shot")
    assert kernel.form == form
  # 18 blocks to each of 8 updates on 148 SMs.
  (key,) = [key for key in step.keys if key.kind == "ragged-all-to-all"]
  assert step.predict(key, step.default[key]).time_us == pytest.approx(
    4.9 + key.num_bytes / (8 * 18) / 2.7e3
  )


def test_ragged_all_to_alls_in_a_rack_match_measured_times():
  racks = cluster_lib.parse("16x4xgb200")
  key = collective_lib.TuningKey(
    kind="ragged-all-to-all",
    num_ranks=64,
    num_nodes=1,
    num_bytes=261_120 * 6_144 * 2,
  )

  def predicted_ms(**kernel) -> float:
    return (
      xla_kernels.predict(key, xla_kernels.Kernel(**kernel), racks).time_us
      / 1e3
    )

  # One shot, 30 updates per rank (marin's research/mcwitt/8317-dk-native).
  assert predicted_ms(form="copies", num_blocks=64 * 30) == pytest.approx(
    7.56, rel=0.01
  )
  # The device kernel (openxla/xla#47928).
  for per_rank, measured_ms in ((1, 9.12), (3, 12.74)):
    assert predicted_ms(
      form="device", num_blocks=152, num_updates=64 * per_rank
    ) == pytest.approx(measured_ms, rel=0.04)


def test_a_kernel_spans_the_hosts_of_a_rack_only_if_jaxlib_supports_it(
  exchanged,
):
  rack = cluster_lib.parse("4x4xgb200")
  spans = options_lib.span_processes("ragged-all-to-all")
  assert bool(_step(exchanged, rack).own_kernels) == spans
  assert options_lib.most_exchanging() == (32 if spans else 8)


def test_nccl_is_offered_for_a_ragged_all_to_all_with_its_effect_named(
  exchanged,
):
  step = step_lib.of_module(exchanged, _B200)
  offered = [
    value.options
    for value in knobs.worth_trying(step)
    if options_lib.EXCHANGES in value.options
  ]
  assert offered == [options_lib.without_exchanges()]
  by_nccl = _step(exchanged, _B200, offered[0])
  assert not by_nccl.own_kernels
  times_us = [s.timeline(s.default).step_time_us for s in (step, by_nccl)]
  assert times_us[1] < times_us[0] / 4
  unseen = effects.Effect(
    knob="ragged",
    value="false",
    acted=True,
    evidence="not in the schedule: after scheduling, it sets",
  )
  assert effects.with_routes(unseen, step, by_nccl).evidence == (
    "1 ragged-all-to-all by an XLA kernel (8 SMs) without it"
  )
  # The schedule is the same, but the step differs.
  looks = [
    evaluation.looks(exchanged, config_lib.XlaConfig(options=options))
    for options in ({}, offered[0])
  ]
  assert looks[0] != looks[1]


def test_nccl_is_not_offered_for_all_reduces(reduced):
  step = step_lib.of_module(reduced(2 * _MIB), _H100)
  assert not [
    value
    for value in knobs.worth_trying(step)
    if value.options.items() & all_reduces_by_nccl.options().items()
  ]


def test_a_flag_in_the_environment_gives_a_ragged_all_to_all_to_nccl(
  exchanged, monkeypatch
):
  monkeypatch.setenv("XLA_FLAGS", f"--{options_lib.EXCHANGES}=false")
  assert not _step(exchanged, _B200).own_kernels


def test_a_ragged_all_to_all_between_nodes_is_run_by_nccl(exchanged):
  assert not step_lib.of_module(
    exchanged, cluster_lib.parse("2x4xb200")
  ).own_kernels


def test_a_collective_kernel_in_a_fusion_runs_on_the_fused_stream(
  h100s, scheduled
):
  rows, whole = (
    jax.sharding.NamedSharding(_mesh(h100s), jax.sharding.PartitionSpec(*axes))
    for axes in (("x",), ())
  )

  def step(x, y):
    return x.sum(0), jnp.tanh(y @ y.T)

  arguments = [
    jax.ShapeDtypeStruct(shape, jnp.float32, sharding=sharding)
    for shape, sharding in (((8, _MIB // 4), rows), ((2048, 2048), whole))
  ]
  module = scheduled(
    jax.jit(step, out_shardings=(whole, whole)).lower(*arguments)
  )
  (reduced,) = collectives_lib.find(module)
  (start,) = [
    instruction
    for instruction in module.entry.instructions
    if instruction.id == reduced.start_id
  ]
  assert reduced.form == "async" and reduced.xla_strategy
  # XLA starts fusions this way from JAX 0.12 on.
  is_fusion = start.opcode == "async-start"
  assert reduced.stream == (
    collectives_lib.FUSED if is_fusion else collectives_lib.COMMUNICATION
  )


def test_options_can_stop_xla_from_using_its_own_kernels(reduced):
  options = all_reduces_by_nccl.options()
  step = step_lib.of_module(reduced(64 * _KIB, **options), _H100)
  assert not step.own_kernels


def test_processes_per_node_must_divide_the_gpus_of_a_node():
  with pytest.raises(
    Exception, match="processes_per_node is 3; it must divide"
  ):
    dataclasses.replace(_H100, processes_per_node=3)
