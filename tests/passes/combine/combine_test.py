# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""XLA combines exactly the given groups, or the pass refuses them.

All-reduces of which each device keeps its shard safely become reduce-scatters.
"""

from __future__ import annotations

from collections.abc import Callable
import json
import math
from typing import NamedTuple

import jax
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec
import numpy as np
import pytest

import hlo_text
from lagom_xla import cluster as cluster_lib
from lagom_xla import errors
from lagom_xla.compile import compiler
from lagom_xla.compile import config as config_lib
from lagom_xla.compile import devices as devices_lib
from lagom_xla.compile import lowered as lowered_lib
from lagom_xla.compile import target as target_lib
from lagom_xla.flags import debug_options
from lagom_xla.passes import collectives
from lagom_xla.passes import combine
from lagom_xla.passes import hlo
from lagom_xla.passes import in_compile
from lagom_xla.passes import registry
from lagom_xla.passes.combine import combinable
from lagom_xla.passes.combine import table

_ADD = ", use_global_device_ids=true, to_apply=add"
_EIGHT = "replica_groups={{0,1,2,3,4,5,6,7}}"
_FOUR = "replica_groups={{0,1,2,3},{4,5,6,7}}"
_ROWS = "dimensions={0}, use_global_device_ids=true"

_HLO = hlo_text.text(
  f"""
  x = f32[8,64] parameter(0)
  y = f32[8,64] parameter(1)
  gx = f32[64,64] all-gather(x), {_EIGHT}, channel_id=1, {_ROWS}
  gy = f32[64,64] all-gather(y), {_EIGHT}, channel_id=2, {_ROWS}
  half = f32[32,64] all-gather(y), {_FOUR}, channel_id=3, {_ROWS}
  sx = f32[8,64] all-reduce(x), {_EIGHT}, channel_id=4{_ADD}
  sx2 = f32[8,64] add(sx, x)
  sy = f32[8,64] all-reduce(y), {_EIGHT}, channel_id=5{_ADD}
  sy2 = f32[8,64] add(sy, y)
  my = f32[8,64] all-reduce(y), {_EIGHT}, channel_id=6,
    use_global_device_ids=true, to_apply=larger
  ssx = f32[8,64] all-reduce(sx2), {_EIGHT}, channel_id=7{_ADD}
  ssy = f32[8,64] all-reduce(sy2), {_EIGHT}, channel_id=8{_ADD}
  ROOT out = (f32[64,64], f32[64,64], f32[32,64], f32[8,64], f32[8,64],
    f32[8,64]) tuple(gx, gy, half, my, ssx, ssy)
""",
  computations="""
larger {
  a.1 = f32[] parameter(0)
  b.1 = f32[] parameter(1)
  ROOT larger.1 = f32[] maximum(a.1, b.1)
}
""",
  header="num_partitions=8",
)


_CLUSTER = cluster_lib.parse("1x8xh100")

LowerStep = Callable[..., jax.stages.Lowered]


def grouped(groups: combine.Groups) -> config_lib.XlaConfig:
  return config_lib.XlaConfig(combine_groups=groups)


@pytest.fixture(scope="module")
def unrolled(fsdp_step) -> target_lib.Target:
  """Four layers that each gather two weights and scatter two gradients."""
  return target_lib.of_step(fsdp_step(unroll=True), _CLUSTER, name="unrolled")


@pytest.fixture(scope="module")
def scan(fsdp_step) -> target_lib.Target:
  """The same in loops, with collectives in three computations."""
  return target_lib.of_step(fsdp_step(), _CLUSTER, name="scan")


def _candidates(target: target_lib.Target) -> dict[str, combinable.Candidate]:
  return combinable.find(target.identity())


def _of_kind(target: target_lib.Target, kind: str) -> list[str]:
  return [c.label for c in _candidates(target).values() if c.kind == kind]


def _scheduled(
  target: target_lib.Target, groups: combine.Groups
) -> dict[tuple[str, ...], collectives.Collective]:
  """The scheduled collectives, by their labels."""
  module = target.schedule(grouped(groups))
  labels = combine.labels(module, groups)
  return {labels[c.name]: c for c in collectives.find(module)}


def test_labels_are_collective_names_before_combining(unrolled):
  module = unrolled.identity()
  assert not module.is_scheduled
  candidates = _candidates(unrolled)
  assert set(candidates) == {c.name for c in collectives.find(module)}
  # A weight and a gradient of each half layer and of the output; the loss.
  # Sharded gradients become reduce-scatters.
  kinds = [c.kind for c in candidates.values()]
  assert kinds.count("all-gather") == kinds.count("reduce-scatter") == 2 * 4 + 1
  assert kinds.count("all-reduce") == 1
  # Labels are the same in every compile.
  assert set(_candidates(unrolled)) == set(candidates)


@pytest.mark.parametrize("name", ["scan", "unrolled"])
def test_no_collective_is_combined_without_groups(name, request):
  target = request.getfixturevalue(name)
  candidates = _candidates(target)
  scheduled = _scheduled(target, ())
  assert set(scheduled) == {(label,) for label in candidates}
  for (label,), collective in scheduled.items():
    assert collective.num_operands == 1
    assert collective.kind == candidates[label].kind
    assert table.combined_bytes(collective) == candidates[label].num_bytes


@pytest.mark.parametrize("kind", ["all-gather", "reduce-scatter"])
def test_only_the_given_groups_are_combined(unrolled, kind):
  first, second, third, fourth, fifth, *_ = _of_kind(unrolled, kind)
  # The groups are neither only neighbors nor in the module's order.
  groups = ((third, first), (second, fifth, fourth))
  scheduled = _scheduled(unrolled, groups)
  rest = set(_candidates(unrolled)) - {first, second, third, fourth, fifth}
  assert set(scheduled) == {*groups, *((label,) for label in rest)}
  for group in groups:
    assert scheduled[group].kind == kind
    assert scheduled[group].num_operands == len(group)


def test_a_group_in_a_loop_is_combined_within_the_loop(scan):
  _, *body = _of_kind(scan, "reduce-scatter")
  combined = _scheduled(scan, (tuple(body),))[tuple(body)]
  assert len(body) == 2
  assert (combined.executions, combined.is_pipelined) == (4, False)


def test_xlas_own_groups_reproduce_xlas_schedule(unrolled):
  def opcodes(module: hlo.Module) -> list[str]:
    return [i.opcode for i in module.entry.instructions]

  groups = tuple(
    tuple(_of_kind(unrolled, kind)) for kind in ("all-gather", "reduce-scatter")
  )
  regrouped = unrolled.schedule(grouped(groups))
  assert opcodes(regrouped) == opcodes(unrolled.schedule())


@pytest.fixture(scope="module")
def all_reduces(h100s) -> target_lib.Target:
  """Replicated gradients, which XLA concatenates."""
  mesh = jax.sharding.Mesh(np.array(h100s), ("x",))

  def loss(weights: list[jax.Array], h: jax.Array) -> jax.Array:
    for weight in weights:
      h = jax.numpy.tanh(h @ weight)
    return jax.numpy.sum(h)

  def step(weights: list[jax.Array], h: jax.Array) -> list[jax.Array]:
    return jax.grad(loss)(weights, h)

  def arg(rows: int, spec: PartitionSpec) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(
      (rows, 128), jax.numpy.float32, sharding=NamedSharding(mesh, spec)
    )

  lowered = jax.jit(step).lower(
    [arg(128, PartitionSpec())] * 4, arg(1024, PartitionSpec("x"))
  )
  return target_lib.of_step(lowered, _CLUSTER, name="all_reduces")


def test_all_reduces_that_xla_concatenates_keep_their_labels(all_reduces):
  first, second, third, fourth = _of_kind(all_reduces, "all-reduce")
  groups = ((fourth, first), (second, third))
  scheduled = _scheduled(all_reduces, groups)
  assert set(scheduled) == set(groups)
  for collective in scheduled.values():
    assert collective.operand_bytes == 2 * 4 * 128 * 128


def test_a_donated_step_needs_as_much_memory_with_groups_as_without(
  scan, fsdp_step
):
  # XLA's own groups, so that nothing but donation could make a difference.
  gathers = _of_kind(scan, "all-gather")[1:]
  scatters = _of_kind(scan, "reduce-scatter")[1:]
  groups = (tuple(gathers), tuple(scatters))
  plain, regrouped = scan.compile(), scan.compile(grouped(groups))
  aliases = regrouped.module.proto.input_output_alias
  assert len(aliases.entries) == 3
  assert regrouped.peak_bytes == plain.peak_bytes
  held = set(combine.labels(regrouped.module, groups).values())
  assert set(groups) <= held


def test_a_grouped_executable_keeps_donation_or_is_refused(
  scan, fsdp_step, monkeypatch
):
  # As on live GPUs, where the compiled executable runs.
  monkeypatch.setattr(devices_lib, "is_live", lambda _: True)
  lowered = fsdp_step()
  step = lowered_lib.LoweredStep(lowered, _CLUSTER)
  config = grouped((tuple(_of_kind(scan, "all-gather")[1:]),))
  if not registry.keeps_donation():
    with pytest.raises(
      errors.CompileError,
      match=r"jit_step donates inputs.* Use JAX 0\.11 or newer",
    ):
      compiler.compile(step, config)
    return
  compiled = compiler.compile(step, config).compiled
  memory = compiled.memory_analysis() if compiled is not None else None
  assert memory is not None
  donated = [a for a in jax.tree.leaves(lowered.args_info) if a.donated]
  assert memory.alias_size_in_bytes == sum(
    math.prod(a.shape) * a.dtype.itemsize // 8 for a in donated
  )


def test_modules_of_other_names_are_not_regrouped(fsdp_step):
  lowered = fsdp_step()
  groups = (("no", "such", "labels"),)
  with in_compile.grouped("jit_another_step", groups):
    module = compiler.schedule(lowered_lib.LoweredStep(lowered, _CLUSTER))
  assert not combine.labels(module, groups)


def test_groups_for_a_scheduled_module_are_refused(fsdp_scan):
  target = target_lib.of_module(fsdp_scan, _CLUSTER, name="step.hlo")
  assert target.schedule() is fsdp_scan
  with pytest.raises(
    errors.CompileError, match=r"step\.hlo is already scheduled"
  ):
    target.schedule(grouped(()))


def test_groups_apply_to_an_unoptimized_module(h100s):
  module = hlo.load(_HLO)
  target = target_lib.of_module(module, _CLUSTER, name="step.hlo")
  *labels, unlike = _of_kind(target, "all-gather")
  groups = (tuple(labels),)
  assert len(labels) == 2
  with pytest.raises(errors.CombineError, match=unlike):
    target.schedule(grouped(((*labels, unlike),)))
  assert groups[0] in _scheduled(target, groups)
  compiled = target.compile(grouped(groups))
  assert groups[0] in combine.labels(compiled.module, groups).values()


@pytest.mark.parametrize(
  ("groups", "message"),
  [
    ("gx absent", "absent is not a collective that can be combined; these are"),
    ("gx gx", "gx is in two combine groups"),
    ("gx gy; gy", "gy is in two combine groups"),
    ("gx sx", "gx and sx cannot be combined: they differ in kind"),
    ("gx half", "gx and half cannot be combined: they differ in groups of"),
    ("sy my", "they differ in reduction (add and maximum)"),
    ("sx ssx", "sx and ssx cannot be combined: ssx depends on sx."),
    ("sx ssy; sy ssx", "{sx and ssy} and {sy and ssx} conflict"),
  ],
)
def test_invalid_groups_are_refused_with_their_labels(groups, message):
  labels = tuple(tuple(group.split()) for group in groups.split(";"))
  with pytest.raises(errors.CombineError) as error:
    combine.rewrite(hlo.load(_HLO), labels)
  assert message in str(error.value)
  assert "\n" not in str(error.value)


def test_a_collective_of_several_arrays_cannot_be_combined():
  module = hlo_text.load(f"""
    x = f32[8] parameter(0)
    y = f32[4] parameter(1)
    ROOT both = (f32[8], f32[4]) all-reduce(x, y), {hlo_text.ALL}, to_apply=add
  """)
  assert not combinable.find(module)


def test_groups_override_combine_thresholds_that_were_set():
  asked = {"xla_gpu_all_gather_combine_threshold_bytes": 1, "xla_other": 2}
  options = combine.options((), asked)
  assert options["xla_other"] == 2
  assert options["xla_gpu_all_gather_combine_threshold_bytes"] >= 2**50
  assert combine.options((), asked) == options
  assert combine.options((("a", "b"),), asked) != options


def test_groups_replace_the_combiner_keys_of_the_program():
  module = hlo.load(_HLO)
  for instruction in module.entry.instructions:
    if instruction.name in ("gx", "gy"):
      key = f"strand {instruction.name}"
      instruction.frontend_attributes.map["combiner_key"] = key
  before = module.proto.SerializeToString(deterministic=True)
  rewritten = hlo.load(combine.rewrite(module, (("gx", "gy"),)))
  gathers = [
    i for i in rewritten.entry.instructions if i.opcode == "all-gather"
  ]
  keys = {i.frontend_attributes.map["combiner_key"] for i in gathers}
  assert keys == {"group of gx", "group of half"}
  # The input module is unchanged.
  assert module.proto.SerializeToString(deterministic=True) == before


@pytest.mark.parametrize("kind", table.COMBINERS)
def test_combiner_options_and_defaults_equal_the_installed_xlas(kind):
  option = debug_options.find(table.COMBINERS[kind])
  assert option is not None
  assert option.default == table.DEFAULT_BYTES


class _Array(NamedTuple):
  name: str
  num_bytes: int


@pytest.mark.parametrize(
  ("threshold_bytes", "groups"),
  [
    (0, "a b c d e"),
    (4, "a b c d e"),
    # An array that is too large is not combined; its neighbors still are.
    (8, "c ab de"),
    # The first array without room begins the next group.
    (40, "ab cd e"),
    (100, "abcde"),
  ],
)
def test_groups_are_filled_up_to_the_combine_threshold(threshold_bytes, groups):
  arrays = [_Array(name, 36 if name == "c" else 4) for name in "abcde"]
  filled = table.fill(arrays, threshold_bytes)
  names = ["".join(array.name for array in group) for group in filled]
  assert sorted(names) == sorted(groups.split())


_BODY = """
  x = f32[16,8] parameter(0)
  total = f32[16,8] all-reduce(x), channel_id=1,
    replica_groups={groups}, use_global_device_ids=true, to_apply=add
  id.u = u32[] partition-id()
  id = s32[] convert(id.u)
  zero = s32[] constant(0)
  one = s32[] constant(1)
  two = s32[] constant(2)
  four = s32[] constant(4)
  size = s32[] constant({size})
{offset}
  shard = f32[{size},8] dynamic-slice(total, offset, zero),
    dynamic_slice_sizes={{{size},8}}
  ROOT out = f32[{size},8] negate(shard)
"""

# Eight devices as a mesh of 2 x 4, whose rows and columns are groups.
_ALL = "{{0,1,2,3,4,5,6,7}}"
_MESH_ROWS = "{{0,1,2,3},{4,5,6,7}}"
_COLUMNS = "{{0,4},{1,5},{2,6},{3,7}}"
_REVERSED = "{{7,6,5,4,3,2,1,0}}"

_LINEAR = "  offset = s32[] multiply(id, size)"
_COLUMN = """\
  rank = s32[] remainder(id, four)
  offset = s32[] multiply(rank, size)"""
_ROW = """\
  rank = s32[] divide(id, four)
  offset = s32[] multiply(rank, size)"""
_TABLE = """\
  table = s32[8] constant({14,12,10,8,6,4,2,0})
  entry = s32[1] dynamic-slice(table, id), dynamic_slice_sizes={1}
  offset = s32[] reshape(entry)"""
_CLAMPED = """\
  far = s32[] multiply(id, size)
  last = s32[] constant(14)
  offset = s32[] clamp(zero, far, last)"""
_PARAMETER = "  offset = s32[] parameter(1)"

# Name -> replica groups, size of a shard, how the offset is computed.
_MATCHING = {
  "all devices": (_ALL, 2, _LINEAR),
  "rows of a mesh": (_MESH_ROWS, 4, _COLUMN),
  "columns of a mesh": (_COLUMNS, 8, _ROW),
  "a table": (_REVERSED, 2, _TABLE),
  "a clamped offset": (_ALL, 2, _CLAMPED),
}
_OTHER = {
  "another order": (_REVERSED, 2, _LINEAR),
  "a table in another order": (_ALL, 2, _TABLE),
  "shards that overlap": (_ALL, 2, "  offset = s32[] add(id, one)"),
  "shards of other groups": (_MESH_ROWS, 4, _LINEAR),
  "an offset from outside": (_ALL, 2, _PARAMETER),
  "an offset that may be negative": (
    _ALL,
    2,
    "  less = s32[] subtract(id, one)\n  offset = s32[] multiply(less, size)",
  ),
}


def _module(groups: str, size: int, offset: str) -> hlo.Module:
  body = _BODY.format(groups=groups, size=size, offset=offset)
  return hlo_text.load(body, header="num_partitions=8")


def _made(module: hlo.Module) -> hlo.Module:
  """A copy with reduce-scatters instead of pairs."""
  copy = module.copy()
  combinable.make_all(copy)
  return hlo.Module(copy.proto)


@pytest.mark.parametrize("name", _OTHER)
def test_other_slices_of_an_all_reduce_are_not_converted(name):
  module = _module(*_OTHER[name])
  (candidate,) = combinable.find(module).values()
  assert candidate.kind == "all-reduce"
  assert _made(module).proto == module.proto


@pytest.mark.parametrize("name", _MATCHING)
def test_a_reduce_scatter_from_an_all_reduce_gives_the_same_bits(name):
  module = _module(*_MATCHING[name])
  (candidate,) = combinable.find(module).values()
  assert (candidate.label, candidate.kind) == ("total", "reduce-scatter")
  made = _made(module)
  assert "reduce-scatter" in made.entry.opcodes
  assert "all-reduce" not in made.entry.opcodes
  x = np.random.default_rng(0).normal(size=(8 * 16, 8)).astype(np.float32)
  before = hlo_text.run(module, x)
  np.testing.assert_allclose(before, _expected(*_MATCHING[name], x), rtol=1e-4)
  np.testing.assert_array_equal(hlo_text.run(made, x), before)


def _expected(
  groups: str, size: int, unused_offset: str, x: np.ndarray
) -> np.ndarray:
  """The negated shards of the sums over each group, by device."""
  shards = {}
  for group in json.loads(groups.replace("{", "[").replace("}", "]")):
    total = np.sum(x.reshape(8, 16, 8)[group], axis=0)
    for rank, device in enumerate(group):
      shards[device] = -total[rank * size : (rank + 1) * size]
  return np.concatenate([shards[device] for device in range(8)])
