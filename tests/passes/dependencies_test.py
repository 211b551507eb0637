# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""The dependence graph, against real schedules and by its own laws."""

from __future__ import annotations

from hypothesis import given
from hypothesis import settings
from hypothesis import strategies as st

import hlo_text
from lagom_xla.passes import collectives
from lagom_xla.passes import dependencies
from lagom_xla.passes import hlo

_CONTROLLED = hlo_text.load("""
  x = f32[8] parameter(0)
  first = f32[8] negate(x)
  second = f32[8] exponential(x)
  third = f32[8] sine(x), control-predecessors={first}
  ROOT both = f32[8] add(second, second), control-predecessors={third}
""")


def test_control_predecessors_are_edges_like_operands():
  graph = dependencies.of(_CONTROLLED.entry)
  at = {i.name: i.id for i in _CONTROLLED.entry.instructions}

  assert graph.operands[at["both"]] == (at["second"],)
  assert graph.predecessors[at["both"]] == (at["second"], at["third"])
  assert graph.successors[at["first"]] == (at["third"],)
  assert graph.users[at["first"]] == ()


def test_a_legal_order_breaks_no_edge():
  graph = dependencies.of(_CONTROLLED.entry)
  x, first, second, third, both = graph.operands

  assert graph.first_violation([x, second, first, third, both]) is None
  violation = graph.first_violation([x, third, second, first, both])
  assert violation == (third, first)


def test_xlas_schedules_are_legal_and_join_each_start_to_its_done(
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


@settings(max_examples=60)
@given(data=st.data())
def test_what_depends_on_an_instruction_is_reached_from_it(fsdp_unrolled, data):
  graph = dependencies.of(fsdp_unrolled.entry)
  ids = st.sampled_from(list(graph.operands))
  one, other = data.draw(ids), data.draw(ids)

  reached, ahead = set(), [other]
  while ahead:
    after = set(graph.successors[ahead.pop()]) - reached
    reached |= after
    ahead += after
  assert graph.depends(one, other) == (one in reached)


def test_long_chains_need_no_deep_stack():
  length = 100_000
  proto = hlo.hlo_pb2.HloComputationProto(id=1, name="chain", root_id=length)
  for id_ in range(1, length + 1):
    before = [id_ - 1] if id_ > 1 else []
    proto.instructions.add(id=id_, opcode="negate", operand_ids=before)
  graph = dependencies.of(hlo.Computation(proto, tuple(proto.instructions)))

  assert graph.depends(length, 1)
