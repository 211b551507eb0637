# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Ways of running a step on CPUs: replayed, fitted, proposed and compiled."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
import dataclasses
import functools
import json
import logging
import pathlib
import threading
from typing import Any

import hypothesis
from hypothesis import given
from hypothesis import strategies as st
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from benchmarks.live import cases
from benchmarks.live.cpu import behind_products
from benchmarks.live.cpu import compiling
from benchmarks.live.cpu import fit
from benchmarks.live.cpu import proposer as proposer_lib
from benchmarks.live.cpu import replay
from benchmarks.live.cpu import way as way_lib
from benchmarks.live.cpu.proposer import CpuProposer
import hlo_text
from lagom_xla import errors
from lagom_xla.live import proposals as proposals_lib
from lagom_xla.passes import collectives
from lagom_xla.passes import hlo
from lagom_xla.passes import registry
import quick

_STATS = ("hlo_op", "hlo_module", "run_id", "device_ordinal", "_p", "_c")
_BETWEEN_PS = 10**9


@dataclasses.dataclass(frozen=True, kw_only=True)
class Did:
  """What an instruction did, and how long that took."""

  kind: replay.Kind
  seconds: float


def write_trace(
  folder: pathlib.Path,
  module: hlo.Module,
  executions: Sequence[Mapping[str, Did]],
) -> None:
  """Writes a trace of a module's entry.

  Args:
    folder: that it goes to.
    module: scheduled.
    executions: of each, what instructions did and took, by name.
  """
  names = [i.name for i in module.entry.instructions]
  names += [f"end: {name}" for name in names]
  numbers = {name: number for number, name in enumerate(names, start=1)}
  parts = ['planes { name: "/host:CPU"']
  for kind, all_ in (("stat", _STATS), ("event", names)):
    parts += [
      f'{kind}_metadata {{ key: {i} value {{ id: {i} name: "{name}" }} }}'
      for i, name in enumerate(all_, start=1)
    ]
  parts.append('lines { id: 1 name: "tf_XLAEigen/1"')
  begin_ps = 0
  for run_id, execution in enumerate(executions, start=1):
    for instruction in module.entry.instructions:
      if instruction.name in execution:
        did = execution[instruction.name]
        end_ps = begin_ps + round(did.seconds * 1e12)
        parts += _events(
          numbers, instruction.name, module.name, run_id, begin_ps, end_ps, did
        )
        begin_ps = end_ps
    begin_ps += _BETWEEN_PS
  xspace = jax.profiler.ProfileData.text_proto_to_serialized_xspace(
    "\n".join([*parts, "} }"])
  )
  folder.mkdir(parents=True, exist_ok=True)
  (folder / "host.xplane.pb").write_bytes(xspace)


def _events(
  numbers: Mapping[str, int],
  name: str,
  module: str,
  run_id: int,
  begin_ps: int,
  end_ps: int,
  did: Did,
) -> Iterator[str]:
  """An instruction's event, and the end of what it left to others."""
  link = 1000 * run_id + numbers[name]
  stats = (
    f'stats {{ metadata_id: 1 str_value: "{name}" }}'
    f' stats {{ metadata_id: 2 str_value: "{module}" }}'
    f" stats {{ metadata_id: 3 uint64_value: {run_id} }}"
    " stats { metadata_id: 4 uint64_value: 0 }"
    f" stats {{ metadata_id: 5 uint64_value: {link} }}"
  )
  held_ps = 0 if did.kind == "product" else end_ps - begin_ps
  yield _event(numbers[name], begin_ps, held_ps, stats)
  if did.kind == "product":
    over = f"stats {{ metadata_id: 6 uint64_value: {link} }}"
    yield _event(numbers[f"end: {name}"], end_ps, 0, over)


def _event(number: int, begin_ps: int, held_ps: int, stats: str) -> str:
  return (
    f"events {{ metadata_id: {number} offset_ps: {begin_ps}"
    f" duration_ps: {held_ps} {stats} }}"
  )


NUM_LAYERS, WIDTH = 6, 32
# A kernel and a bias of each layer, and the loss, in float32.
GRADIENT_BYTES = NUM_LAYERS * 4 * (WIDTH * WIDTH + WIDTH) + 4
NUM_ARRAYS = 2 * NUM_LAYERS + 1
ORDERED = way_lib.Way(is_ordered=True)


@functools.cache
def many_gradients() -> cases.Training:
  return cases.perceptrons(
    jax.devices(), num_layers=NUM_LAYERS, width=WIDTH, num_rows=16
  )


@functools.cache
def chain() -> cases.Training:
  return cases.products(jax.devices()[:2], width=512, num_products=3)


def lowered(made: cases.Training) -> jax.stages.Lowered:
  return made.step.lower(made.state, made.batches[0])


def bits(made: cases.Training, step: Any) -> list[bytes]:
  state = jax.tree.map(lambda leaf: leaf.copy(), made.state)
  outputs = step(state, made.batches[0])
  return [np.asarray(leaf).tobytes() for leaf in jax.tree.leaves(outputs)]


def sent(module: hlo.Module) -> list[int]:
  """Bytes of each array of a module's collectives, in their order."""
  return [b for one in collectives.find(module) for b in one.array_bytes]


def costs(**seconds: float) -> replay.Costs:
  nothing = dict.fromkeys(replay.Costs.__dataclass_fields__, 0.0)
  return replay.Costs(**{**nothing, **seconds})


def works(module: hlo.Module, each: replay.Costs) -> dict[str, Did]:
  """What the instructions of a module's entry do, and take, by name."""
  found = {}
  for id_, amount in replay.amounts(module).items():
    if id_ in module.entry.by_id and (seconds := each.seconds(amount)):
      did = Did(kind=amount.kind, seconds=seconds)
      found[module.entry.by_id[id_].name] = did
  return found


def proposed(
  step: jax.stages.Lowered,
  step_s: float = 1.0,
  folder: pathlib.Path | None = None,
  proposer: CpuProposer | None = None,
  search_s: float | None = None,
) -> list[proposals_lib.Proposal]:
  measured = proposals_lib.Measured(
    trace_dir=folder,
    step_s=step_s,
    num_traced=0 if folder is None else 1,
    search_s=search_s,
  )
  proposer = proposer or CpuProposer()
  return list(proposer.proposals(step, measured, threading.Event()))


@functools.cache
def scheduled_chain(way: way_lib.Way) -> hlo.Module:
  return compiling.schedule(lowered(chain()), way)


WAYS = st.builds(
  way_lib.Way,
  group_bytes=st.none() | st.integers(0, 2**63 - 1),
  is_ordered=st.booleans(),
  strands=st.sampled_from(["none", "paired", "rotated"]),
  num_pieces=st.integers(1, 2**31 - 1),
)


@given(WAYS)
def test_a_payload_says_all_of_a_way(way: way_lib.Way):
  assert way_lib.from_bytes(way_lib.to_bytes(way)) == way


@hypothesis.settings(max_examples=20)
@given(WAYS, st.text(min_size=1))
def test_a_payload_with_an_unknown_key_is_refused(way: way_lib.Way, key: str):
  payload = json.loads(way_lib.to_bytes(way))
  if key in payload:
    del payload[key]
  else:
    payload[key] = 1
  with pytest.raises(errors.PlanError, match="cannot be read"):
    way_lib.from_bytes(json.dumps(payload).encode())


@pytest.mark.parametrize("payload", [b"", b"{", b"[]", b"\xff", b'{"a": 1}'])
def test_what_is_no_payload_is_refused(payload: bytes):
  with pytest.raises(errors.PlanError, match="one version of lagom_xla"):
    way_lib.from_bytes(payload)


@pytest.mark.parametrize(
  "group_bytes", [0, GRADIENT_BYTES // 3, GRADIENT_BYTES]
)
def test_groups_change_no_bit(group_bytes: int):
  made = many_gradients()
  way = way_lib.Way(group_bytes=group_bytes)
  compiled = CpuProposer().compile(lowered(made), way_lib.to_bytes(way))
  arrays = sent(hlo.load(compiled))
  assert sum(arrays) == GRADIENT_BYTES
  assert bits(made, compiled) == bits(made, lowered(made).compile())
  if group_bytes:
    assert max(arrays) <= group_bytes
    assert len(arrays) == 1 or group_bytes < GRADIENT_BYTES
    assert len(arrays) < NUM_LAYERS
  else:
    assert len(arrays) == NUM_ARRAYS


def test_a_collective_behind_a_product_changes_no_bit():
  made = chain()
  compiled = CpuProposer().compile(lowered(made), way_lib.to_bytes(ORDERED))
  assert bits(made, compiled) == bits(made, lowered(made).compile())


def test_a_step_of_small_products_has_nothing_to_put_collectives_behind():
  module = compiling.schedule(lowered(many_gradients()), way_lib.AS_XLA_DOES)
  assert behind_products.rewrite(module) is None


def test_equal_payloads_have_equal_digests_and_other_groups_another():
  proposer, step = CpuProposer(), lowered(many_gradients())
  few = way_lib.to_bytes(way_lib.Way(group_bytes=GRADIENT_BYTES))
  digests = [
    proposer.digest(proposer.compile(step, payload))
    for payload in (few, few, way_lib.to_bytes(way_lib.Way(group_bytes=0)))
  ]
  assert digests[0] == digests[1] != digests[2]


def test_donated_inputs_stay_donated_or_the_way_is_refused():
  made = many_gradients()
  jitted: Any = made.step
  step = jax.jit(jitted.__wrapped__, donate_argnums=0).lower(
    made.state, made.batches[0]
  )
  way = way_lib.to_bytes(way_lib.Way(group_bytes=0))
  if not registry.keeps_donation():
    with pytest.raises(errors.DonationLostError, match="forgets"):
      CpuProposer().compile(step, way)
    with pytest.raises(errors.DonationLostError, match="forgets"):
      proposed(step)
    return
  state = jax.tree.map(lambda leaf: leaf.copy(), made.state)
  jax.block_until_ready(
    CpuProposer().compile(step, way)(state, made.batches[0])
  )
  assert all(leaf.is_deleted() for leaf in jax.tree.leaves(state))


def test_a_form_that_a_step_cannot_have_is_refused():
  for way in (way_lib.Way(strands="paired"), way_lib.Way(num_pieces=2)):
    with pytest.raises(errors.ProgramError, match="leave the program"):
      compiling.compiled(lowered(chain()), way)


def test_the_user_s_own_compiles_are_left_alone():
  """Of a module with the same name as the one that is rewritten."""
  made = many_gradients()
  step = lowered(made)
  before = sent(hlo.load(step.compile()))
  CpuProposer().compile(step, way_lib.to_bytes(way_lib.Way(group_bytes=0)))
  assert sent(hlo.load(lowered(made).compile())) == before


_NUM = 8
_BODY = "p0 = f32[8] parameter(0)\n" + "\n".join(
  f"{'ROOT ' * (i == _NUM - 1)}p{i} = f32[8] negate(p{i - 1})"
  for i in range(1, _NUM)
)


@given(st.data())
def test_each_runs_once_after_what_it_waits_for(data: st.DataObject):
  entry = hlo_text.load(_BODY).entry
  ids = [i.id for i in entry.instructions]
  waits_for = {
    id_: data.draw(st.frozensets(st.sampled_from(ids[:n]))) if n else set()
    for n, id_ in enumerate(ids)
  }
  last = data.draw(st.frozensets(st.sampled_from(ids)))
  queue = behind_products.Queue(entry, waits_for, last)
  ran: list[int] = []
  while ready := [i.id for i in queue.ready]:
    left = [i for i in ids if i not in ran and waits_for[i] <= set(ran)]
    assert ready == ([i for i in left if i not in last] or left)
    taken = data.draw(st.sampled_from(ready))
    queue.take(taken)
    ran.append(taken)
  assert sorted(ran) == sorted(ids)


SECONDS = st.floats(1e-12, 1e-6)
COSTS = st.builds(
  replay.Costs,
  multiplication_s=SECONDS,
  byte_s=SECONDS,
  launch_s=SECONDS,
  array_s=SECONDS,
  network_byte_s=SECONDS,
)


def test_a_collective_behind_a_product_takes_as_long_as_the_longer_of_both():
  before, after = (
    compiling.schedule(lowered(chain()), way)
    for way in (way_lib.AS_XLA_DOES, ORDERED)
  )
  # Three products of 512^3, and one array, of 512^2 numbers.
  for product_s, array_s in ((1.0, 2.0), (1.0, 4.0)):
    each = costs(multiplication_s=product_s / 512**3, array_s=array_s)
    together_s, longer_s = 3 * product_s + array_s, max(3 * product_s, array_s)
    assert replay.step_s(before, each) == pytest.approx(together_s)
    assert replay.step_s(after, each) == pytest.approx(longer_s)


@given(COSTS, st.sampled_from([way_lib.AS_XLA_DOES, ORDERED]))
def test_a_step_takes_at_least_its_products_and_at_most_all_that_it_does(
  each: replay.Costs, way: way_lib.Way
):
  module = scheduled_chain(way)
  did = works(module, each).values()
  on_network = sum(it.seconds for it in did if it.kind == "collective")
  computing = sum(it.seconds for it in did if it.kind != "collective")
  step_s = replay.step_s(module, each)
  assert step_s >= max(on_network, computing) * (1 - 1e-6)
  assert step_s <= (on_network + computing) * (1 + 1e-6)


@given(st.lists(COSTS, max_size=3), COSTS)
def test_a_module_that_was_looked_at_once_is_replayed_at_any_costs(
  others: list[replay.Costs], each: replay.Costs
):
  module = scheduled_chain(ORDERED)
  replayed = replay.Replay(module)
  for other in others:
    replayed.step_s(other)
  assert replayed.step_s(each) == replay.step_s(module, each)


def test_many_small_gradients_are_proposed_as_few_large_ones():
  step = lowered(many_gradients())
  found = proposed(step)
  assert 1 <= len(found) <= 6
  # With no trace there is nothing to predict by.
  assert {proposal.predicted_ratio for proposal in found} == {None}
  best = CpuProposer().compile(step, found[0].payload)
  assert len(sent(hlo.load(best))) < NUM_ARRAYS


def test_proposals_are_the_best_first_and_all_better_than_the_step(
  tmp_path: pathlib.Path,
):
  # Products that are worth hiding the collective behind.
  as_it_is = scheduled_chain(way_lib.AS_XLA_DOES)
  costly = costs(multiplication_s=0.1 / 512**3, array_s=0.2)
  write_trace(tmp_path, as_it_is, [works(as_it_is, costly)])
  found = proposed(lowered(chain()), folder=tmp_path)
  ratios = [proposal.predicted_ratio or 0.0 for proposal in found]
  assert ratios == sorted(ratios)
  assert 0 < ratios[0] <= ratios[-1] < 1
  assert found[0].name == "collectives behind products"


def test_what_should_take_as_long_as_the_step_is_not_proposed(
  tmp_path: pathlib.Path,
):
  # Products that take a ten-thousandth of the collective.
  as_it_is = scheduled_chain(way_lib.AS_XLA_DOES)
  cheap = costs(multiplication_s=1e-5 / 512**3, array_s=0.1)
  write_trace(tmp_path, as_it_is, [works(as_it_is, cheap)])
  assert proposed(lowered(chain()), folder=tmp_path) == []


def test_a_trace_of_another_step_is_told_and_not_predicted_by(
  tmp_path: pathlib.Path,
):
  with jax.profiler.trace(tmp_path):
    jax.block_until_ready(jax.jit(jnp.sin)(1.0))
  module = scheduled_chain(way_lib.AS_XLA_DOES)
  with pytest.raises(errors.TraceError, match="another step than jit_"):
    fit.usual(tmp_path, module)
  empty = tmp_path / "empty"
  empty.mkdir()
  with pytest.raises(errors.TraceError, match="no XSpace"):
    fit.usual(empty, module)
  found = proposed(lowered(chain()), folder=tmp_path)
  assert {proposal.predicted_ratio for proposal in found} == {None}


def test_the_groups_that_most_probably_gain_are_looked_at_first():
  step = lowered(many_gradients())
  ways = proposer_lib.likely_first(step, lambda: 7)
  one_group, one_by_one, *others = [way.group_bytes for way in ways]
  assert (one_group, one_by_one) == (GRADIENT_BYTES, 0)
  # The best groups in four forms, then these forms with XLA's own.
  assert others[-8:] == [7, 7, 7, 7, None, None, None, None]


def test_a_search_with_no_time_proposes_only_what_one_schedule_shows(
  caplog: pytest.LogCaptureFixture,
):
  proposer = CpuProposer()
  caplog.set_level(logging.INFO)
  assert (
    proposed(lowered(many_gradients()), proposer=proposer, search_s=0) == []
  )
  assert not proposer.has_looked_at_all
  assert "looked at 0 of" in caplog.text
  found = proposed(lowered(chain()), proposer=proposer, search_s=0)
  assert [one.name for one in found] == ["collectives behind products"]


def test_a_search_with_time_for_all_is_as_one_without_a_bound():
  proposer, step = CpuProposer(), lowered(many_gradients())
  bound = proposed(step, proposer=proposer, search_s=3600.0)
  assert proposer.has_looked_at_all
  assert bound == proposed(step)


def test_a_search_that_was_cut_short_says_so_when_it_ends():
  measured = proposals_lib.Measured(
    trace_dir=None, step_s=1.0, num_traced=0, search_s=0.0
  )
  step = lowered(many_gradients())
  with pytest.raises(StopIteration, match="might have cost too much"):
    next(CpuProposer().proposals(step, measured, threading.Event()))


def test_a_step_without_collectives_has_nothing_to_tune():
  step = jax.jit(lambda x: x @ x).lower(np.ones((512, 512), np.float32))
  assert proposed(step) == []


def test_nothing_follows_once_nobody_waits():
  stop = threading.Event()
  stop.set()
  measured = proposals_lib.Measured(trace_dir=None, step_s=1.0, num_traced=0)
  step = lowered(many_gradients())
  assert not list(CpuProposer().proposals(step, measured, stop))


def test_the_fitted_costs_replay_the_step_in_the_time_that_it_took():
  module = scheduled_chain(way_lib.AS_XLA_DOES)
  (one,) = collectives.find(module)
  ran = fit.Execution(step_s=0.1, held_s={one.name: 0.02})
  fitted = fit.costs(module, ran)
  assert replay.step_s(module, fitted) == pytest.approx(0.1)
  # What the trace has not is what products take.
  assert fitted.multiplication_s == pytest.approx(0.08 / (3 * 512**3), rel=1e-3)
  assert replay.step_s(scheduled_chain(ORDERED), fitted) == pytest.approx(0.08)


def traced(module: hlo.Module, true: replay.Costs) -> replay.Costs:
  """What is fitted to a trace of a host with these costs."""
  held_s = {name: did.seconds for name, did in works(module, true).items()}
  step_s = sum(held_s.values())
  return fit.costs(module, fit.Execution(step_s=step_s, held_s=held_s))


def test_latency_and_rate_are_told_apart_by_collectives_of_several_sizes():
  step = lowered(many_gradients())
  module = compiling.schedule(step, way_lib.Way(group_bytes=0))
  true = costs(array_s=3e-4, network_byte_s=2e-8)
  fitted = traced(module, true)
  assert fitted.array_s == pytest.approx(true.array_s, rel=1e-3)
  assert fitted.network_byte_s == pytest.approx(true.network_byte_s, rel=1e-3)


@functools.cache
def all_gradients(group_bytes: int | None) -> hlo.Module:
  way = way_lib.Way(group_bytes=group_bytes)
  return compiling.schedule(lowered(many_gradients()), way)


@pytest.mark.parametrize("array_s", [2e-4, 6e-4, 2e-3])
@pytest.mark.parametrize("mbit_per_s", [100, 1000, 8000])
def test_what_one_collective_saves_is_foreseen_from_a_trace_of_one_tuple(
  array_s: float, mbit_per_s: int
):
  true = costs(array_s=array_s, network_byte_s=8 / (mbit_per_s * 1e6))
  as_it_is, together = all_gradients(None), all_gradients(GRADIENT_BYTES)
  (one,) = collectives.find(as_it_is)
  assert one.num_operands == NUM_ARRAYS
  fitted = traced(as_it_is, true)
  assert replay.step_s(as_it_is, fitted) == pytest.approx(
    replay.step_s(as_it_is, true)
  )
  ratio = replay.step_s(together, fitted) / replay.step_s(together, true)
  assert 1 / 3 < ratio < 3


@pytest.mark.parametrize("waited_s", [(0.1, 0.6, 0.9), (0.9, 0.1, 0.6)])
def test_parts_and_step_are_those_of_one_execution(
  tmp_path: pathlib.Path, waited_s: tuple[float, ...]
):
  """Products cost the same whatever the collective took in each."""
  module, product_s = scheduled_chain(way_lib.AS_XLA_DOES), 0.02
  write_trace(
    tmp_path,
    module,
    [
      works(module, costs(multiplication_s=product_s / 512**3, array_s=array_s))
      for array_s in waited_s
    ],
  )
  ran = fit.usual(tmp_path, module)
  (one,) = collectives.find(module)
  assert ran.held_s[one.name] == pytest.approx(0.6)
  assert ran.step_s == pytest.approx(0.6 + 3 * product_s)
  fitted = fit.costs(module, ran)
  assert fitted.multiplication_s == pytest.approx(product_s / 512**3, rel=1e-3)


def test_what_jax_traces_has_the_collective_as_a_part_of_the_step(
  tmp_path: pathlib.Path,
):
  made = many_gradients()
  step = lowered(made)
  compiled = step.compile({**quick.as_users_compile()})
  with jax.profiler.trace(tmp_path):
    for _ in range(3):
      bits(made, compiled)
  module = hlo.load(compiled)
  ran = fit.usual(tmp_path, module)
  (one,) = collectives.find(module)
  assert 0 < ran.held_s[one.name] < ran.step_s


@given(
  num_arrays=st.integers(1, 10**4),
  num_bytes=st.integers(1, 10**10),
  seconds=st.floats(1e-6, 1e4),
)
def test_a_latency_and_a_rate_that_there_are_explain_all_of_a_collective(
  num_arrays: int, num_bytes: int, seconds: float
):
  array_s, byte_s = fit.split(num_arrays, num_bytes, seconds)
  assert num_arrays * array_s + num_bytes * byte_s == pytest.approx(seconds)
  least_s, most_s = (
    num_arrays * each + num_bytes * byte
    for each, byte in (
      (fit.LEAST_ARRAY_S, fit.LEAST_BYTE_S),
      (fit.MOST_ARRAY_S, fit.MOST_BYTE_S),
    )
  )
  # Quicker than any host that is known: both are so, alike.
  below = min(seconds / least_s, 1) * (1 - 1e-6)
  assert fit.LEAST_ARRAY_S * below <= array_s
  assert fit.LEAST_BYTE_S * below <= byte_s
  # Slower: no link is, but what waits for a core is.
  assert byte_s <= fit.MOST_BYTE_S * (1 + 1e-6)
  beyond_s = max(seconds - most_s, 0) / num_arrays
  assert array_s <= (fit.MOST_ARRAY_S + beyond_s) * (1 + 1e-6)


class _Clock:
  now_s = 100.0

  def __call__(self) -> float:
    return self.now_s


def _look(budget: proposer_lib.Budget, clock: _Clock, kind: str, took_s: float):
  with budget.looking(kind):
    clock.now_s += took_s


def test_the_next_look_is_taken_to_be_the_dearest_of_its_kind():
  clock = _Clock()
  budget = proposer_lib.Budget(10.0, clock)
  for took_s in (2.0, 1.0):
    _look(budget, clock, "groups", took_s)
  _look(budget, clock, "strands", 4.5)
  # 2.5 s are left.
  assert budget.has_time("groups")
  assert not budget.has_time("strands")
  assert not budget.has_time("slices"), "as dear as the dearest of all"


def test_what_was_done_between_looks_counts():
  clock = _Clock()
  budget = proposer_lib.Budget(10.0, clock)
  _look(budget, clock, "groups", 2.0)
  clock.now_s += 6.5
  assert not budget.has_time("groups")


@given(
  st.floats(0, 20),
  st.lists(st.tuples(st.sampled_from("ab"), st.floats(0.1, 3)), min_size=1),
)
def test_a_budget_is_passed_by_less_than_what_the_last_look_took(
  most_s: float, looks: list[tuple[str, float]]
):
  clock = _Clock()
  budget = proposer_lib.Budget(most_s, clock)
  last_s = 0.0
  for kind, took_s in looks:
    if not budget.has_time(kind):
      break
    _look(budget, clock, kind, took_s)
    last_s = took_s
  assert clock.now_s - _Clock.now_s <= most_s + last_s + 1e-9


def test_without_a_bound_there_is_always_time():
  clock = _Clock()
  budget = proposer_lib.Budget(None, clock)
  _look(budget, clock, "groups", 1e9)
  assert budget.has_time("groups")
