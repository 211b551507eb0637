# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Collectives move as far as is legal, and no farther."""

from __future__ import annotations

from collections.abc import Callable, Sequence
import dataclasses
import functools
from typing import Any

import hypothesis
from hypothesis import strategies as st
import jax
import jax.numpy as jnp
from jax.sharding import Mesh
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec
import numpy as np
import pytest

import hlo_text
from lagom_xla import cluster as cluster_lib
from lagom_xla import errors
from lagom_xla.compile import compiler
from lagom_xla.compile import lowered as lowered_lib
from lagom_xla.passes import collectives
from lagom_xla.passes import dependencies
from lagom_xla.passes import hlo
from lagom_xla.passes import registry
from lagom_xla.passes.schedule import aliasing
from lagom_xla.passes.schedule import live_bytes
from lagom_xla.passes.schedule import moves as schedule

Move = schedule.Move

_NO_COMBINING = {
  f"xla_gpu_{kind}_combine_threshold_bytes": 0
  for kind in ("all_gather", "all_reduce", "reduce_scatter")
}


def home_of(module: hlo.Module, collective: str) -> hlo.Computation:
  (record,) = [c for c in collectives.find(module) if c.name == collective]
  (home,) = [
    c for c in module.computations.values() if c.name == record.computation
  ]
  return home


def names(module: hlo.Module, collective: str) -> list[str]:
  """The order of the computation that a collective stands in."""
  return [i.name for i in home_of(module, collective).instructions]


def done_of(module: hlo.Module, collective: str) -> str:
  home = home_of(module, collective)
  (start,) = [i for i in home.instructions if i.name == collective]
  done = dependencies.of(home).done_of.get(start.id)
  return home.by_id[done].name if done is not None else collective


def with_orders(
  module: hlo.Module, orders: dict[str, Sequence[str]]
) -> hlo.Module:
  """The module with computations in other orders, by name."""
  proto = type(module.proto)()
  proto.CopyFrom(module.proto)
  for computation in module.computations.values():
    if computation.name in orders:
      ids = {i.name: i.id for i in computation.instructions}
      proto.schedule.sequences[computation.id].instruction_ids[:] = [
        ids[name] for name in orders[computation.name]
      ]
  return hlo.Module(proto, module.num_partitions)


# Real modules.


@pytest.fixture(scope="module")
def uncombined(
  scheduled: Callable[..., hlo.Module],
  fsdp_step: Callable[..., jax.stages.Lowered],
) -> hlo.Module:
  """The unrolled train step, with every collective on its own."""
  return scheduled(fsdp_step(unroll=True), **_NO_COMBINING)


@pytest.fixture(scope="module", params=["fsdp_scan", "uncombined"])
def module(request: pytest.FixtureRequest) -> hlo.Module:
  return request.getfixturevalue(request.param)


@dataclasses.dataclass(frozen=True)
class _Step:
  """A way to move a collective, and whether it is within its bounds."""

  move: Move
  is_within_bounds: bool


@pytest.fixture(scope="module")
def steps(module: hlo.Module) -> list[_Step]:
  """All places before a start and after a done that stay where they are."""
  steps: list[_Step] = []
  for collective in collectives.find(module):
    name = collective.name
    order = names(module, name)
    stays = [
      i.name
      for i in home_of(module, name).instructions
      if i.opcode not in aliasing.FORWARDING
    ]
    begin = order.index(schedule.earliest(module, name))
    for place in order[: order.index(name)]:
      if place in stays:
        move = Move(collective=name, before=place)
        steps.append(_Step(move, order.index(place) >= begin))
    end = order.index(schedule.latest(module, name))
    for place in order[order.index(done_of(module, name)) + 1 :]:
      if place in stays:
        move = Move(collective=name, after=place)
        steps.append(_Step(move, order.index(place) <= end))
  return steps


@hypothesis.settings(max_examples=50)
@hypothesis.given(data=st.data())
def test_moves_within_the_bounds_are_legal_and_others_refused(
  module: hlo.Module, steps: list[_Step], data: st.DataObject
) -> None:
  step = data.draw(st.sampled_from(steps))
  move = step.move
  if not step.is_within_bounds:
    with pytest.raises(
      errors.ScheduleError, match=r"\S+ must stay before \S+[,:]"
    ):
      schedule.apply(module, [move])
    return
  moved = schedule.apply(module, [move])
  schedule.check(module, moved)
  # Only what moves along stands between it and its target.
  home = home_of(moved, move.collective)
  order = [i.name for i in home.instructions]
  ends = (
    (order.index(move.collective), order.index(move.before))
    if move.before
    else (
      order.index(move.after or ""),
      order.index(done_of(moved, move.collective)),
    )
  )
  assert all(
    i.opcode in aliasing.FORWARDING
    for i in home.instructions[ends[0] + 1 : ends[1]]
  )


@hypothesis.settings(max_examples=25)
@hypothesis.given(data=st.data())
def test_one_legal_move_after_another_stays_legal(
  module: hlo.Module, steps: list[_Step], data: st.DataObject
) -> None:
  legal = [step.move for step in steps if step.is_within_bounds]
  moved = module
  for move in data.draw(st.lists(st.sampled_from(legal), max_size=4)):
    try:
      moved = schedule.apply(moved, [move])
    except errors.ScheduleError:
      continue  # Not legal any more, now that others have moved.
  schedule.check(module, moved)


@hypothesis.settings(max_examples=60)
@hypothesis.given(data=st.data())
def test_an_order_that_breaks_an_edge_is_refused_with_both_names(
  module: hlo.Module, data: st.DataObject
) -> None:
  name = data.draw(st.sampled_from([c.name for c in collectives.find(module)]))
  home = home_of(module, name)
  graph = dependencies.of(home)
  edges = [(a, b) for b, before in graph.operands.items() for a in before]
  earlier, later = data.draw(st.sampled_from(edges))
  order = [i.name for i in home.instructions]
  one, other = home.by_id[earlier].name, home.by_id[later].name
  first, last = order.index(one), order.index(other)
  order[first], order[last] = other, one
  with pytest.raises(errors.ScheduleError, match=r"\S+ must stay before \S+,"):
    schedule.check(module, with_orders(module, {home.name: order}))


def test_a_module_with_all_collectives_as_far_apart_as_possible(
  module: hlo.Module,
) -> None:
  moved = module
  for collective in collectives.find(module):
    name = collective.name
    move = Move(
      collective=name,
      before=schedule.earliest(moved, name),
      after=schedule.latest(moved, name),
    )
    moved = schedule.apply(moved, [move])
  schedule.check(module, moved)


def test_nothing_but_the_order_may_change(fsdp_scan: hlo.Module) -> None:
  other = hlo.load(fsdp_scan.proto.SerializeToString())
  schedule.check(fsdp_scan, other)
  other.entry.instructions[-1].name += "x"
  with pytest.raises(errors.ScheduleError, match="More than the order"):
    schedule.check(fsdp_scan, other)


def test_an_instruction_may_not_be_left_out(fsdp_scan: hlo.Module) -> None:
  entry = fsdp_scan.entry
  order = [i.name for i in entry.instructions][1:]
  with pytest.raises(errors.ScheduleError, match="each of its instructions"):
    schedule.check(fsdp_scan, with_orders(fsdp_scan, {entry.name: order}))


def test_a_collective_that_is_not_there_is_named(fsdp_scan: hlo.Module) -> None:
  with pytest.raises(errors.ScheduleError, match=r"no collective fusion\.99"):
    schedule.apply(fsdp_scan, [Move(collective="fusion.99", before="x")])
  name = collectives.find(fsdp_scan)[0].name
  with pytest.raises(errors.ScheduleError, match="no instruction x"):
    schedule.apply(fsdp_scan, [Move(collective=name, before="x")])


def test_memory_is_estimated_as_xla_assigns_it(
  fsdp_step: Callable[..., jax.stages.Lowered], tp_step: jax.stages.Lowered
) -> None:
  cluster = cluster_lib.parse("1x8xh100")
  for lowered in (fsdp_step(), tp_step):
    compilation = compiler.compile(lowered_lib.LoweredStep(lowered, cluster))
    module = compilation.module
    estimate = live_bytes.peak_bytes(module, aliasing.of(module))
    assert estimate == pytest.approx(compilation.peak_bytes, rel=0.05)


def test_an_order_that_takes_too_much_memory_is_refused() -> None:
  module = _module(
    """
  y = f32[8] parameter(0)
  z = f32[8] parameter(1)
  large = f32[100] broadcast(z), dimensions={}
  small = f32[8] slice(large), slice={[0:8]}
  GATHER
  ROOT r = (f32[64], f32[8], f32[8]) tuple(done, small, work)""",
    x="y",
  )
  # Arguments, results, and `large`: what a result needs it needs all along.
  assert live_bytes.peak_bytes(module, aliasing.of(module)) == 4 * (
    (8 + 8) + (64 + 8 + 8) + 100
  )
  module = _module(
    """
  y = f32[8] parameter(0)
  z = f32[8] parameter(1)
  large = f32[100] broadcast(z), dimensions={}
  small = f32[8] slice(large), slice={[0:8]}
  GATHER
  sum = f32[8] slice(done), slice={[0:8]}
  ROOT r = (f32[8], f32[8], f32[8]) tuple(sum, small, work)""",
    x="y",
  )
  before_bytes, after_bytes = 4 * (16 + 24 + 100), 4 * (16 + 24 + 100 + 64)
  buffers = aliasing.of(module)
  assert live_bytes.peak_bytes(module, buffers) == before_bytes
  moves = [Move(collective="gather", before="large")]
  moved = schedule.apply(module, moves, peak_bytes=after_bytes)
  assert live_bytes.peak_bytes(moved, buffers) == after_bytes
  with pytest.raises(
    errors.ScheduleError,
    match=f"about {after_bytes} bytes at its peak, and {after_bytes - 1} are",
  ):
    schedule.apply(module, moves, peak_bytes=after_bytes - 1)
  # What XLA's own order needs is always allowed.
  schedule.apply(module, [], peak_bytes=0)


# Buffers that are shared, one way at a time. `gather` reads x; `write` writes
# where x is, once all have read it.

_GATHER = """
  gather = (f32[8], f32[64]) all-gather-start(OPERAND), dimensions={0},
    replica_groups={{0,1,2,3,4,5,6,7}}
  work = f32[8] negate(z)
  done = f32[64] all-gather-done(gather)
"""


def _module(
  body: str, *, x: str = "x", alias: str = "", others: str = ""
) -> hlo.Module:
  return hlo_text.load(
    body.replace("GATHER", _GATHER.replace("OPERAND", x)),
    computations=others,
    header=f"is_scheduled=true{alias}",
  )


_PARAMETERS = """
  i = s32[] parameter(0)
  y = f32[8] parameter(1)
  z = f32[8] parameter(2)
  u = f32[1] parameter(3)
"""
_UPDATE_OTHERS = """
update {
  p = f32[8] parameter(0)
  q = f32[1] parameter(1)
  j = s32[] parameter(2)
  ROOT d = f32[8] dynamic-update-slice(p, q, j) }
"""
_LOOP_OTHERS = """
body {
  t = (s32[], f32[8]) parameter(0)
  j = s32[] get-tuple-element(t), index=0
  v = f32[8] get-tuple-element(t), index=1
  w = f32[8] negate(v)
  ROOT r = (s32[], f32[8]) tuple(j, w) }
condition {
  t = (s32[], f32[8]) parameter(0)
  j = s32[] get-tuple-element(t), index=0
  ROOT c = pred[] compare(j, j), direction=LT }
"""

_OVERWRITTEN = {
  "in place": _module(
    _PARAMETERS
    + """x = f32[8] copy(y)
  GATHER
  write = f32[8] dynamic-update-slice(x, u, i)
  ROOT r = (f32[64], f32[8], f32[8]) tuple(done, write, work)"""
  ),
  "in a fusion": _module(
    _PARAMETERS
    + """x = f32[8] copy(y)
  GATHER
  write = f32[8] fusion(x, u, i), kind=kLoop, calls=update
  ROOT r = (f32[64], f32[8], f32[8]) tuple(done, write, work)""",
    others=_UPDATE_OTHERS,
  ),
  "through a tuple and a bitcast": _module(
    _PARAMETERS
    + """x = f32[8] copy(y)
  t = (f32[8], s32[]) tuple(x, i)
  g = f32[8] get-tuple-element(t), index=0
  b = f32[8] bitcast(g)
  GATHER
  write = f32[8] dynamic-update-slice(x, u, i)
  ROOT r = (f32[64], f32[8], f32[8]) tuple(done, write, work)""",
    x="b",
  ),
  "in a loop": _module(
    _PARAMETERS
    + """x = f32[8] copy(y)
  GATHER
  t = (s32[], f32[8]) tuple(i, x)
  write = (s32[], f32[8]) while(t), body=body, condition=condition
  g = f32[8] get-tuple-element(write), index=1
  ROOT r = (f32[64], f32[8], f32[8]) tuple(done, g, work)""",
    others=_LOOP_OTHERS,
  ),
  "a donated argument": _module(
    _PARAMETERS
    + """
  GATHER
  write = f32[8] add(z, z)
  ROOT r = (f32[64], f32[8], f32[8]) tuple(done, write, work)""",
    x="y",
    alias=", input_output_alias={ {1}: (1, {}, may-alias) }",
  ),
  "by a library call": _module(
    _PARAMETERS
    + """x = f32[8] copy(y)
  GATHER
  write = f32[8] custom-call(x), custom_call_target="f",
    output_to_operand_aliasing={{}: (0, {})}
  ROOT r = (f32[64], f32[8], f32[8]) tuple(done, write, work)"""
  ),
  "by another collective": _module(
    _PARAMETERS
    + """x = f32[8] copy(y)
  GATHER
  write = f32[8] all-reduce(x), to_apply=add,
    replica_groups={{0,1,2,3,4,5,6,7}}
  ROOT r = (f32[64], f32[8], f32[8]) tuple(done, write, work)"""
  ),
}


@pytest.mark.parametrize("how", _OVERWRITTEN)
def test_a_collective_is_done_before_its_operand_is_overwritten(
  how: str,
) -> None:
  module = _OVERWRITTEN[how]
  order = names(module, "gather")
  assert schedule.latest(module, "gather") == order[order.index("write") - 1]
  with pytest.raises(
    errors.ScheduleError,
    match=r"^done must stay before write: they touch one buffer, which"
    r" write overwrites\.$",
  ):
    schedule.apply(module, [Move(collective="gather", after="write")])


def test_a_collective_that_overwrites_starts_after_the_last_reader() -> None:
  module = _module(
    _PARAMETERS
    + """x = f32[8] copy(y)
  read = f32[8] negate(x)
  other = f32[8] negate(z)
  sum = f32[8] all-reduce-start(x), to_apply=add,
    replica_groups={{0,1,2,3,4,5,6,7}}
  work = f32[8] negate(other)
  done = f32[8] all-reduce-done(sum)
  ROOT r = (f32[8], f32[8], f32[8]) tuple(done, read, work)"""
  )
  assert schedule.earliest(module, "sum") == "other"
  with pytest.raises(errors.ScheduleError, match="read must stay before sum"):
    schedule.apply(module, [Move(collective="sum", before="read")])


def test_a_control_dependence_holds_a_collective() -> None:
  module = _module(
    _PARAMETERS
    + """first = f32[8] negate(y)
  second = f32[8] negate(z)
  gather = (f32[8], f32[64]) all-gather-start(y), dimensions={0},
    replica_groups={{0,1,2,3,4,5,6,7}}, control-predecessors={first}
  work = f32[8] negate(second)
  done = f32[64] all-gather-done(gather)
  last = f32[8] negate(work), control-predecessors={done}
  ROOT r = (f32[64], f32[8], f32[8]) tuple(done, first, last)"""
  )
  assert schedule.earliest(module, "gather") == "second"
  assert schedule.latest(module, "gather") == "done"
  with pytest.raises(
    errors.ScheduleError,
    match="first must stay before gather, which has a control dependence",
  ):
    schedule.apply(module, [Move(collective="gather", before="first")])


def test_what_takes_no_time_moves_along() -> None:
  module = _module(
    """
  y = f32[8] parameter(0)
  z = f32[2,4] parameter(1)
  first = f32[8] negate(y)
  b = f32[8] bitcast(z)
  gather = (f32[8], f32[64]) all-gather-start(b), dimensions={0},
    replica_groups={{0,1,2,3,4,5,6,7}}
  done = f32[64] all-gather-done(gather)
  c = f32[8,8] bitcast(done)
  work = f32[8] negate(first)
  ROOT r = (f32[8,8], f32[8]) tuple(c, work)"""
  )
  move = Move(collective="gather", before="first", after="work")
  moved = schedule.apply(module, [move])
  assert names(moved, "gather") == [
    "y", "z", "b", "gather", "first", "work", "done", "c", "r",
  ]  # fmt: skip


def test_moves_the_wrong_way_are_refused() -> None:
  module = _OVERWRITTEN["in place"]
  with pytest.raises(errors.ScheduleError, match="to an earlier place"):
    schedule.apply(module, [Move(collective="gather", before="work")])
  with pytest.raises(errors.ScheduleError, match="to a later place"):
    schedule.apply(module, [Move(collective="gather", after="gather")])


# What runs. XLA's CPU backend has no asynchronous collectives: whole ones move.

_WIDTH = 16
_NUM_LAYERS = 3
_NUM_STEPS = 10
_DONATES = registry.keeps_donation()

Params = dict[str, jax.Array]


def _fsdp_loss(params: Params, x: jax.Array) -> jax.Array:
  """Weights sharded by rows; gathered per layer, gradients scattered."""
  for i in range(_NUM_LAYERS):
    w = jax.lax.all_gather(params[f"w{i}"], "x", tiled=True)
    x = x + jnp.tanh(x @ w)
  return jax.lax.pmean(jnp.mean(jnp.square(x)), "x")


def _tp_loss(params: Params, x: jax.Array) -> jax.Array:
  """Weights sharded by hidden units; activations are all-reduced."""
  for i in range(_NUM_LAYERS):
    w = params[f"w{i}"]
    x = x + jax.lax.psum(jnp.tanh(x @ w.T) @ w, "x")
  return jnp.mean(jnp.square(x))


def _lower(
  devices: Sequence[jax.Device], *, is_tp: bool, donate: bool
) -> jax.stages.Lowered:
  mesh = Mesh(np.array(devices), ("x",))
  rows, everywhere = PartitionSpec("x"), PartitionSpec()
  loss = _tp_loss if is_tp else _fsdp_loss

  def train_step(params: Params, x: jax.Array) -> Params:
    grads = jax.grad(loss)(params, x)
    return {name: p - 0.1 * grads[name] for name, p in params.items()}

  data = everywhere if is_tp else rows
  step = jax.shard_map(
    train_step, mesh=mesh, in_specs=(rows, data), out_specs=rows
  )
  w = jax.ShapeDtypeStruct(
    (8 * _WIDTH, _WIDTH) if is_tp else (_WIDTH, _WIDTH),
    jnp.float32,
    sharding=NamedSharding(mesh, rows),
  )
  x = jax.ShapeDtypeStruct(
    (_WIDTH, _WIDTH), jnp.float32, sharding=NamedSharding(mesh, data)
  )
  jitted = jax.jit(step, donate_argnums=0 if donate else ())
  return jitted.lower({f"w{i}": w for i in range(_NUM_LAYERS)}, x)


def _compile_moved(
  lowered: jax.stages.Lowered,
  platform: str,
  moves_of: Callable[[hlo.Module], list[Move]],
  options: Any = None,
) -> tuple[Any, hlo.Module, hlo.Module]:
  """Compiles with moves: the executable, the module before and after them."""
  seen: list[hlo.Module] = []

  def move(serialized: bytes) -> bytes | None:
    module = hlo.load(serialized)
    if module.name != "jit_train_step":
      return None
    rewritten = schedule.rewrite(module, moves_of(module))
    seen.extend((module, hlo.load(rewritten)))
    return rewritten

  with registry.transformation(
    move, stage=registry.Stage.POST_SCHEDULER, platform=platform
  ):
    compiled = lowered.compile(compiler_options=options)
  before, after = seen
  return compiled, before, after


def _train(compiled: Any, lowered: jax.stages.Lowered) -> dict[str, np.ndarray]:
  shapes, x_shape = lowered.args_info[0]
  shardings, x_sharding = compiled.input_shardings[0]
  rng = np.random.default_rng(0)
  params = {
    name: jax.device_put(
      rng.normal(size=info.shape).astype(np.float32) / 4, shardings[name]
    )
    for name, info in shapes.items()
  }
  x = jax.device_put(
    rng.normal(size=x_shape.shape).astype(np.float32), x_sharding
  )
  for _ in range(_NUM_STEPS):
    params = compiled(params, x)
  return {name: np.asarray(p) for name, p in params.items()}


def _all_earliest(module: hlo.Module) -> list[Move]:
  return _each(module, lambda m, c: {"before": schedule.earliest(m, c)})


def _all_latest(module: hlo.Module) -> list[Move]:
  return _each(module, lambda m, c: {"after": schedule.latest(m, c)})


def _each(
  module: hlo.Module, place: Callable[[hlo.Module, str], dict[str, str]]
) -> list[Move]:
  moves: list[Move] = []
  for collective in collectives.find(module):
    moved = schedule.apply(module, moves)
    name = collective.name
    moves.append(Move(collective=name, **place(moved, name)))
  return moves


@functools.cache
def _unmoved(is_tp: bool) -> dict[str, np.ndarray]:
  lowered = _lower(jax.devices(), is_tp=is_tp, donate=_DONATES)
  return _train(lowered.compile(), lowered)


@pytest.mark.parametrize("moves_of", [_all_earliest, _all_latest])
@pytest.mark.parametrize("is_tp", [False, True])
def test_a_moved_step_trains_to_the_same_bits(
  is_tp: bool, moves_of: Callable[[hlo.Module], list[Move]]
) -> None:
  lowered = _lower(jax.devices(), is_tp=is_tp, donate=_DONATES)
  compiled, unmoved, moved = _compile_moved(lowered, "cpu", moves_of)
  kinds = {"all-reduce"} if is_tp else {"all-gather", "reduce-scatter"}
  assert kinds <= {c.kind for c in collectives.find(moved)}
  for kind in kinds:
    assert _places(moved, kind) != _places(unmoved, kind)
  # XLA went on with the moved order.
  assert _order(hlo.load(compiled)) == _order(moved)
  trained = _train(compiled, lowered)
  assert trained.keys() == _unmoved(is_tp).keys()
  for name, value in _unmoved(is_tp).items():
    np.testing.assert_array_equal(trained[name], value)


def _places(module: hlo.Module, kind: str) -> list[int]:
  return [
    names(module, c.name).index(c.name)
    for c in collectives.find(module)
    if c.kind == kind
  ]


def _order(module: hlo.Module) -> list[str]:
  return [i.name for i in module.entry.instructions]


def test_a_moved_order_is_what_xla_makes_code_for(
  h100s: Sequence[jax.Device],
) -> None:
  lowered = _lower(h100s, is_tp=False, donate=_DONATES)
  compiled, unmoved, moved = _compile_moved(
    lowered, "cuda", _all_earliest, _NO_COMBINING
  )
  final = hlo.load(compiled)
  # XLA puts a start with no kernel after it next to its done again, or makes
  # one instruction of them.
  sync = {c.name for c in collectives.find(final) if c.form == "sync"}
  sync |= {done_of(final, name) for name in sync}
  kept = set(_order(final)) - sync
  assert "all-gather-start.2" in kept

  def order(module: hlo.Module) -> list[str]:
    return [name for name in _order(module) if name in kept]

  assert order(final) == order(moved)
  assert order(final) != order(unmoved)
  aliases = final.proto.input_output_alias
  assert aliases == unmoved.proto.input_output_alias
  assert len(aliases.entries) == (_NUM_LAYERS if _DONATES else 0)


@pytest.mark.skipif(_DONATES, reason="this JAX keeps donated inputs")
def test_a_step_that_donates_is_not_moved_where_that_would_be_lost(
  fsdp_scan: hlo.Module,
) -> None:
  name = collectives.find(fsdp_scan)[0].name
  move = Move(collective=name, before=schedule.earliest(fsdp_scan, name))
  schedule.apply(fsdp_scan, [move])
  with pytest.raises(
    errors.DonationLostError, match=r"jit_step donates inputs, and JAX 0\.10"
  ):
    schedule.rewrite(fsdp_scan, [move])
