# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Schedules: dependences, other orders, memory, and digests.

Another order is legal, or refused with names: collectives keep their order with
instructions that overwrite or control them. The estimated memory of a schedule
equals XLA's assignment.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import hypothesis
from hypothesis import strategies as st
import jax
import jax.numpy as jnp
from jax.sharding import Mesh
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P
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
from lagom_xla.passes.schedule import aliasing
from lagom_xla.passes.schedule import digest
from lagom_xla.passes.schedule import memory
from lagom_xla.passes.schedule import orders as orders_lib
import random_orders


def _order_of(module: hlo.Module) -> list[str]:
  """The order of the computation that runs once."""
  return [i.name for i in module.entry.instructions]


def _with_order(module: hlo.Module, order: Sequence[str]) -> hlo.Module:
  """The module with another order of the entry, if it is legal."""
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
def test_any_order_that_respects_dependences_is_legal(module, seed):
  orders = random_orders.of(module, seed)
  assert orders
  reordered = orders_lib.apply(module, orders)
  assert orders_lib.of(module, reordered) == orders
  back = orders_lib.of(reordered, module)
  assert orders_lib.of(module, orders_lib.apply(reordered, back)) == {}


@hypothesis.settings(max_examples=60)
@hypothesis.given(data=st.data())
def test_an_order_that_breaks_a_dependence_is_refused_with_both_names(
  module, data
):
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


def test_changes_other_than_the_order_are_refused(fsdp_scan):
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
    (lambda o: o[1:], r"names \d+ instructions, but the .* also has \S+:"),
    (lambda o: [*o, "fusion.x"], r"the computation has no fusion\.x: the"),
    (lambda o: [*o, o[0]], "has each of its instructions once: the order"),
  ],
)
def test_an_order_with_missing_unknown_or_repeated_names_is_refused(
  fsdp_scan, change, message
):
  with pytest.raises(errors.ScheduleError, match=message):
    _with_order(fsdp_scan, change(_order_of(fsdp_scan)))


def test_an_order_of_an_unknown_computation_is_refused(fsdp_scan):
  assert orders_lib.apply(fsdp_scan, {}) is fsdp_scan
  with pytest.raises(
    errors.ScheduleError, match="jit_step has no computation body: the order"
  ):
    orders_lib.apply(fsdp_scan, {"body": ()})


def test_an_order_that_needs_too_much_memory_is_refused():
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
  # Arguments, results, and `large`; in the other order also the gathered array.
  before_bytes, after_bytes = 4 * (16 + 24 + 100), 4 * (16 + 24 + 100 + 64)
  buffers = aliasing.of(module)
  assert memory.peak_bytes(module, buffers) == before_bytes
  earlier = _with_order(module, _moved(_order_of(module), "gather", after="z"))
  assert memory.peak_bytes(earlier, buffers) == after_bytes
  orders_lib.check_memory(module, earlier, after_bytes)
  with pytest.raises(
    errors.ScheduleError,
    match=f"about {after_bytes} bytes at its peak, but only",
  ):
    orders_lib.check_memory(module, earlier, after_bytes - 1)
  # The memory of XLA's own order is always allowed.
  orders_lib.check_memory(module, module, 0)


# Shared buffers, one way at a time. `gather` reads x; `write` writes to the
# buffer of x, after all reads.
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
def test_a_collective_must_end_before_its_operand_is_overwritten(how):
  module = _OVERWRITTEN[how]
  order = _order_of(module)
  at = order.index("write")
  before = [n for n in order[:at] if n != "done"][-1]
  _with_order(module, _moved(order, "done", after=before))
  with pytest.raises(
    errors.ScheduleError,
    match=r"^done must stay before write: they share a buffer, which"
    r" write overwrites\.$",
  ):
    _with_order(module, _moved(order, "done", after="write"))


def test_an_in_place_collective_must_start_after_the_last_reader():
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


def test_a_control_dependence_constrains_a_collectives_place():
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


def test_control_predecessors_are_edges_of_the_dependence_graph():
  entry = hlo_text.load("""
    x = f32[8] parameter(0)
    first = f32[8] negate(x)
    second = f32[8] exponential(x)
    third = f32[8] sine(x), control-predecessors={first}
    ROOT both = f32[8] add(second, second), control-predecessors={third}
  """).entry
  graph = dependencies.of(entry)
  at = {i.name: i.id for i in entry.instructions}
  assert graph.operands[at["both"]] == (at["second"],)
  assert graph.predecessors[at["both"]] == (at["second"], at["third"])
  assert graph.successors[at["first"]] == (at["third"],)
  assert graph.users[at["first"]] == ()


def test_xlas_schedules_are_legal_and_pair_each_start_with_its_done(
  train_step_module,
):
  dones: dict[int, int] = {}
  for computation_id in train_step_module.executions:
    graph = dependencies.of(train_step_module.computations[computation_id])
    assert graph.first_violation(list(graph.operands)) is None
    before, after = graph.predecessors.items(), graph.successors.items()
    assert {(a, b) for b, many in before for a in many} == {
      (a, b) for a, many in after for b in many
    }
    dones |= graph.done_of
  found = collectives.find(train_step_module)
  assert found
  assert {c.start_id: c.done_id for c in found}.items() <= dones.items()


@hypothesis.settings(max_examples=60)
@hypothesis.given(data=st.data())
def test_an_instruction_depends_on_another_if_reachable_from_it(
  fsdp_unrolled, data
):
  graph = dependencies.of(fsdp_unrolled.entry)
  ids = st.sampled_from(list(graph.operands))
  one, other = data.draw(ids), data.draw(ids)

  reached, ahead = set(), [other]
  while ahead:
    after = set(graph.successors[ahead.pop()]) - reached
    reached |= after
    ahead += after
  assert graph.depends(one, other) == (one in reached)


def test_long_dependence_chains_do_not_overflow_the_stack():
  length = 100_000
  proto = hlo.hlo_pb2.HloComputationProto(id=1, name="chain", root_id=length)
  for id_ in range(1, length + 1):
    before = [id_ - 1] if id_ > 1 else []
    proto.instructions.add(id=id_, opcode="negate", operand_ids=before)
  graph = dependencies.of(hlo.Computation(proto, tuple(proto.instructions)))

  assert graph.depends(length, 1)


_WIDTH = 1024
_STARTS = """begin = ((f32[100]), f32[100]) async-start(large), calls={calls}
  sums = f32[100] async-done(begin)"""


def _forward(w: jax.Array, x: jax.Array) -> jax.Array:
  return jnp.tanh(jnp.tanh(x @ w) @ w) @ w


def _momentum(state: Any, x: jax.Array) -> Any:
  w, m, v = state
  g = jax.grad(lambda w: jnp.mean(_forward(w, x) ** 2))(w)
  m, v = 0.9 * m + 0.1 * g, 0.99 * v + 0.01 * g * g
  return w - 0.1 * m / (jnp.sqrt(v) + 1e-8), m, v


def _estimated(module: hlo.Module) -> int:
  return memory.peak_bytes(module, aliasing.of(module))


@pytest.mark.parametrize(
  ("step", "num_states", "rows", "donated"),
  [
    (_forward, 1, 65536, ()),
    (_momentum, 3, 4096, 0),
  ],
)
def test_a_steps_estimated_memory_equals_xlas(
  h100s, step, num_states, rows, donated
):
  mesh = Mesh(np.array(h100s), ("x",))

  def array(rows: int, *axes: str) -> jax.ShapeDtypeStruct:
    sharding = NamedSharding(mesh, P(*axes))
    return jax.ShapeDtypeStruct((rows, _WIDTH), jnp.float32, sharding=sharding)

  states = (array(_WIDTH),) * num_states
  lowered = jax.jit(step, donate_argnums=donated).lower(
    states if num_states > 1 else states[0], array(rows, "x")
  )
  cluster = cluster_lib.parse("1x8xh100")
  compiled = compiler.compile(lowered_lib.LoweredStep(lowered, cluster))
  assert _estimated(compiled.module) == pytest.approx(
    compiled.peak_bytes, rel=0.01
  )


@pytest.mark.parametrize(
  ("result", "expected"),
  [
    ("f32[100] broadcast(c), dimensions={}", (8 + 8 + 100) + 8),
    # `r` and `d` are too small to hold `large`.
    ("f32[99] broadcast(c), dimensions={}", (8 + 8 + 99) + 100 + 8),
    # `r` is written while `large` is read, so only `c` can share its buffer.
    ("f32[100] negate(large)", (8 + 8 + 100) + 100),
  ],
)
def test_a_result_buffer_is_shared_with_earlier_values_that_fit(
  result, expected
):
  module = hlo_text.load(
    f"""
  a = f32[8] parameter(0)
  large = f32[100] broadcast(a), dimensions={{}}
  c = f32[8] slice(large), slice={{[0:8]}}
  d = f32[8] negate(c)
  r = {result}
  ROOT t = ({result.split()[0]}, f32[8]) tuple(r, d)""",
    header="is_scheduled=true",
  )
  assert _estimated(module) == 4 * expected


@pytest.mark.parametrize(
  ("sums", "expected"),
  [
    ("sums = f32[100] all-reduce(large), to_apply=add", 100),
    ("sums = f32[100] fusion(large), kind=kCustom, calls=kernel", 100 + 100),
    (_STARTS.format(calls="plain"), 100),
    (_STARTS.format(calls="wrapped"), 100 + 100),
  ],
)
def test_a_fused_collective_writes_to_a_separate_buffer(sums, expected):
  module = hlo_text.load(
    f"""
  a = f32[8] parameter(0)
  large = f32[100] broadcast(a), dimensions={{}}
  {sums}
  r = f32[8] slice(sums), slice={{[0:8]}}
  ROOT t = (f32[8]) tuple(r)""",
    computations="".join(
      f"{name} {{\n p = f32[100] parameter(0)\n ROOT s = f32[100] {root} }}\n"
      for name, root in (
        ("kernel", "all-reduce(p), to_apply=add"),
        ("plain", "all-reduce(p), to_apply=add"),
        ("wrapped", "fusion(p), kind=kCustom, calls=kernel"),
      )
    ),
    header="is_scheduled=true",
  )
  assert _estimated(module) == 4 * (8 + 8 + expected)


def test_each_argument_that_one_kernel_updates_counts_as_memory():
  module = hlo_text.load(
    """
  a = f32[4,100] parameter(0)
  b = f32[4,100] parameter(1)
  new = f32[1,100] parameter(2)
  both = (f32[4,100], f32[4,100]) fusion(a, b, new), kind=kLoop, calls=update
  a.1 = f32[4,100] get-tuple-element(both), index=0
  b.1 = f32[4,100] get-tuple-element(both), index=1
  ROOT t = (f32[4,100], f32[4,100]) tuple(a.1, b.1)""",
    computations="""
update {
  p = f32[4,100] parameter(0)
  q = f32[4,100] parameter(1)
  r = f32[1,100] parameter(2)
  zero = s32[] constant(0)
  p.1 = f32[4,100] dynamic-update-slice(p, r, zero, zero)
  q.1 = f32[4,100] dynamic-update-slice(q, r, zero, zero)
  ROOT u = (f32[4,100], f32[4,100]) tuple(p.1, q.1)
}""",
    header="is_scheduled=true,"
    " input_output_alias={ {0}: (0, {}), {1}: (1, {}) }",
  )
  assert _estimated(module) == 4 * (400 + 400 + 100)


def _running_instruction(module: hlo.Module, opcode: str) -> hlo.Instruction:
  """The first one with this end of its opcode, outside of kernels."""
  return next(
    instruction
    for computation_id in module.executions
    for instruction in module.computations[computation_id].instructions
    if instruction.opcode.endswith(opcode)
  )


def _with_neighbors_swapped(module: hlo.Module, *are_async: bool) -> hlo.Module:
  """A module in which the first two such neighbors are swapped."""
  other = module.copy()
  for computation_id in module.executions:
    ids = other.proto.schedule.sequences[computation_id].instruction_ids
    by_id = module.computations[computation_id].by_id
    for n in range(len(ids) - 1):
      pair = [by_id[i].opcode for i in ids[n : n + 2]]
      starts = [o.endswith(("-start", "-done")) for o in pair]
      is_fusion = [o == "fusion" for o in pair]
      if starts == list(are_async) and all(map(max, starts, is_fusion)):
        ids[n], ids[n + 1] = ids[n + 1], ids[n]
        return other
  raise AssertionError("There are no such neighbors.")


def test_names_ids_and_source_lines_do_not_change_the_digest(train_step_module):
  other = train_step_module.copy().proto
  for computation in other.computations:
    computation.name = f"renamed_{computation.name}"
    for instruction in computation.instructions:
      instruction.name = f"renamed_{instruction.name}"
      instruction.metadata.op_name = "elsewhere"
      instruction.channel_id += bool(instruction.channel_id)
  other.id += 1
  assert digest.of(other) == digest.of(train_step_module.proto)


def test_reordering_changes_the_digest_only_if_overlaps_change(
  train_step_module,
):
  kernels = _with_neighbors_swapped(train_step_module, False, False)
  assert kernels.proto != train_step_module.proto
  assert digest.of(kernels.proto) == digest.of(train_step_module.proto)
  beside = _with_neighbors_swapped(train_step_module, True, False).proto
  assert digest.of(beside) != digest.of(train_step_module.proto)
  # The digest of the content ignores the order.
  assert digest.of_content(beside) == digest.of_content(train_step_module.proto)


@pytest.mark.parametrize("opcode", ["-start", "fusion"])
def test_a_backend_config_changes_the_digest(train_step_module, opcode):
  other = train_step_module.copy()
  changed = _running_instruction(other, opcode)
  changed.backend_config = b'{"operation_queue_id": "7"}'
  assert digest.of(other.proto) != digest.of(train_step_module.proto)
  assert digest.of_content(other.proto) != digest.of_content(
    train_step_module.proto
  )


def test_a_change_inside_a_kernel_changes_the_digest(train_step_module):
  other = train_step_module.copy()
  inside = other.computations.keys() - other.executions.keys()
  other.computations[inside.pop()].root.opcode = "something-else"
  assert digest.of(other.proto) != digest.of(train_step_module.proto)


def test_an_option_that_changes_combining_changes_the_digest(
  scheduled, fsdp_step
):
  step = fsdp_step()
  default = digest.of(scheduled(step).proto)
  assert digest.of(scheduled(step).proto) == default
  apart = scheduled(step, xla_gpu_all_gather_combine_threshold_bytes=0)
  assert digest.of(apart.proto) != default
