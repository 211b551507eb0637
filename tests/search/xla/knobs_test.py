# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Knobs offer values that the installed XLA accepts and that affect a step."""

from __future__ import annotations

from collections.abc import Callable, Sequence
import dataclasses

import jax
from jax.experimental import xla_metadata
import jax.numpy as jnp
from jax.sharding import PartitionSpec as P
import numpy as np
import pytest

import gather_steps
from lagom_xla import cluster as cluster_lib
from lagom_xla.compile import config as config_lib
from lagom_xla.costs import step as step_lib
from lagom_xla.flags import debug_options
from lagom_xla.flags import notes as option_notes
from lagom_xla.flags import options as xla_options
from lagom_xla.passes import collectives as collectives_lib
from lagom_xla.passes import hlo
from lagom_xla.passes import overlap
from lagom_xla.passes.schedule import digest
from lagom_xla.report import knobs as listed
from lagom_xla.search.xla import knobs
from lagom_xla.search.xla import memory_limit
from lagom_xla.search.xla import options as options_lib

_MIB = 2**20
_LIMIT = "xla_gpu_experimental_parallel_collective_overlap_limit"
_SCHEDULER = "xla_gpu_enable_latency_hiding_scheduler"
_ESTIMATES = "xla_gpu_enable_analytical_sol_latency_estimator"


def _step(module: hlo.Module, cluster: str = "1x8xh100") -> step_lib.Step:
  return step_lib.of_module(module, cluster_lib.parse(cluster))


def _worth_trying(step: step_lib.Step) -> list[knobs.Value]:
  values = list(knobs.worth_trying(step))
  assert values
  return values


def _offered(step: step_lib.Step, name: str) -> list[object]:
  """The values of an option to try, in order."""
  values = (value.options.get(name) for value in _worth_trying(step))
  return [value for value in values if value is not None]


def _installed(name: str, value: object) -> dict[str, object]:
  """An option of any version, under the installed jaxlib's name."""
  fitted = xla_options.translate(name, value)
  assert not isinstance(fitted, str), fitted
  return dict([fitted])


def _names(step: step_lib.Step) -> set[str]:
  return {n for value in _worth_trying(step) for n in value.options}


@pytest.mark.parametrize("cluster", ["1x8xh100", "1x8xa100_80"])
def test_values_are_unique_and_differ_from_the_installed_defaults(
  train_step_module: hlo.Module, cluster: str
):
  values = _worth_trying(_step(train_step_module, cluster))
  assert len({value.label for value in values}) == len(values)
  chosen = [dict(value.options) for value in values]
  for options in chosen:
    assert chosen.count(options) == 1
    known = {name: debug_options.find(name) for name in options}
    assert all(known.values())
    # These are not all XLA's defaults.
    assert {n: o.default for n, o in known.items() if o} != options
    for name, value in options.items():
      assert xla_options.translate(name, value) == (name, value)
      assert name not in option_notes.CRASHES


def test_xla_compiles_with_every_value(
  scheduled: Callable[..., hlo.Module],
  fsdp_step: Callable[..., jax.stages.Lowered],
  fsdp_scan: hlo.Module,
):
  lowered = fsdp_step()
  for value in _worth_trying(_step(fsdp_scan)):
    assert scheduled(lowered, **value.options).is_scheduled


def test_options_that_jaxlib_lacks_are_not_offered(fsdp_scan, monkeypatch):
  everything = debug_options.options()
  monkeypatch.setattr(
    debug_options,
    "options",
    lambda: {n: o for n, o in everything.items() if n != _LIMIT},
  )
  names = _names(_step(fsdp_scan))
  assert _LIMIT not in names


# Each knob.


@pytest.fixture(scope="module")
def without_hiding(
  scheduled: Callable[..., hlo.Module],
  fsdp_step: Callable[..., jax.stages.Lowered],
) -> hlo.Module:
  """A step that XLA's latency-hiding scheduler did not schedule."""
  return scheduled(
    fsdp_step(), xla_gpu_enable_analytical_sol_latency_estimator=False
  )


def test_the_latency_hiding_scheduler_is_offered_only_where_it_is_off(
  fsdp_scan, without_hiding
):
  values = _worth_trying(_step(without_hiding))
  (value,) = [v for v in values if _SCHEDULER in v.options]
  assert value.options == {_SCHEDULER: True}
  assert value.options not in [
    v.options for v in _worth_trying(_step(fsdp_scan))
  ]


def test_a_list_of_knobs_says_how_xla_decides_on_the_scheduler():
  text = " ".join(" ".join(listed.lines(listed.known())).split())
  assert f"--{_SCHEDULER} (XLA decides while it is unset: on for" in text


def _pipelining(step: step_lib.Step) -> list[knobs.XlaOptions]:
  return [
    value.options
    for value in _worth_trying(step)
    if any("pipeline" in name for name in value.options)
  ]


def test_pipelining_is_offered_for_kinds_in_loops_not_yet_pipelined(
  scheduled: Callable[..., hlo.Module],
  fsdp_step: Callable[..., jax.stages.Lowered],
  fsdp_scan: hlo.Module,
  tp_scan: hlo.Module,
):
  gather = _installed("xla_gpu_enable_pipelined_all_gather", True)
  reduce = _installed("xla_gpu_enable_pipelined_all_reduce", True)
  # XLA makes the reduce-scatters of all-reduces, too late for their option.
  assert _pipelining(_step(fsdp_scan)) == [gather, reduce]
  assert _pipelining(_step(tp_scan)) == [reduce]
  for already, left in ((gather, [reduce]), ({**gather, **reduce}, [])):
    assert _pipelining(_step(scheduled(fsdp_step(), **already))) == left


def test_turning_off_pipelining_is_offered_for_explicit_reduce_scatters(
  h100s: Sequence[jax.Device], scheduled: Callable[..., hlo.Module], fsdp_scan
):
  option = "xla_gpu_enable_pipelined_reduce_scatter"
  (name, off), *_ = _installed(option, False).items()
  mesh = jax.sharding.Mesh(np.array(h100s), ("x",))

  def gradients(w: jax.Array, x: jax.Array) -> jax.Array:
    def layer(x: jax.Array, w: jax.Array) -> tuple[jax.Array, None]:
      return jnp.tanh(x @ jax.lax.all_gather(w, "x", tiled=True)), None

    return jax.grad(lambda w: jax.lax.scan(layer, x, w)[0].sum())(w)

  layers, rows = P(None, "x", None), P("x", None)
  step = jax.shard_map(
    gradients, mesh=mesh, in_specs=(layers, rows), out_specs=layers
  )
  arguments = [
    jax.ShapeDtypeStruct(
      shape, jnp.bfloat16, sharding=jax.sharding.NamedSharding(mesh, spec)
    )
    for shape, spec in (((6, 4096, 4096), layers), ((32768, 4096), rows))
  ]
  module = scheduled(jax.jit(step).lower(*arguments))
  assert _offered(_step(module), name) == [off]
  # XLA makes the reduce-scatters of this step of all-reduces.
  assert _offered(_step(fsdp_scan), name) == []


@pytest.mark.parametrize(
  ("option", "is_last"),
  [
    ("xla_gpu_enable_while_loop_double_buffering", False),
    # Pipelining covers more loops and gains more, so it is tried earlier.
    ("xla_gpu_enable_dus_accumulator_zero_init_elimination", True),
  ],
)
def test_loop_options_are_offered_only_for_steps_with_loops(
  fsdp_scan: hlo.Module, fsdp_unrolled: hlo.Module, option: str, is_last: bool
):
  (value,) = [v for v in _worth_trying(_step(fsdp_scan)) if option in v.options]
  assert value.options == {option: True}
  assert value.is_last == is_last
  without_loops = _step(fsdp_unrolled)
  assert _offered(without_loops, option) == _pipelining(without_loops) == []


def test_thresholds_are_offered_only_for_kinds_that_can_be_combined(
  fsdp_unrolled, tp_scan
):
  gather, reduce, scatter = (
    knobs.OPTIONS[kind]
    for kind in ("all-gather", "all-reduce", "reduce-scatter")
  )
  # Nine of each are combined; one small all-reduce is not.
  step = _step(fsdp_unrolled)
  assert _offered(step, gather) == _offered(step, scatter) == [0, 8 * _MIB]
  assert _offered(step, reduce) == []
  # Collectives of layers are in a loop, others before and after it.
  step = _step(tp_scan)
  assert not any(_offered(step, kind) for kind in (gather, reduce, scatter))


def _collectives(module: hlo.Module) -> tuple[collectives_lib.Collective, ...]:
  return overlap.analyze(module).collectives


@pytest.mark.parametrize(
  ("gathers_mib", "expected_mib"),
  [
    ([[40]], []),  # There is nothing to combine.
    # Small ones are tried if something is combined and fits under them.
    ([[2] * 4], [0, 8]),
    ([[8, 8]], [0]),
    ([[8, 8], [3, 1]], [0, 8, 128]),
    # Large ones are tried if two collectives fit, up to one for all.
    ([[40], [40], [40]], [128]),
    ([[70], [70]], [512]),
    ([[40]] * 8, [128, 512]),
    # Combined ones may be combined less.
    ([[300, 400]], [0, 128, 512]),
    ([[300] * 5, [300]], [0, 128, 512, 1024, 2048]),
  ],
)
def test_thresholds_are_tried_where_they_could_change_a_step(
  gathers_mib: list[list[int]], expected_mib: list[int]
):
  gathers = [[mib * _MIB for mib in sizes] for sizes in gathers_mib]
  found = knobs.thresholds_worth_trying(
    _collectives(gather_steps.module(*gathers)), "all-gather"
  )
  assert [threshold // _MIB for threshold in found] == expected_mib


def test_no_threshold_is_tried_for_collectives_xla_cannot_combine():
  one, other = _collectives(gather_steps.module([40 * _MIB], [40 * _MIB]))
  apart = dataclasses.replace(other, groups=((0, 1), (2, 3), (4, 5), (6, 7)))
  thresholds = [
    list(knobs.thresholds_worth_trying(two, "all-gather"))
    for two in ([one, other], [one, apart])
  ]
  assert thresholds == [[128 * _MIB], []]


def test_a_reduce_scatter_counts_the_bytes_of_its_result():
  module = gather_steps.module(plain_scatters=[8 * _MIB])
  (scatter,) = _collectives(module)
  combined = dataclasses.replace(
    scatter,
    num_operands=2,
    array_bytes=(32 * _MIB, 32 * _MIB),
    result_bytes=8 * _MIB,
  )
  found = knobs.thresholds_worth_trying([combined], "reduce-scatter")
  assert [threshold // _MIB for threshold in found] == [0, 8]


def test_thresholds_of_a_kind_depend_only_on_its_own_collectives():
  module = gather_steps.module([64 * 2**10], [64 * 2**10])
  assert not list(
    knobs.thresholds_worth_trying(_collectives(module), "reduce-scatter")
  )


def test_overlap_limits_are_tried_before_options_that_depend_on_them(
  fsdp_scan,
):
  found = [v.options for v in _worth_trying(_step(fsdp_scan))]
  early = "xla_gpu_experimental_collective_start_as_early_as_possible"
  at = found.index({_LIMIT: 2})
  assert found[at : at + 3] == [{_LIMIT: 2}, {_LIMIT: 4}, {early: True}]


def test_options_that_need_an_overlap_limit_are_tried_with_one(
  fsdp_scan, monkeypatch
):
  early = "xla_gpu_experimental_collective_start_as_early_as_possible"
  (value,) = (
    v for v in knobs.worth_trying(_step(fsdp_scan)) if early in v.options
  )
  ((_, change),) = options_lib.settings([value])
  assert change(config_lib.DEFAULT) == config_lib.DEFAULT
  limited = config_lib.XlaConfig(options={_LIMIT: 4})
  assert change(limited).options == {_LIMIT: 4, early: True}
  monkeypatch.setenv("XLA_FLAGS", f"--{_LIMIT}=2")
  assert change(config_lib.DEFAULT).options == {early: True}


def test_fixed_costs_are_offered_only_where_xla_uses_estimates(
  tp_scan, without_hiding
):
  (value,) = [
    v for v in _worth_trying(_step(tp_scan)) if _ESTIMATES in v.options
  ]
  # Without estimates XLA would leave the scheduler off.
  assert value.options == {_ESTIMATES: False, _SCHEDULER: True}
  # XLA has no estimates before Hopper, and no other scheduler reads them.
  assert _offered(_step(tp_scan, "1x8xa100_80"), _ESTIMATES) == []
  assert _offered(_step(without_hiding), _ESTIMATES) == []


def test_fixed_costs_keep_the_scheduler_on_but_change_the_schedule(
  scheduled: Callable[..., hlo.Module],
  fsdp_step: Callable[..., jax.stages.Lowered],
  fsdp_scan,
):
  options = {_ESTIMATES: False, _SCHEDULER: True}
  module = scheduled(fsdp_step(), **options)
  assert knobs.is_latency_hiding(module)
  assert digest.of(module.proto) != digest.of(fsdp_scan.proto)


_FENCING = "xla_gpu_experimental_scheduler_memory_fencing_threshold_bytes"
_needs_fencing = pytest.mark.skipif(
  debug_options.find(_FENCING) is None, reason="this jaxlib has none"
)


def _with_memory(step: step_lib.Step, hbm_bytes: int) -> step_lib.Step:
  gpu = dataclasses.replace(step.cluster.gpu, hbm_bytes=hbm_bytes)
  cluster = dataclasses.replace(step.cluster, gpu=gpu)
  return dataclasses.replace(step, cluster=cluster)


@_needs_fencing
def test_memory_fencing_is_offered_only_where_memory_is_short(
  fsdp_unrolled, without_hiding
):
  step = _step(fsdp_unrolled)
  assert _offered(step, _FENCING) == []
  needed = memory_limit.of(fsdp_unrolled, step.cluster).peak_bytes
  assert _offered(_with_memory(step, needed), _FENCING) == [0, _MIB]
  # No other scheduler has its fences.
  assert _offered(_with_memory(_step(without_hiding), 1), _FENCING) == []


@_needs_fencing
def test_memory_fencing_changes_the_schedule_of_an_aot_compile(
  h100s: Sequence[jax.Device], scheduled: Callable[..., hlo.Module]
):
  mesh = jax.sharding.Mesh(np.array(h100s), ("x",))
  whole = jax.sharding.NamedSharding(mesh, P())
  rows = jax.sharding.NamedSharding(mesh, P("x"))

  def step(ws: list[jax.Array], x: jax.Array) -> list[jax.Array]:
    def loss(ws: list[jax.Array]) -> jax.Array:
      h = x
      for w in ws:
        keys = jax.lax.with_sharding_constraint(h @ w, whole)
        h = h + jax.nn.silu(h @ w @ keys.T) @ keys @ w.T
      return (h.astype(jnp.float32) ** 2).mean()

    return jax.tree.map(lambda w, g: w - g, ws, jax.grad(loss)(ws))

  ws = [jax.ShapeDtypeStruct((1024, 256), jnp.bfloat16, sharding=rows)] * 4
  x = jax.ShapeDtypeStruct((65536, 1024), jnp.bfloat16, sharding=rows)
  lowered = jax.jit(step).lower(ws, x)
  default, fenced = (
    digest.of(scheduled(lowered, **options).proto)
    for options in ({}, {_FENCING: _MIB})
  )
  assert default != fenced


_PIPELINE = "xla_gpu_pipeline_all_gather"


@pytest.mark.skipif(
  debug_options.find(_PIPELINE) is None, reason="this jaxlib has no marks"
)
def test_explicit_pipelining_is_offered_if_only_some_gathers_are_marked(
  h100s: Sequence[jax.Device], scheduled: Callable[..., hlo.Module]
):
  explicit = "COLLECTIVE_PIPELINING_MODE_EXPLICIT"
  mesh = jax.sharding.Mesh(np.array(h100s), ("x",))
  layers, rows = P(None, "x"), P("x")

  def lowered(is_marked: tuple[bool, bool]) -> jax.stages.Lowered:
    def layer(
      x: jax.Array, ws: tuple[jax.Array, jax.Array]
    ) -> tuple[jax.Array, None]:
      for w, marked in zip(ws, is_marked, strict=True):
        marks = {"is_pipelineable": "true"} if marked else {}
        with xla_metadata.set_xla_metadata(**marks):
          w = jax.lax.all_gather(w, "x", tiled=True)
        x = jnp.tanh(x @ w)
      return x, None

    step = jax.shard_map(
      lambda ws, x: jax.lax.scan(layer, x, ws)[0],
      mesh=mesh,
      in_specs=((layers, layers), rows),
      out_specs=rows,
    )
    w, x = (
      jax.ShapeDtypeStruct(
        shape, jnp.bfloat16, sharding=jax.sharding.NamedSharding(mesh, spec)
      )
      for shape, spec in (((6, 4096, 4096), layers), ((32768, 4096), rows))
    )
    return jax.jit(step).lower((w, w), x)

  one = lowered((True, False))
  default = scheduled(one)
  assert explicit in _offered(_step(default), _PIPELINE)
  for marks in ((False, False), (True, True)):
    offered = _offered(_step(scheduled(lowered(marks))), _PIPELINE)
    assert explicit not in offered  # All or none has a value already.
  after = _step(scheduled(one, **{_PIPELINE: explicit}))
  pipelined = [c.is_pipelined for c in after.analysis.collectives]
  assert any(pipelined) and not all(pipelined)


def test_windowed_einsum_is_offered_only_on_gpus_for_gathers(
  fsdp_scan, tp_scan, monkeypatch
):
  option = "xla_gpu_threshold_for_windowed_einsum_mib"
  assert _offered(_step(fsdp_scan), option) == []
  monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
  assert _offered(_step(fsdp_scan), option) == [0]
  # This step has only all-reduces.
  assert _offered(_step(tp_scan), option) == []


def test_knobs_offer_only_options_that_they_are_listed_with(
  fsdp_scan, without_hiding
):
  said = {k.name: {o.name for o in k.options} for k in listed.known()}
  seen = set()
  for name, knob in knobs.KNOBS.items():
    for module in (fsdp_scan, without_hiding):
      for value in knobs.offered(knob.values(_step(module))):
        assert value.options.keys() <= said[name]
        seen.add(name)
  # Knobs that do not apply to these steps.
  assert knobs.KNOBS.keys() - seen == {
    *("collective matmul", "memory", "memory fencing", "merged matmuls"),
    *("two fabrics", "NCCL", "permutes", "local copies"),
  }
