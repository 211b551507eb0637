# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Collectives are found, costed and run in all of XLA's wrappers."""

from __future__ import annotations

from collections.abc import Sequence
import dataclasses
import pathlib

import hypothesis
from hypothesis import strategies as st
import jax
import pytest

import hlo_text
from lagom_xla import cluster as cluster_lib
from lagom_xla import errors
from lagom_xla.compile import load
from lagom_xla.compile import target as target_lib
from lagom_xla.costs import collective as collective_lib
from lagom_xla.costs import measured
from lagom_xla.costs import nccl
from lagom_xla.costs import step as step_lib
from lagom_xla.costs.replay import program as program_lib
from lagom_xla.explain import explaining
from lagom_xla.passes import collectives
from lagom_xla.passes import combine
from lagom_xla.passes import hlo
from lagom_xla.passes import overlap
from lagom_xla.passes.combine import combinable
from lagom_xla.profiling import costing
import simulated_run

_H100S = cluster_lib.parse("1x8xh100")

# Kinds for f32[1024], 4096 bytes: the result, and the HLO.
_KINDS = {
  "all-gather": ("f32[8192]", hlo_text.GATHER),
  "all-reduce": ("f32[1024]", f"{hlo_text.ALL}, to_apply=add"),
  "collective-permute": (
    "f32[1024]",
    "channel_id=1, source_target_pairs={{0,1},{1,0}}",
  ),
  "reduce-scatter": ("f32[128]", f"{hlo_text.GATHER}, to_apply=add"),
}
_STARTS = {
  "all-gather": "(f32[1024], f32[8192])",
  "all-reduce": "f32[1024]",
  "collective-permute": "(f32[1024], f32[1024])",
  "reduce-scatter": "((f32[1024]), f32[128])",
}


def _moved_bytes(kind: str) -> int:
  return 32768 if kind == "all-gather" else 4096


def _tuple(types: Sequence[str]) -> str:
  return f"({', '.join(types)})"


def _group(kinds: Sequence[str], is_pair: bool) -> tuple[str, str]:
  """A computation of members, each plain or a pair, and its result."""
  lines = ["members {", "q = f32[1024] parameter(0)"]
  for at, kind in enumerate(kinds):
    taken, attributes = _KINDS[kind]
    if is_pair:
      start = f"{_STARTS[kind]} {kind}-start(q), {attributes}"
      lines += [f"b{at} = {start}", f"m{at} = {taken} {kind}-done(b{at})"]
    else:
      lines.append(f"m{at} = {taken} {kind}(q), {attributes}")
  result = _tuple([_KINDS[kind][0] for kind in kinds])
  members = ", ".join(f"m{at}" for at in range(len(kinds)))
  lines.append(f"ROOT all = {result} tuple({members})\n}}")
  return "\n".join(lines), result


# Instructions of `q` that run the computation `inside`, or one that runs it.
_HOLDERS = {
  "call": "call(q), to_apply={inside}",
  "fusion": "fusion(q), kind=kCustom, calls={inside}",
  "custom-call": 'custom-call(q), custom_call_target="t",'
  " called_computations={{{inside}}}",
}


def _held(inside: str, result: str, holder: str, name: str) -> str:
  if holder == "async-start":
    runs = (
      f"s.{name} = ((f32[1024]), {result}) async-start(q), calls={inside}\n"
      f"ROOT r.{name} = {result} async-done(s.{name})"
    )
  else:
    how = _HOLDERS[holder].format(inside=inside)
    runs = f"ROOT r.{name} = {result} {how}"
  return f"{name} {{\nq = f32[1024] parameter(0)\n{runs}\n}}"


@hypothesis.given(
  kinds=st.lists(st.sampled_from(sorted(_KINDS)), min_size=1, max_size=3),
  is_pair=st.booleans(),
  holders=st.lists(
    st.sampled_from(["async-start", *sorted(_HOLDERS)]), max_size=3
  ),
  is_outer_async=st.booleans(),
  num_trips=st.sampled_from([0, 1, 5]),
)
def test_a_collective_in_any_nested_wrapper_is_found_and_run_once(
  kinds, is_pair, holders, is_outer_async, num_trips
):
  members, result = _group(kinds, is_pair)
  computations, inside = [members], "members"
  for at, holder in enumerate(holders):
    computations.append(_held(inside, result, holder, f"h{at}"))
    inside = f"h{at}"
  step = f"out = {result} call(x), to_apply={inside}"
  if is_outer_async:
    step = (
      f"out-start = ((f32[1024]), {result}) async-start(x), calls={inside}\n"
      "busy = f32[1024] negate(x)\n"
      f"out = {result} async-done(out-start)"
    )
  computations.append(f"body {{\nx = f32[1024] parameter(0)\n{step}")
  computations.append("ROOT next = f32[1024] copy(x) }")
  computations.append("go_on {\nx = f32[1024] parameter(0)")
  computations.append("ROOT yes = pred[] constant(true) }")
  module = hlo_text.load(
    "x = f32[1024] parameter(0)\nROOT loop = f32[1024] while(x),"
    f" condition=go_on, body=body, {hlo_text.trips(num_trips)}",
    computations="\n".join(computations),
  )
  analysis = overlap.analyze(module)
  found = sorted((c.kind, c.nccl_bytes) for c in analysis.collectives)
  assert found == sorted((kind, _moved_bytes(kind)) for kind in kinds)
  assert len({c.name for c in analysis.collectives}) == len(kinds)
  ran = dict.fromkeys((c.name for c in analysis.collectives), 0)
  program = program_lib.of_module(analysis)
  for collective, times in program_lib.collectives_in(program):
    ran[collective.name] += times
  assert set(ran.values()) == {num_trips}
  assert {c.executions for c in analysis.collectives} == {num_trips}
  if is_outer_async:
    assert {c.form for c in analysis.collectives} == {"async"}
    (start_id,) = {c.start_id for c in analysis.collectives}
    kernels = analysis.kernels_beside[start_id]
    assert [kernel.name for kernel in kernels] == ["busy"]


@pytest.mark.parametrize("kind", sorted(_KINDS))
def test_an_async_pair_may_have_the_types_of_a_generic_async_start(kind):
  taken, attributes = _KINDS[kind]
  (one,) = collectives.find(
    hlo_text.load(f"""
      q = f32[1024] parameter(0)
      begin = ((f32[1024]), {taken}) {kind}-start(q), {attributes}
      ROOT end = {taken} {kind}-done(begin)
    """)
  )
  assert (one.kind, one.nccl_bytes) == (kind, _moved_bytes(kind))
  assert one.operand_bytes == 4096


def _of_xla(fused: str, operands: str, parameters: str, result: str) -> str:
  config = (
    '{"fusion_backend_config":{"kind":"__custom_fusion",'
    '"custom_fusion_config":{"name":"dynamic_address_computation"}}}'
  )
  return hlo_text.text(
    f"{parameters}\nROOT out = {result} fusion({operands}), kind=kCustom,"
    f" calls=fused, backend_config={config}",
    computations=f"fused {{\n{fused}\n}}",
  )


# From XLA's dynamic_slice_fusion_test.cc.
_SCATTERED = """
  p1 = f16[128,128] parameter(1)
  p0 = f16[128,128] parameter(0)
  scattered = f16[16,128] reduce-scatter(p0), {attributes}
  p2 = u32[] parameter(2)
  p3 = u32[] parameter(3)
  ROOT put = f16[128,128] dynamic-update-slice(p1, scattered, p2, p3)
"""
_ADD16 = """
add16 {
  l16 = f16[] parameter(0)
  r16 = f16[] parameter(1)
  ROOT sum16 = f16[] add(l16, r16)
}
"""


@pytest.mark.parametrize(
  ("attributes", "num_ranks"),
  [
    (f"{hlo_text.GATHER}, to_apply=add16", 8),
    ("channel_id=1, replica_groups={{0,1,2,3},{4,5,6,7}}, dimensions={0},"
     " use_global_device_ids=true, to_apply=add16", 4),
  ],
)  # fmt: skip
def test_a_reduce_scatter_fused_with_a_slice_update_is_a_collective(
  attributes, num_ranks
):
  rows = 128 // num_ranks
  fused = _SCATTERED.format(attributes=attributes)
  text = _of_xla(
    fused.replace("f16[16,128]", f"f16[{rows},128]"),
    "a, b, c, c",
    "a = f16[128,128] parameter(0)\nb = f16[128,128] parameter(1)\n"
    "c = u32[] parameter(2)",
    "f16[128,128]",
  ).replace("fused {", f"{_ADD16}\nfused {{", 1)
  analysis = overlap.analyze(hlo.load(text))
  (one,) = analysis.collectives
  assert (one.name, one.kind, one.form) == ("out", "reduce-scatter", "sync")
  assert (one.operand_bytes, one.group_size) == (2 * 128 * 128, num_ranks)
  assert not analysis.kernels


def test_a_fusion_of_a_gather_and_a_product_is_costed_as_both():
  text = _of_xla(
    f"""
    p0 = f32[128,1024] parameter(0)
    p1 = f32[1024,1024] parameter(1)
    g = f32[1024,1024] all-gather(p0), {hlo_text.GATHER}
    ROOT y = f32[1024,1024] dot(g, p1), {hlo_text.DOT}
    """,
    "a, b",
    "a = f32[128,1024] parameter(0)\nb = f32[1024,1024] parameter(1)",
    "f32[1024,1024]",
  )
  analysis = overlap.analyze(hlo.load(text))
  (one,) = analysis.collectives
  assert (one.kind, one.result_bytes) == ("all-gather", 4 * 1024**2)
  assert analysis.gemm_flops == 2 * 1024**3
  step = step_lib.Step(analysis, _H100S)
  (kernel,) = analysis.kernels.values()
  time_us = step.timeline(step.default).step_time_us
  assert time_us >= step.kernel_cost(kernel).time_us
  assert time_us >= step.predict(step.key_of[one.name], step.default[
    step.key_of[one.name]
  ]).time_us  # fmt: skip


def test_a_group_with_a_gather_and_a_product_counts_both():
  analysis = overlap.analyze(
    hlo_text.load(
      """
        x = f32[64,64] parameter(0)
        s = ((f32[64,64]), (f32[512,64], f32[64,64])) async-start(x), calls=g
        ROOT d = (f32[512,64], f32[64,64]) async-done(s)
      """,
      computations=f"""
        g {{
          q = f32[64,64] parameter(0)
          a = f32[512,64] all-gather(q), {hlo_text.GATHER}
          y = f32[64,64] dot(q, q), {hlo_text.DOT}
          ROOT t = (f32[512,64], f32[64,64]) tuple(a, y) }}
      """,
    )
  )
  assert [c.kind for c in analysis.collectives] == ["all-gather"]
  assert analysis.gemm_flops == 2 * 64**3


def test_kernels_in_a_called_stream_overlap_its_collectives():
  analysis = overlap.analyze(
    hlo_text.load(
      """
        x = f32[1024] parameter(0)
        s = ((f32[1024]), f32[8192]) async-start(x), calls=stream
        ROOT d = f32[8192] async-done(s)
      """,
      computations=f"""
        work {{
          q = f32[1024] parameter(0)
          g = (f32[1024], f32[8192]) all-gather-start(q), {hlo_text.GATHER}
          n = f32[1024] negate(q)
          ROOT gd = f32[8192] all-gather-done(g) }}
        stream {{
          q = f32[1024] parameter(0)
          ROOT c = f32[8192] call(q), to_apply=work }}
      """,
    )
  )
  (one,) = analysis.collectives
  assert (one.name, one.computation, one.form) == ("g", "work", "async")
  (kernel,) = analysis.kernels_beside[one.start_id]
  assert kernel.name == "n"


def test_a_module_with_a_collective_in_an_unknown_form_is_refused():
  module = hlo_text.load(
    """
      x = f32[1024] parameter(0)
      s = ((f32[1024]), f32[1024]) async-start(x), calls=f
      ROOT d = f32[1024] async-done(s)
    """,
    computations=f"""
      f {{
        q = f32[1024] parameter(0)
        ROOT n = f32[1024] negate(q) }}
      strange {{
        q = f32[1024] parameter(0)
        ROOT lost = f32[8192] all-gather(q), {hlo_text.GATHER} }}
      other {{
        q = f32[1024] parameter(0)
        ROOT t = f32[8192] call(q), to_apply=strange }}
    """,
  )
  assert not collectives.find(module)  # Nothing calls `strange`.
  copy = module.copy()
  (other_id,) = (c.id for c in copy.proto.computations if c.name == "other")
  for computation in copy.proto.computations:
    for instruction in computation.instructions:
      if instruction.name == "d":
        instruction.called_computation_ids[:] = [other_id]
  with pytest.raises(
    errors.HloError, match="runs lost, an all-gather in strange"
  ):
    collectives.find(copy)


_SOURCE = """
import jax
import jax.numpy as jnp
from jax.experimental.xla_metadata import set_xla_metadata
from jax.sharding import Mesh, NamedSharding, PartitionSpec
import numpy as np


def train_step(devices, attribute=""):
  mesh = Mesh(np.array(devices), ("x",))
  rows, all_ = PartitionSpec("x"), PartitionSpec()

  def gathered(a, b):
    return [jax.lax.all_gather(x, "x", tiled=True) for x in (a, b)]

  def inner(a, b, x, w):
    if attribute == "stream":
      with set_xla_metadata(_xla_stream_annotation="1", inlineable="false"):
        a, b = jax.jit(gathered)(a, b)
    elif attribute == "group":
      with set_xla_metadata(_collectives_group="", inlineable="false"):
        a, b = jax.jit(gathered)(a, b)
    elif attribute == "key":
      with set_xla_metadata(collective_group_key="g"):
        a, b = gathered(a, b)
    else:
      a, b = gathered(a, b)
    return a.sum(0, keepdims=True), b.sum(0, keepdims=True), x @ w

  step = jax.shard_map(
    inner, mesh=mesh, in_specs=(rows, rows, rows, all_), out_specs=rows,
    check_vma=False,
  )
  def shape(spec, *sizes):
    sharding = NamedSharding(mesh, spec)
    return jax.ShapeDtypeStruct(sizes, jnp.bfloat16, sharding=sharding)
  weight = shape(rows, 2048, 8192)
  return jax.jit(step), (
    weight, weight, shape(rows, 65536, 2048), shape(all_, 2048, 2048)
  )
"""
_WEIGHT_BYTES = 2 * 2048 * 8192


def _target(folder: pathlib.Path, attribute: str) -> target_lib.Target:
  file = folder / "grouped.py"
  file.write_text(_SOURCE)
  return load.load(
    f"{file}:train_step", _H100S, arguments={"attribute": attribute}
  )


# Attributes that group collectives; XLA has keys from JAX 0.12 on.
_KEYS = ("key",) if jax.__version_info__ >= (0, 12) else ()


@pytest.mark.parametrize("attribute", ["", "group", "key", "stream"])
def test_collectives_that_a_program_groups_are_found_in_one_start(
  tmp_path, attribute
):
  analysis = overlap.analyze(_target(tmp_path, attribute).schedule())
  found = analysis.collectives
  assert {c.kind for c in found} == {"all-gather"}
  assert sum(c.nccl_bytes for c in found) == 2 * _WEIGHT_BYTES
  assert {c.group_size for c in found} == {8}
  if attribute in ("group", "stream", *_KEYS):
    assert [c.nccl_bytes for c in found] == [_WEIGHT_BYTES] * 2
    assert len({c.start_id for c in found}) == 1
    # Members of a stream are launched one by one.
    sizes = () if attribute == "stream" else (_WEIGHT_BYTES,) * 2
    assert {c.grouped_bytes for c in found} == {sizes}


def test_same_kind_members_of_a_group_are_one_nccl_call(tmp_path):
  module = _target(tmp_path, "group").schedule()
  step = step_lib.of_module(module, _H100S)
  (key,) = step.keys
  assert key.num_bytes == _WEIGHT_BYTES
  call = collective_lib.Call(num_bytes=2 * _WEIGHT_BYTES, num_arrays=2)
  assert step.calls[key] == (call,)
  timeline = step.timeline(step.default)
  whole = dataclasses.replace(key, num_bytes=2 * _WEIGHT_BYTES)
  assert timeline.collective_us == pytest.approx(
    step.predict(whole, step.default[key]).time_us
  )
  assert timeline.collective_us < (
    2 * step.predict(key, step.default[key]).time_us
  )


def test_a_members_wait_is_explained_by_the_group_it_starts_with(tmp_path):
  module = _target(tmp_path, "group").schedule()
  step = step_lib.of_module(module, _H100S)
  first, second = explaining.of_run(step, step.default).collectives
  said = [part.sentence for part in second.parts]
  assert said == [
    f"it starts together with {first.name}, which is counted first"
  ]


@pytest.mark.parametrize("attribute", ["group", *_KEYS])
def test_members_of_a_group_cannot_be_combined_with_others(tmp_path, attribute):
  target = _target(tmp_path, attribute)
  candidates = combinable.find(target.identity())
  assert len(candidates) == 2
  combinable.check(candidates, ())
  with pytest.raises(errors.CombineError, match="in a group with others"):
    combinable.check(candidates, (tuple(candidates),))
  assert not combine.labels(target.schedule())


@hypothesis.given(
  sizes=st.lists(st.sampled_from([4, 64, 1024, 65536]), min_size=2, max_size=4)
)
def test_a_group_costs_no_more_than_its_members_in_sequence(sizes):
  lines = [f"p{n} = f32[{n}] parameter({at})" for at, n in enumerate(sizes)]
  shapes = [f"f32[{8 * n}]" for n in sizes]
  lines = ["members {"] + [
    f"q{at} = f32[{n}] parameter({at})\n"
    f"m{at} = {shapes[at]} all-gather(q{at}), {hlo_text.GATHER}"
    for at, n in enumerate(sizes)
  ]
  members = ", ".join(f"m{at}" for at in range(len(sizes)))
  lines.append(f"ROOT all = {_tuple(shapes)} tuple({members})\n}}")
  given = [f"f32[{n}]" for n in sizes]
  parameters = [f"p{at} = {t} parameter({at})" for at, t in enumerate(given)]
  operands = ", ".join(f"p{at}" for at in range(len(sizes)))
  module = hlo_text.load(
    "\n".join(parameters)
    + f"\ns = ({_tuple(given)}, {_tuple(shapes)}) async-start({operands}),"
    f" calls=members\nROOT d = {_tuple(shapes)} async-done(s)",
    computations="\n".join(lines),
  )
  step = step_lib.of_module(module, _H100S)
  apart_us = sum(
    step.predict(key, step.default[key]).time_us * step.executions[key]
    for key in step.keys
  )
  longest_us = max(
    step.predict(key, step.default[key]).time_us for key in step.keys
  )
  together_us = step.timeline(step.default).collective_us
  assert together_us <= apart_us * (1 + 1e-9)
  assert together_us >= longest_us / len(sizes)
  told = {call for calls in step.calls.values() for call in calls}
  runs = nccl.aggregates("all-gather", [32 * n for n in sizes])
  assert {call.num_bytes for call in told} <= {sum(run) for run in runs}


def _two_kinds(size: int) -> hlo.Module:
  """A gather and a scatter in a group, between and beside kernels."""
  members, result = (
    text.replace("8192", str(8 * size))
    .replace("128]", f"{size // 8}]")
    .replace("1024", str(size))
    for text in _group(["all-gather", "reduce-scatter"], False)
  )
  kernels = [hlo_text.kernel(f"kernel.{at}", 30.0) for at in range(3)]
  return hlo_text.load(
    f"""
    p = f32[256,256] parameter(0)
    x = f32[{size}] parameter(1)
    {kernels[0]}
    s = ((f32[{size}]), {result}) async-start(x), calls=members
    {kernels[1]}
    ROOT d = {result} async-done(s)
    {kernels[2]}
    """,
    computations=members,
  )


def test_different_kinds_in_a_group_run_concurrently_with_one_latency():
  for size in (1024, 2**24):
    step = step_lib.of_module(_two_kinds(size), _H100S)
    apart_us = [step.predict(k, step.default[k]).time_us for k in step.keys]
    assert len(apart_us) == 2
    together_us = step.timeline(step.default).collective_us
    assert max(apart_us) <= together_us < sum(apart_us)
    # The time of the bytes stays; it dominates for the larger size.
    assert (together_us > 0.9 * sum(apart_us)) == (size > 1024)


def test_a_profile_splits_a_groups_launch_among_its_members_by_bytes():
  module = _two_kinds(2**20)
  profile = simulated_run.profile_of(module)
  costed = costing.of_profile(profile, _H100S)
  assert not costed.not_run
  first, second = profile.analysis.collectives
  for step in profile.whole_steps:
    ran = {event.name: event for event in step.collectives}
    assert ran[first.name].end_us == ran[second.name].begin_us
    share = ran[first.name].time_us / ran[second.name].time_us
    assert share == pytest.approx(
      first.nccl_bytes / second.nccl_bytes, rel=0.01
    )
  with measured.pricing(costed.measured):
    priced = step_lib.of_module(module, _H100S)
  # Both took 50 us, in sequence.
  assert priced.timeline(priced.default).collective_us == pytest.approx(
    2 * simulated_run.OWN_US, rel=0.05
  )
