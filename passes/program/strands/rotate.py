# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Runs micro-batches of gradient accumulation beside each other.

A loop over micro-batches, `for m in 0 .. N-1: F(m); B(m)`, is rotated to

    F(0);  for m in 0 .. N-2:  B(m); F(m + 1);  B(N-1)

(DHelix, arXiv 2411.15871), or its trips are run in pairs, which share only the
sum that both add to (Domino, arXiv 2409.15241):

    for m in 0, 2, 4 ..:  F(m) and F(m + 1);  B(m) and B(m + 1)

Their loops over layers become one. Gradients are added in the same order. The
first collective of a shared body has nothing to hide behind, so gathers run
during the layer before, if their operands are known then.

A new loop keeps the counter's carry of the old one, because XLA moves a slice
by memcpy only if the carry in the loop's condition determines its offset
(ResolveFunctionalDependencyOnInductionVariable, ir_emission_utils.cc).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
import dataclasses

from jaxlib.mlir import ir
from jaxlib.mlir.dialects import stablehlo

from lagom_xla.passes.program import counted_loops
from lagom_xla.passes.program import mlir
from lagom_xla.passes.program.counted_loops import CountedLoop
from lagom_xla.passes.program.form import Outcome
from lagom_xla.passes.program.strands import merge
from lagom_xla.passes.program.strands import stages
from lagom_xla.passes.program.strands.stages import Stages


def rotate(module: ir.Module) -> Outcome:
  """Rotates a program's loop over micro-batches, in place.

  Its trips must have two stages (`stages.py`).
  """
  return _change_loop(module, _rotate)


def pair_trips(module: ir.Module) -> Outcome:
  """Pairs the trips of a program's loop over micro-batches, in place."""
  return _change_loop(module, _pair)


class _Obstacle(Exception):  # noqa: N818
  """Why a loop is not changed, as the end of a sentence that begins with it."""


# Rewrites a loop and describes the change, as the end of such a sentence.
_Change = Callable[[CountedLoop], str]


def _change_loop(module: ir.Module, change: _Change) -> Outcome:
  """Changes the loop over micro-batches, wherever it is in a program.

  This is the outermost loop that runs more than half of the program's products,
  makes at least two trips, and can be changed.
  """
  mlir.inline_all(module)
  functions = [op.operation for op in module.body.operations]
  is_partitioned = mlir.is_partitioned(module)

  def change_in(operation: ir.Operation, half_flops: float) -> Outcome:
    outcome = Outcome()
    for inner in mlir.direct_operations(operation):
      per_trip = half_flops / max(counted_loops.num_trips(inner), 1)
      if inner.name == mlir.LOOP:
        if counted_loops.flops(inner) <= half_flops:
          continue
        where = f"the loop at {mlir.place_of(inner)}"
        try:
          loop = _read(inner, is_partitioned=is_partitioned)
          done = f"({loop.num_trips} trips) {change(loop)}"
          action = f"{where[0].upper()}{where[1:]} {done}"
          return outcome + Outcome(actions=(action,))
        except _Obstacle as obstacle:
          outcome += Outcome.refused(where, str(obstacle))
      if len(inner.regions):
        outcome += change_in(inner, per_trip)
      if outcome.actions:
        break
    return outcome

  half_flops = sum(map(counted_loops.flops, functions)) / 2
  outcome = Outcome()
  for function in functions:
    outcome += change_in(function, half_flops)
  return (
    outcome
    if outcome != Outcome()
    else Outcome.refused(
      "the program", "none of its loops runs most of its matmuls"
    )
  )


def _read(operation: ir.Operation, *, is_partitioned: bool) -> CountedLoop:
  """Reads a loop whose trips may overlap.

  Raises:
    _Obstacle: its trips may not overlap.
  """
  loop = counted_loops.read(operation)
  if isinstance(loop, str):
    raise _Obstacle(loop)
  if loop.num_trips < 2:
    raise _Obstacle("it makes fewer than two trips, so none can overlap")
  effect = mlir.first_effect(operation)
  if effect is not None:
    raise _Obstacle(f"it contains {effect}")
  inner = mlir.inner_operations(operation)
  if not is_partitioned and not any(i.name in mlir.COLLECTIVES for i in inner):
    raise _Obstacle("nothing in it communicates")
  return loop


def _rotate(loop: CountedLoop) -> str:
  cut = stages.cut(loop)
  if isinstance(cut, str):
    raise _Obstacle(cut)
  num_shared = _rotate_stages(loop, cut)
  return (
    "was rotated, so that the end of a trip runs beside the beginning of the"
    f" next, which keeps {cut.num_bytes} bytes for its own end;"
    f" {num_shared} pairs of inner loops became one."
  )


def _pair(loop: CountedLoop) -> str:
  if _needs_trip_before(loop):
    raise _Obstacle(
      "a trip's matmuls need results of the trip before, as when each"
      " micro-batch updates the parameters"
    )
  old = loop.operation
  every = range(len(loop.body.operations) - 1), range(len(old.operands))
  with old.location, ir.InsertionPoint(old):
    new, body = _create_loop(
      loop, loop.num_trips // 2, list(old.operands), every=2
    )
    with ir.InsertionPoint(body):
      first = _write_trip(loop, list(body.arguments), *every)
      second = _write_trip(loop, list(first.returned.values()), *every)
      _end_loop(body, loop, list(second.returned.values()), every=2)
    results = list(new.results)
    if loop.num_trips % 2:
      results = _write_trip(loop, results, *every).returned.values()
    for result, value in zip(old.results, results, strict=True):
      result.replace_all_uses_with(value)
  old.erase()
  shared = merge.share(
    body, first.operations.values(), second.operations.values()
  )
  gather_ahead(shared)
  return (
    f"runs two trips at a time; {len(shared)} pairs of inner loops became one."
  )


def _needs_trip_before(loop: CountedLoop) -> bool:
  """Whether a trip's products depend on those of the trip before."""
  body = stages.TripBody(loop)
  products = {
    position
    for position, operation in enumerate(body.operations)
    if counted_loops.flops(operation)
  }
  _, carries = body.with_all_needed(products)
  updates = [body.returned[number] for number in carries]
  updating = {item[0] for item in updates if item} - {mlir.ARGUMENT}
  return not products.isdisjoint(updating | body.needed_by(updating))


def gather_ahead(loops: Iterable[CountedLoop]) -> None:
  """Rotates loops that two strands share, so that they gather one trip ahead.

  Inner loops must come first.
  """
  for loop in loops:
    _split_barriers(loop)
    if loop.num_trips > 1:
      gathers = _prefetch_stages(loop)
      if gathers is not None:
        _rotate_stages(loop, gathers)


def _split_barriers(loop: CountedLoop) -> None:
  """Gives each value of a body's barriers its own barrier.

  `jax.checkpoint` uses a barrier to keep XLA from merging recomputed values
  with the originals. The barrier also makes a layer's residual wait for its
  gradient, which saves little memory within a trip and stops gathers from
  moving ahead.
  """
  for operation in [op.operation for op in loop.body.operations]:
    if operation.name == "stablehlo.optimization_barrier":
      with ir.InsertionPoint(operation), operation.location:
        for operand, result in zip(
          list(operation.operands), operation.results, strict=True
        ):
          own = stablehlo.OptimizationBarrierOp([operand]).operation
          result.replace_all_uses_with(own.results[0])
      operation.erase()


def _prefetch_stages(loop: CountedLoop) -> Stages | None:
  """The gathers of a trip that need only the counter, as the early stage.

  None if there are none, or if the trip does nothing else.
  """
  body = stages.TripBody(loop)
  ahead: set[int] = set()
  for position, operation in enumerate(body.operations):
    if not mlir.is_collective(operation):
      continue
    needed, advanced = body.with_all_needed([position])
    if advanced == {loop.counter} and not any(
      counted_loops.flops(body.operations[i]) for i in needed
    ):
      ahead |= needed
  return stages.Stages.of(body, ahead, frozenset()) if ahead else None


def _rotate_stages(loop: CountedLoop, stages: Stages) -> int:
  """Replaces a loop by its rotated form, and returns how many loops merged.

  The first trip's early stage runs before the loop, and the last trip's late
  stage after it. The new loop has the old one's carries, with those of the
  early stage one trip ahead, and the values that pass from stage to stage. Its
  counter is the late stage's. Loops that the two stages share are rotated, too,
  so that they gather one trip ahead.
  """
  old = loop.operation
  items = stages.kept
  num_carries = len(old.operands)
  num_operations = len(loop.body.operations) - 1
  is_late = set(range(num_operations)) - stages.ahead | stages.again
  is_late_carry = set(range(num_carries)) - stages.ahead_carries

  def write_early(carries: Sequence[ir.Value]) -> _Trip:
    return _write_trip(loop, carries, stages.ahead, stages.ahead_carries)

  def write_late(values: Sequence[ir.Value]) -> _Trip:
    """Writes a late stage; `values` are the carries, then the kept values."""
    kept = dict(zip(items, values[num_carries:], strict=True))
    carries = values[:num_carries]
    return _write_trip(loop, carries, is_late, is_late_carry, kept)

  with old.location, ir.InsertionPoint(old):
    before = list(old.operands)
    first = write_early(before)
    operands = [first.returned.get(i, v) for i, v in enumerate(before)]
    new, body = _create_loop(
      loop, loop.num_trips - 1, [*operands, *map(first.value, items)]
    )
    with ir.InsertionPoint(body):
      arguments: list[ir.Value] = list(body.arguments)
      late = write_late(arguments)
      carries = arguments[:num_carries]
      ahead = list(carries)
      ahead[loop.counter] = late.returned[loop.counter]
      early = write_early(ahead)
      advanced = {**late.returned, **early.returned}
      carries = [advanced.get(i, value) for i, value in enumerate(carries)]
      _end_loop(body, loop, [*carries, *map(early.value, items)])
    last = write_late(list(new.results))
    for i, result in enumerate(old.results):
      result.replace_all_uses_with(last.returned.get(i, new.results[i]))
  old.erase()
  shared = merge.share(
    body, late.operations.values(), early.operations.values()
  )
  gather_ahead(shared)
  return len(shared)


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class _Trip:
  """A copy of some operations of a trip, by the original's position.

  `carries` are the values of the trip's carries. `returned` has the next trip's
  values of the carries that it advances.
  """

  operations: Mapping[int, ir.Operation]
  carries: Sequence[ir.Value]
  returned: Mapping[int, ir.Value]

  def value(self, item: mlir.Item) -> ir.Value:
    """The value in the copy for an item of the trip."""
    position, number = item
    if position == mlir.ARGUMENT:
      return self.carries[number]
    return self.operations[position].results[number]


def _write_trip(
  loop: CountedLoop,
  carries: Sequence[ir.Value],
  positions: Iterable[int],
  advanced: Iterable[int],
  known: Mapping[mlir.Item, ir.Value] | None = None,
) -> _Trip:
  """Writes the operations at some positions of a trip, at the insertion point.

  `carries` replace the trip's carries, and `known` replaces other values and
  takes precedence. `advanced` are the carries whose next values are returned.
  """
  known = known or {}
  whole = loop.operation.clone().operation
  block = whole.regions[1].blocks[0]
  operations = [op.operation for op in block.operations]
  for (position, number), value in known.items():
    if position != mlir.ARGUMENT:
      operations[position].results[number].replace_all_uses_with(value)
  for number, argument in enumerate(block.arguments):
    carry = known.get((mlir.ARGUMENT, number), carries[number])
    argument.replace_all_uses_with(carry)
  moved = {position: operations[position] for position in sorted(positions)}
  for operation in moved.values():
    operation.move_before(whole)
  returned = {i: operations[-1].operands[i] for i in advanced}
  whole.erase()
  return _Trip(operations=moved, carries=carries, returned=returned)


def _create_loop(
  like: CountedLoop,
  num_trips: int,
  operands: Sequence[ir.Value],
  *,
  every: int = 1,
) -> tuple[ir.Operation, ir.Block]:
  """Creates a loop whose body is empty and has no terminator.

  It has the same counter carry as `like`, makes `every` of its trips at a time,
  and may carry more values.
  """
  types = [value.type for value in operands]
  loop = stablehlo.WhileOp(types, operands).operation
  locations = [loop.location] * len(types)
  condition, body = (
    region.blocks.append(*types, arg_locs=locations) for region in loop.regions
  )
  with ir.InsertionPoint(condition):
    counter = condition.arguments[like.counter]
    end = _constant(like.start + num_trips * every * like.step, counter.type)
    direction = stablehlo.ComparisonDirectionAttr.get("LT")
    stablehlo.return_([stablehlo.compare(counter, end, direction)])
  return loop, body


def _end_loop(
  body: ir.Block,
  like: CountedLoop,
  values: Sequence[ir.Value],
  *,
  every: int = 1,
) -> None:
  """Ends the body of a loop from `_create_loop`, at the insertion point.

  `values` are the next trip's carries; the counter's is replaced.
  """
  counter = body.arguments[like.counter]
  step = _constant(every * like.step, counter.type)
  returned = list(values)
  returned[like.counter] = stablehlo.add(counter, step)
  stablehlo.return_(returned)


def _constant(number: int, type_: ir.Type) -> ir.Value:
  value = ir.Attribute.parse(f"dense<{number}> : {type_}")
  return stablehlo.constant(value)
