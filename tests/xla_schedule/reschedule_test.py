# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Predicted schedules: legal, complete, and close to what XLA makes."""

from __future__ import annotations

from collections.abc import Callable
import itertools

from hypothesis import given
from hypothesis import settings
from hypothesis import strategies as st
import jax
import pytest

from lagom_xla import cluster as cluster_lib
from lagom_xla.compile import compiler
from lagom_xla.costs import step as step_lib
from lagom_xla.passes import collectives
from lagom_xla.passes import dependencies
from lagom_xla.passes import hlo
from lagom_xla.passes import kernels as kernels_lib
from lagom_xla.passes import overlap
from lagom_xla.search.xla import knobs
from lagom_xla.xla_schedule import reschedule
from lagom_xla.xla_schedule import scheduler

_MIB = 2**20
_NODE = cluster_lib.parse("1x8xh100")

_Scheduled = Callable[..., hlo.Module]
_FsdpStep = Callable[..., jax.stages.Lowered]
_Groups = list[list[str]]


@pytest.fixture(scope="module")
def loop(scheduled: _Scheduled, fsdp_step: _FsdpStep) -> hlo.Module:
  """FSDP over layers in a loop of four, forward and backward."""
  return scheduled(fsdp_step(), **{compiler.ESTIMATES: True})


@pytest.fixture(scope="module")
def unrolled(scheduled: _Scheduled, fsdp_step: _FsdpStep) -> hlo.Module:
  """The same without loops: nine all-gathers in one, and as many back."""
  return scheduled(fsdp_step(unroll=True), **{compiler.ESTIMATES: True})


@pytest.fixture(scope="module")
def apart(scheduled: _Scheduled, fsdp_step: _FsdpStep) -> hlo.Module:
  """The same with every collective alone."""
  alone = dict.fromkeys(knobs.OPTIONS.values(), 0)
  return scheduled(
    fsdp_step(unroll=True), **{compiler.ESTIMATES: True}, **alone
  )


def _predict(module: hlo.Module, groups: _Groups | None = None) -> hlo.Module:
  return reschedule.reschedule(module, groups or [], _NODE)


def _names(module: hlo.Module, kind: str) -> list[str]:
  """What starts collectives of a kind, in schedule order."""
  return [c.name for c in collectives.find(module) if c.kind == kind]


def _assert_legal(module: hlo.Module) -> None:
  for computation_id in module.executions:
    computation = module.computations[computation_id]
    order = [i.id for i in computation.instructions]
    assert dependencies.of(computation).first_violation(order) is None
  for collective in collectives.find(module):
    home = next(
      c for c in module.computations.values() if collective.start_id in c.by_id
    )
    assert collective.done_id is not None
    position = home.position
    assert position[collective.start_id] < position[collective.done_id]


def _step_us(module: hlo.Module) -> float:
  step = step_lib.of_module(module, _NODE)
  return step.timeline(step.default).step_time_us


@st.composite
def _runs(draw: st.DrawFn) -> list[int]:
  """Lengths of runs of all-gathers that are combined."""
  return draw(st.lists(st.integers(1, 4), max_size=4))


def _grouped(module: hlo.Module, lengths: list[int]) -> _Groups:
  names = iter(_names(module, "all-gather"))
  groups = [list(itertools.islice(names, length)) for length in lengths]
  return [group for group in groups if len(group) > 1]


@settings(max_examples=15)
@given(lengths=_runs())
def test_the_same_question_has_the_same_answer_whatever_was_asked_before(
  apart: hlo.Module, lengths: list[int]
):
  before = apart.proto.SerializeToString(deterministic=True)
  groups = _grouped(apart, lengths)

  one = _predict(apart, groups).proto
  fresh = hlo.Module(apart.proto, apart.num_partitions)
  other = _predict(fresh, groups).proto

  assert one.SerializeToString(deterministic=True) == other.SerializeToString(
    deterministic=True
  )
  assert apart.proto.SerializeToString(deterministic=True) == before


@pytest.mark.parametrize("name", ["loop", "unrolled", "apart"])
def test_without_a_change_the_schedule_is_xlas(
  request: pytest.FixtureRequest, name: str
) -> None:
  module = request.getfixturevalue(name)

  assert _step_us(_predict(module)) == pytest.approx(_step_us(module), rel=1e-3)


def test_a_module_without_estimates_is_scheduled_by_lone_costs(
  train_step_module: hlo.Module,
) -> None:
  predicted = _predict(train_step_module)

  _assert_legal(predicted)
  assert _step_us(predicted) == pytest.approx(
    _step_us(train_step_module), rel=0.1
  )


def test_predictions_are_close_to_what_xla_makes(
  scheduled: _Scheduled, fsdp_step: _FsdpStep, apart: hlo.Module
):
  thresholds = dict.fromkeys(knobs.OPTIONS.values(), 0)
  thresholds[knobs.OPTIONS["all-gather"]] = 3 * _MIB
  compiled = scheduled(
    fsdp_step(unroll=True), **{compiler.ESTIMATES: True}, **thresholds
  )
  sizes = [
    c.num_operands for c in collectives.find(compiled) if c.kind == "all-gather"
  ]
  assert max(sizes) > 1

  predicted = _predict(apart, _grouped(apart, sizes))

  # On full-size steps it is less.
  assert _step_us(predicted) == pytest.approx(_step_us(compiled), rel=0.03)
  assert len(collectives.find(predicted)) == len(collectives.find(compiled))


def test_what_is_not_scheduled_is_refused(loop: hlo.Module) -> None:
  proto = hlo.hlo_pb2.HloModuleProto()
  proto.CopyFrom(loop.proto)
  proto.ClearField("schedule")

  with pytest.raises(ValueError, match="jit_step has no schedule"):
    _predict(hlo.Module(proto))


def test_the_scheduler_leaves_longer_collectives_more_to_hide_behind(
  apart: hlo.Module,
) -> None:
  module = _predict(apart)
  known = scheduler.Estimates(apart, _NODE).costs(module)
  entry = scheduler.Streams(module, module.entry, num_in_flight={})
  kernels = overlap.analyze(module).kernels
  pairs = [
    (c.start_id, c.done_id)
    for c in collectives.find(module)
    if c.computation == module.entry.name and c.done_id is not None
  ]

  def num_kernels_beside(latency_us: float) -> int:
    order = scheduler.order(
      entry,
      costs=scheduler.Costs(
        cost_us=known.cost_us, latency_us=lambda start: latency_us
      ),
      limits=scheduler.limits(1),
    )
    position = {id_: at for at, id_ in enumerate(order)}
    return sum(
      id_ in kernels
      for start, done in pairs
      for id_ in order[position[start] : position[done]]
    )

  assert num_kernels_beside(1000.0) > num_kernels_beside(1.0)


def test_estimates_are_xlas_where_it_has_them(loop: hlo.Module) -> None:
  known = scheduler.Estimates(loop, _NODE)
  compared = []
  by_start = {c.start_id: c for c in collectives.find(loop)}
  for computation in loop.computations.values():
    for start in computation.instructions:
      collective = by_start.get(start.id)
      if collective is None:
        continue
      # XLA writes them into what an async-start runs.
      inside = [i for _, i in collectives.payloads(loop, start)] or [start]
      (expected,) = (
        kernels_lib.sol_time_us(loop.backend_config(i)) for i in inside
      )
      if expected is not None:
        assert known.collective_us(collective) == pytest.approx(expected)
        compared.append(collective.kind)

  # Of the layers, and of the weights behind them. From JAX 0.12 on XLA has none
  # of the loss's all-reduce, which is a kernel of its own.
  found = [kind for kind in compared if kind != "all-reduce"]
  assert sorted(found) == 2 * ["all-gather"] + 2 * ["reduce-scatter"]


@settings(max_examples=10)
@given(lengths=_runs())
def test_a_step_with_another_schedule_costs_what_its_module_does(
  apart: hlo.Module, lengths: list[int]
):
  step = step_lib.of_module(apart, _NODE)
  module = _predict(apart, _grouped(apart, lengths))
  anew = step_lib.of_module(module, _NODE)
  rescheduled = step.rescheduled(module)
  assert rescheduled.analysis.kernels == anew.analysis.kernels
  assert rescheduled.timeline(rescheduled.default) == anew.timeline(
    anew.default
  )


def test_a_group_is_combined(apart: hlo.Module):
  gathers = [c for c in collectives.find(apart) if c.kind == "all-gather"]
  chosen = gathers[1:4]

  grouped = _predict(apart, [[c.name for c in chosen]])
  found = [c for c in collectives.find(grouped) if c.kind == "all-gather"]

  (together,) = (c for c in found if c.num_operands > 1)
  assert together.num_operands == 3
  assert together.result_bytes == sum(c.result_bytes for c in chosen)
  assert len(found) == len(gathers) - 2
  _assert_legal(grouped)


def test_groups_that_cannot_be_are_refused(
  loop: hlo.Module, unrolled: hlo.Module
) -> None:
  found = collectives.find(unrolled)
  gather = next(c.name for c in found if c.kind == "all-gather")
  scatter = next(c.name for c in found if c.kind == "reduce-scatter")
  homes = {c.computation: c.name for c in collectives.find(loop)}

  with pytest.raises(ValueError, match="No collective called nobody"):
    _predict(unrolled, [["nobody"]])
  with pytest.raises(ValueError, match="differ in kind"):
    _predict(unrolled, [[gather, scatter]])
  with pytest.raises(ValueError, match="different computations"):
    _predict(loop, [list(homes.values())])
  with pytest.raises(ValueError, match="in two groups"):
    _predict(unrolled, [[gather], [gather]])


def _num_bytes(module: hlo.Module, kind: str) -> int:
  """Bytes of all collectives of a kind that run in a step."""
  return sum(
    c.executions * c.nccl_bytes
    for c in collectives.find(module)
    if c.kind == kind
  )


def _is_fused(module: hlo.Module, start: hlo.Instruction) -> bool:
  """Whether a start runs a fusion."""
  return start.opcode == "async-start" and any(
    module.computations[id_].root.opcode == "fusion"
    for id_ in start.called_computation_ids
  )


def _most_in_flight(module: hlo.Module) -> int:
  """Collectives between start and done at once, within one computation.

  Those that are kernels of XLA's own, as of JAX 0.12, are not limited.
  """
  most = 0
  for computation_id in module.executions:
    computation = module.computations[computation_id]
    inside = [
      c
      for c in collectives.find(module)
      if c.computation == computation.name
      and c.done_id is not None
      and not _is_fused(module, computation.by_id[c.start_id])
    ]
    starts = {c.start_id for c in inside}
    dones = {c.done_id for c in inside}
    changes = [
      (i.id in starts) - (i.id in dones) for i in computation.instructions
    ]
    most = max(most, *itertools.accumulate(changes))
  return most


@settings(max_examples=20)
@given(lengths=_runs())
def test_any_groups_give_a_legal_schedule_with_the_same_traffic(
  apart: hlo.Module, lengths: list[int]
):
  predicted = _predict(apart, _grouped(apart, lengths))

  _assert_legal(predicted)
  assert _most_in_flight(predicted) <= 1
  for kind in knobs.OPTIONS:
    assert _num_bytes(predicted, kind) == _num_bytes(apart, kind)
