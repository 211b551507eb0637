# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Another order of a schedule is legal, or refused by name.

Collectives keep theirs with what overwrites or controls them.
"""

from __future__ import annotations

from collections.abc import Sequence

import hypothesis
from hypothesis import strategies as st
import pytest

import hlo_text
from lagom_xla import errors
from lagom_xla.passes import collectives
from lagom_xla.passes import dependencies
from lagom_xla.passes import hlo
from lagom_xla.passes.schedule import aliasing
from lagom_xla.passes.schedule import memory
from lagom_xla.passes.schedule import orders as orders_lib
import random_orders


def _order_of(module: hlo.Module) -> list[str]:
  """The order of the computation that runs once."""
  return [i.name for i in module.entry.instructions]


def _with_order(module: hlo.Module, order: Sequence[str]) -> hlo.Module:
  """The module with another order of what runs once, if it is legal."""
  return orders_lib.apply(module, {module.entry.name: tuple(order)})


def _moved(order: Sequence[str], name: str, *, after: str) -> list[str]:
  """The order with one instruction right after another."""
  others = [n for n in order if n != name]
  place = others.index(after) + 1
  return [*others[:place], name, *others[place:]]


_GATHER = """
  gather = (f32[8], f32[64]) all-gather-start(OPERAND), dimensions={0},
    replica_groups={{0,1,2,3,4,5,6,7}}
  work = f32[8] negate(z)
  done = f32[64] all-gather-done(gather)
"""


def _gathering(
  body: str, *, x: str = "x", alias: str = "", others: str = ""
) -> hlo.Module:
  """A module whose GATHER is an asynchronous all-gather of `x`, and work."""
  return hlo_text.load(
    body.replace("GATHER", _GATHER.replace("OPERAND", x)),
    computations=others,
    header=f"is_scheduled=true{alias}",
  )


_NO_COMBINING = {
  f"xla_gpu_{kind}_combine_threshold_bytes": 0
  for kind in ("all_gather", "all_reduce", "reduce_scatter")
}


@pytest.fixture(scope="module")
def uncombined(scheduled, fsdp_step) -> hlo.Module:
  """The unrolled train step, with every collective on its own."""
  return scheduled(fsdp_step(unroll=True), **_NO_COMBINING)


@pytest.fixture(scope="module", params=["fsdp_scan", "uncombined"])
def module(request) -> hlo.Module:
  return request.getfixturevalue(request.param)


@hypothesis.settings(max_examples=20)
@hypothesis.given(seed=st.integers(0, 2**32 - 1))
def test_whatever_comes_after_what_it_must_is_legal(module, seed):
  orders = random_orders.of(module, seed)
  assert orders
  reordered = orders_lib.apply(module, orders)
  assert orders_lib.of(module, reordered) == orders
  back = orders_lib.of(reordered, module)
  assert orders_lib.of(module, orders_lib.apply(reordered, back)) == {}


@hypothesis.settings(max_examples=60)
@hypothesis.given(data=st.data())
def test_an_order_that_breaks_an_edge_is_refused_with_both_names(module, data):
  homes = {c.computation for c in collectives.find(module)}
  name = data.draw(st.sampled_from(sorted(homes)))
  (home,) = [c for c in module.computations.values() if c.name == name]
  graph = dependencies.of(home)
  edges = [(a, b) for b, before in graph.operands.items() for a in before]
  earlier, later = data.draw(st.sampled_from(edges))
  order = [i.name for i in home.instructions]
  one, other = home.by_id[earlier].name, home.by_id[later].name
  first, last = order.index(one), order.index(other)
  order[first], order[last] = other, one
  with pytest.raises(errors.ScheduleError, match=r"\S+ must stay before \S+,"):
    orders_lib.apply(module, {home.name: tuple(order)})


def test_nothing_but_the_order_may_change(fsdp_scan):
  other = fsdp_scan.copy()
  orders_lib.check_order(fsdp_scan, other)
  other.entry.instructions[-1].name += "x"
  with pytest.raises(errors.ScheduleError, match="More than the order"):
    orders_lib.check_order(fsdp_scan, other)
  other = fsdp_scan.copy()
  del other.proto.schedule.sequences[other.entry.id].instruction_ids[0]
  with pytest.raises(errors.ScheduleError, match="each of its instructions"):
    orders_lib.check_order(fsdp_scan, other)


@pytest.mark.parametrize(
  ("change", "message"),
  [
    (lambda o: o[1:], r"names \d+ instructions, and the .* also has \S+:"),
    (lambda o: [*o, "fusion.x"], r"the computation has no fusion\.x: the"),
    (lambda o: [*o, o[0]], "has each of its instructions once: the order"),
  ],
)
def test_an_order_of_other_instructions_is_refused(fsdp_scan, change, message):
  with pytest.raises(errors.ScheduleError, match=message):
    _with_order(fsdp_scan, change(_order_of(fsdp_scan)))


def test_an_order_is_of_a_computation_that_is_there(fsdp_scan):
  assert orders_lib.apply(fsdp_scan, {}) is fsdp_scan
  with pytest.raises(
    errors.ScheduleError, match="jit_step has no computation body: the order"
  ):
    orders_lib.apply(fsdp_scan, {"body": ()})


def test_an_order_that_takes_too_much_memory_is_refused():
  module = _gathering(
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
  # Arguments, results, and `large`; in another order what is gathered, too.
  before_bytes, after_bytes = 4 * (16 + 24 + 100), 4 * (16 + 24 + 100 + 64)
  buffers = aliasing.of(module)
  assert memory.peak_bytes(module, buffers) == before_bytes
  earlier = _with_order(module, _moved(_order_of(module), "gather", after="z"))
  assert memory.peak_bytes(earlier, buffers) == after_bytes
  orders_lib.check_memory(module, earlier, after_bytes)
  with pytest.raises(
    errors.ScheduleError,
    match=f"about {after_bytes} bytes at its peak, and {after_bytes - 1} are",
  ):
    orders_lib.check_memory(module, earlier, after_bytes - 1)
  # What XLA's own order needs is always allowed.
  orders_lib.check_memory(module, module, 0)


# Buffers that are shared, one way at a time. `gather` reads x; `write` writes
# where x is, once all have read it.
_PARAMETERS = """
  i = s32[] parameter(0)
  y = f32[8] parameter(1)
  z = f32[8] parameter(2)
  u = f32[1] parameter(3)
"""
_COPIED = f"{_PARAMETERS}\n  x = f32[8] copy(y)"
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


def _overwriting(
  write: str,
  *,
  before: str = _COPIED,
  x: str = "x",
  written: str = "write",
  others: str = "",
  alias: str = "",
) -> hlo.Module:
  body = f"""
  {before}
  GATHER
  {write}
  ROOT r = (f32[64], f32[8], f32[8]) tuple(done, {written}, work)"""
  return _gathering(body, x=x, others=others, alias=alias)


_OVERWRITTEN = {
  "in place": _overwriting("write = f32[8] dynamic-update-slice(x, u, i)"),
  "in a fusion": _overwriting(
    "write = f32[8] fusion(x, u, i), kind=kLoop, calls=update",
    others=_UPDATE_OTHERS,
  ),
  "through a tuple and a bitcast": _overwriting(
    "write = f32[8] dynamic-update-slice(x, u, i)",
    before=f"""{_COPIED}
  t = (f32[8], s32[]) tuple(x, i)
  g = f32[8] get-tuple-element(t), index=0
  b = f32[8] bitcast(g)""",
    x="b",
  ),
  "in a loop": _overwriting(
    """t = (s32[], f32[8]) tuple(i, x)
  write = (s32[], f32[8]) while(t), body=body, condition=condition
  g = f32[8] get-tuple-element(write), index=1""",
    written="g",
    others=_LOOP_OTHERS,
  ),
  "a donated argument": _overwriting(
    "write = f32[8] add(z, z)",
    before=_PARAMETERS,
    x="y",
    alias=", input_output_alias={ {1}: (1, {}, may-alias) }",
  ),
  "by a library call": _overwriting(
    """write = f32[8] custom-call(x), custom_call_target="f",
    output_to_operand_aliasing={{}: (0, {})}"""
  ),
  "by another collective": _overwriting(
    """write = f32[8] all-reduce(x), to_apply=add,
    replica_groups={{0,1,2,3,4,5,6,7}}"""
  ),
}


@pytest.mark.parametrize("how", _OVERWRITTEN)
def test_a_collective_is_done_before_its_operand_is_overwritten(how):
  module = _OVERWRITTEN[how]
  order = _order_of(module)
  at = order.index("write")
  before = [n for n in order[:at] if n != "done"][-1]
  _with_order(module, _moved(order, "done", after=before))
  with pytest.raises(
    errors.ScheduleError,
    match=r"^done must stay before write: they touch one buffer, which"
    r" write overwrites\.$",
  ):
    _with_order(module, _moved(order, "done", after="write"))


def test_a_collective_that_overwrites_starts_after_the_last_reader():
  module = _gathering(
    f"""
  {_COPIED}
  read = f32[8] negate(x)
  other = f32[8] negate(z)
  sum = f32[8] all-reduce-start(x), to_apply=add,
    replica_groups={{{{0,1,2,3,4,5,6,7}}}}
  work = f32[8] negate(other)
  done = f32[8] all-reduce-done(sum)
  ROOT r = (f32[8], f32[8], f32[8]) tuple(done, read, work)"""
  )
  _with_order(module, _moved(_order_of(module), "sum", after="read"))
  with pytest.raises(errors.ScheduleError, match="read must stay before sum"):
    _with_order(module, _moved(_order_of(module), "sum", after="x"))


def test_a_control_dependence_holds_a_collective():
  module = _gathering(
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
  _with_order(module, _moved(_order_of(module), "gather", after="first"))
  for name, after, message in (
    ("gather", "u", "first must stay before gather, which has a control"),
    ("done", "last", "done must stay before last, which has a control"),
  ):
    with pytest.raises(errors.ScheduleError, match=message):
      _with_order(module, _moved(_order_of(module), name, after=after))
