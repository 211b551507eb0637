# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Collectives keep their order with what overwrites or controls them."""

from __future__ import annotations

import pytest

from lagom_xla import errors
import reordered

# Buffers that are shared, one way at a time. `gather` reads x; `write` writes
# where x is, once all have read it.
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
  "in place": reordered.gathering(
    _PARAMETERS
    + """x = f32[8] copy(y)
  GATHER
  write = f32[8] dynamic-update-slice(x, u, i)
  ROOT r = (f32[64], f32[8], f32[8]) tuple(done, write, work)"""
  ),
  "in a fusion": reordered.gathering(
    _PARAMETERS
    + """x = f32[8] copy(y)
  GATHER
  write = f32[8] fusion(x, u, i), kind=kLoop, calls=update
  ROOT r = (f32[64], f32[8], f32[8]) tuple(done, write, work)""",
    others=_UPDATE_OTHERS,
  ),
  "through a tuple and a bitcast": reordered.gathering(
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
  "in a loop": reordered.gathering(
    _PARAMETERS
    + """x = f32[8] copy(y)
  GATHER
  t = (s32[], f32[8]) tuple(i, x)
  write = (s32[], f32[8]) while(t), body=body, condition=condition
  g = f32[8] get-tuple-element(write), index=1
  ROOT r = (f32[64], f32[8], f32[8]) tuple(done, g, work)""",
    others=_LOOP_OTHERS,
  ),
  "a donated argument": reordered.gathering(
    _PARAMETERS
    + """
  GATHER
  write = f32[8] add(z, z)
  ROOT r = (f32[64], f32[8], f32[8]) tuple(done, write, work)""",
    x="y",
    alias=", input_output_alias={ {1}: (1, {}, may-alias) }",
  ),
  "by a library call": reordered.gathering(
    _PARAMETERS
    + """x = f32[8] copy(y)
  GATHER
  write = f32[8] custom-call(x), custom_call_target="f",
    output_to_operand_aliasing={{}: (0, {})}
  ROOT r = (f32[64], f32[8], f32[8]) tuple(done, write, work)"""
  ),
  "by another collective": reordered.gathering(
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
  order = reordered.order_of(module)
  at = order.index("write")
  before = [n for n in order[:at] if n != "done"][-1]
  reordered.with_order(module, reordered.moved(order, "done", after=before))
  with pytest.raises(
    errors.ScheduleError,
    match=r"^done must stay before write: they touch one buffer, which"
    r" write overwrites\.$",
  ):
    reordered.with_order(module, reordered.moved(order, "done", after="write"))


def test_a_collective_that_overwrites_starts_after_the_last_reader() -> None:
  module = reordered.gathering(
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
  reordered.with_order(
    module, reordered.moved(reordered.order_of(module), "sum", after="read")
  )
  with pytest.raises(errors.ScheduleError, match="read must stay before sum"):
    reordered.with_order(
      module, reordered.moved(reordered.order_of(module), "sum", after="x")
    )


def test_a_control_dependence_holds_a_collective() -> None:
  module = reordered.gathering(
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
  reordered.with_order(
    module, reordered.moved(reordered.order_of(module), "gather", after="first")
  )
  for name, after, message in (
    ("gather", "u", "first must stay before gather, which has a control"),
    ("done", "last", "done must stay before last, which has a control"),
  ):
    with pytest.raises(errors.ScheduleError, match=message):
      reordered.with_order(
        module, reordered.moved(reordered.order_of(module), name, after=after)
      )
