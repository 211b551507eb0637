# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Gradient accumulation: micro-batches of a loop that run beside each other.

A rotated loop runs a backward pass beside the next forward pass. A loop over
micro-batches runs a trip's forward pass, then its backward pass:

    for m in 0 .. N-1:  F(m); B(m)

which is the same as

    F(0);  for m in 0 .. N-2:  B(m); F(m + 1);  B(N-1)

where B(m) and F(m + 1) need nothing of each other. Their loops over layers
become one, and XLA's scheduler runs what one communicates under what the other
computes (DHelix, arXiv 2411.15871). What the first product of a layer gathers
is gathered while the layer before computes. Residuals of two micro-batches are
alive while they share a loop. The order in which gradients are added up stays.

A new loop counts in the carry in which the old one counted. XLA moves a slice
by a memcpy, from JAX 0.11 on beside kernels, where the carry that its loop's
condition compares says which slice it is
(ResolveFunctionalDependencyOnInductionVariable, ir_emission_utils.cc). Told by
any other carry it takes a kernel.

The first collective of a body has nothing to hide under: all products wait for
it. What it gathers may be known a trip before, though: a recomputed layer's
residual, or weights, which the counter picks from what no trip changes.

Trips are also paired: two micro-batches that stand in one trip need nothing of
each other but the sum that both add to:

    for m in 0, 2, 4 ..:  F(m) and F(m + 1);  B(m) and B(m + 1)

so their loops over layers become one, and each hides what the other
communicates (Domino, arXiv 2409.15241, with micro-batches in place of halves).
Nothing stays alone but the last of an odd number. Residuals of two micro-
batches are alive, and gradients are added up in the order in which they were.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
import dataclasses
import functools

from jaxlib.mlir import ir
from jaxlib.mlir.dialects import stablehlo

from lagom_xla.passes.program import counted_loops
from lagom_xla.passes.program import mlir
from lagom_xla.passes.program.form import Outcome
from lagom_xla.passes.program.form import Refusal
from lagom_xla.passes.program.strands import merge
from lagom_xla.passes.program.strands import stages
from lagom_xla.passes.program.strands.stages import Stages


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class TripCopy:
  """A copy of some operations of a trip.

  Attributes:
    operations: the copies, by the position of what was copied.
    carries: what the trip's carries are in it.
    returned: what the next trip takes, for the carries that it advances.
  """

  operations: Mapping[int, ir.Operation]
  carries: Sequence[ir.Value]
  returned: Mapping[int, ir.Value]

  def value(self, item: stages.Item) -> ir.Value:
    """The value that stands for one of the trip."""
    position, number = item
    if position == stages.CARRY:
      return self.carries[number]
    return self.operations[position].results[number]


def _write_trip(
  loop: counted_loops.CountedLoop,
  carries: Sequence[ir.Value],
  known: Mapping[stages.Item, ir.Value],
  positions: Iterable[int],
  advanced: Iterable[int],
) -> TripCopy:
  """Writes some operations of a trip, at the insertion point.

  Args:
    loop: whose trip it is.
    carries: what stands for the trip's carries.
    known: what stands for other values, and goes before `carries`.
    positions: of the operations.
    advanced: numbers of the carries whose next value is wanted.
  """
  whole = loop.operation.clone().operation
  block = whole.regions[1].blocks[0]
  operations = [op.operation for op in block.operations]
  for (position, number), value in known.items():
    if position != stages.CARRY:
      operations[position].results[number].replace_all_uses_with(value)
  for number, argument in enumerate(block.arguments):
    carry = known.get((stages.CARRY, number), carries[number])
    argument.replace_all_uses_with(carry)
  moved = {position: operations[position] for position in sorted(positions)}
  for operation in moved.values():
    operation.move_before(whole)
  returned = {i: operations[-1].operands[i] for i in advanced}
  whole.erase()
  return TripCopy(operations=moved, carries=carries, returned=returned)


def _write_whole_trip(
  loop: counted_loops.CountedLoop, carries: Sequence[ir.Value]
) -> TripCopy:
  """Writes a whole trip, at the insertion point.

  Args:
    loop: whose trip it is.
    carries: what stands for the trip's carries.
  """
  positions = range(len(loop.body.operations) - 1)
  return _write_trip(loop, carries, {}, positions, range(len(carries)))


def _create_loop(
  like: counted_loops.CountedLoop,
  num_trips: int,
  operands: Sequence[ir.Value],
  *,
  every: int = 1,
) -> tuple[ir.Operation, ir.Block]:
  """A loop without its trips: the body is empty and has no end.

  Args:
    like: the loop whose counter it takes, at the same place.
    num_trips: how often its body runs.
    operands: what it carries: as many values as that loop, or more.
    every: trips of that loop that one of its own stands for.
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
    direction = stablehlo.ComparisonDirectionAttr.get(
      "LT" if like.step > 0 else "GT"
    )
    stablehlo.return_([stablehlo.compare(counter, end, direction)])
  return loop, body


def _end_loop(
  body: ir.Block,
  like: counted_loops.CountedLoop,
  values: Sequence[ir.Value],
  *,
  every: int = 1,
) -> None:
  """Ends the body of such a loop, at the insertion point.

  Args:
    body: the loop's.
    like: as for `_create_loop`.
    values: what the next trip takes; for the counter any, which is replaced.
    every: as for `_create_loop`.
  """
  counter = body.arguments[like.counter]
  step = _constant(every * like.step, counter.type)
  returned = list(values)
  returned[like.counter] = stablehlo.add(counter, step)
  stablehlo.return_(returned)


def _constant(number: int, type_: ir.Type) -> ir.Value:
  value = ir.Attribute.parse(f"dense<{number}> : {type_}")
  return stablehlo.constant(value)


# Writes a loop anew; returns what it did, as the end of a sentence that begins
# with the loop, or why it did nothing.
Change = Callable[[counted_loops.CountedLoop], "Done | str"]


class Done(str):
  """What was done to a loop."""


def _change_loops(module: ir.Module, change_loop: Change) -> Outcome:
  """Changes the loop over micro-batches, wherever in a program it is.

  It is the outermost loop that runs more than half of the program's products,
  makes two trips or more, and that can be changed.

  Args:
    module: the program; it is changed. Its calls are inlined even if nothing
      else is done.
    change_loop: changes a loop.
  """
  mlir.inline_all(module)
  functions = [op.operation for op in module.body.operations]
  half_flops = sum(map(counted_loops.flops, functions)) / 2
  change_if_possible = functools.partial(
    _change_if_possible,
    is_partitioned=mlir.is_partitioned(module),
    change_loop=change_loop,
  )
  outcome = Outcome()
  for function in functions:
    outcome += _change_in(function, half_flops, change_if_possible)
  if outcome == Outcome():
    where, reason = "the program", "no loop of it runs most of its products"
    outcome += Outcome(refusals=(Refusal(where=where, reason=reason),))
  return outcome


def _change_in(
  operation: ir.Operation,
  half_flops: float,
  change_if_possible: Callable[[ir.Operation], Outcome],
) -> Outcome:
  """Changes the outermost loop under an operation that can be."""
  outcome = Outcome()
  for inner in _with_regions(operation):
    if inner.name == "stablehlo.while":
      if counted_loops.flops(inner) <= half_flops:
        continue
      outcome += change_if_possible(inner)
    if outcome.actions:
      return outcome
    per_trip = half_flops / max(counted_loops.num_trips(inner), 1)
    outcome += _change_in(inner, per_trip, change_if_possible)
  return outcome


def _with_regions(operation: ir.Operation) -> Iterator[ir.Operation]:
  """The operations right inside of one that have others inside themselves."""
  for region in operation.regions:
    for block in region.blocks:
      for inner in [op.operation for op in block.operations]:
        if inner.regions:
          yield inner


def _change_if_possible(
  operation: ir.Operation, *, is_partitioned: bool, change_loop: Change
) -> Outcome:
  where = f"the loop at {mlir.place_of(operation)}"
  loop = _loop_to_change(operation, is_partitioned)
  done = loop if isinstance(loop, str) else change_loop(loop)
  if not isinstance(done, Done):
    return Outcome(refusals=(Refusal(where=where, reason=done),))
  assert not isinstance(loop, str)
  return Outcome(
    actions=(f"{where[0].upper()}{where[1:]} ({loop.num_trips} trips) {done}",)
  )


def _loop_to_change(
  operation: ir.Operation, is_partitioned: bool
) -> counted_loops.CountedLoop | str:
  """A loop whose trips may overlap, or why not."""
  loop = counted_loops.read(operation)
  if isinstance(loop, str):
    return loop
  if loop.num_trips < 2:
    return "it makes no more than 1 trip, and only two can overlap"
  effect = mlir.first_effect(operation)
  if effect is not None:
    return f"in it is {effect}"
  if not is_partitioned and not mlir.has_collective(operation):
    return "nothing in it communicates"
  return loop


def _split_barriers(loop: counted_loops.CountedLoop) -> None:
  """Gives each value that a barrier of a body holds back one of its own.

  `jax.checkpoint` keeps XLA from merging what is recomputed with the original
  by a barrier, in which a layer's residual also waits for its gradient. Within
  a trip that wait saves no memory worth having, and no gather can pass it.
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


def _prefetch_stages(loop: counted_loops.CountedLoop) -> Stages | None:
  """The gathers of a trip that need but its counter, as its early stage.

  None where there are none, or where they are all that the trip does.
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
  if not ahead:
    return None
  return Stages(
    ahead=frozenset(ahead),
    ahead_carries=frozenset(),
    crossing=stages.crossing_between(body, ahead, frozenset()),
  )


def _rotate_stages(loop: counted_loops.CountedLoop, stages: Stages) -> int:
  """Puts a rotated loop in the place of a loop.

  The first trip's early stage comes before it, the last trip's late stage
  behind it. It carries what the loop carried, of which that of the early stage
  is a trip ahead, and what crosses from stage to stage; it counts as the late
  stage does. Loops that the stages come to share are rotated, too: their
  gathers go a trip ahead.

  Args:
    loop: what is replaced.
    stages: of its trips.

  Returns:
    How many pairs of inner loops, one of each stage, became one.
  """
  old = loop.operation
  items = stages.crossing.items
  before = list(old.operands)
  with old.location, ir.InsertionPoint(old):
    first = _early(loop, stages, before)
    operands = [first.returned.get(i, v) for i, v in enumerate(before)]
    new, body = _create_loop(
      loop, loop.num_trips - 1, [*operands, *map(first.value, items)]
    )
    carries, kept = _split(list(body.arguments), len(before))
    with ir.InsertionPoint(body):
      late = _late(loop, stages, carries, kept)
      ahead = list(carries)
      ahead[loop.counter] = late.returned[loop.counter]
      early = _early(loop, stages, ahead)
      _end_loop(body, loop, [
        *({**late.returned, **early.returned}.get(i, v)
          for i, v in enumerate(carries)),
        *map(early.value, items),
      ])  # fmt: skip
    carries, kept = _split(list(new.results), len(before))
    last = _late(loop, stages, carries, kept)
    for i, result in enumerate(old.results):
      result.replace_all_uses_with(last.returned.get(i, carries[i]))
  old.erase()
  shared = merge.share(
    body, list(late.operations.values()), list(early.operations.values())
  )
  gather_ahead(shared)
  return len(shared)


def gather_ahead(loops: Iterable[counted_loops.CountedLoop]) -> None:
  """Rotates loops that two strands share by what they gather, one trip ahead.

  Args:
    loops: the inner ones of nested loops first.
  """
  for loop in loops:
    _split_barriers(loop)
    if loop.num_trips > 1:
      gathers = _prefetch_stages(loop)
      if gathers is not None:
        _rotate_stages(loop, gathers)


def _early(
  loop: counted_loops.CountedLoop, stages: Stages, carries: Sequence[ir.Value]
) -> TripCopy:
  """Writes the stage that runs ahead, at the insertion point."""
  return _write_trip(loop, carries, {}, stages.ahead, stages.ahead_carries)


def _late(
  loop: counted_loops.CountedLoop,
  stages: Stages,
  carries: Sequence[ir.Value],
  kept: Sequence[ir.Value],
) -> TripCopy:
  """Writes the other stage at the insertion point; it takes what is kept."""
  known = dict(zip(stages.crossing.items, kept, strict=True))
  num_operations = len(loop.body.operations) - 1
  positions = set(range(num_operations)) - stages.ahead | stages.crossing.again
  advanced = set(range(len(carries))) - stages.ahead_carries
  return _write_trip(loop, carries, known, positions, advanced)


def _split(
  values: Sequence[ir.Value], at: int
) -> tuple[Sequence[ir.Value], Sequence[ir.Value]]:
  return values[:at], values[at:]


def rotate(module: ir.Module) -> Outcome:
  """Rotates the loop over micro-batches of a program, which is changed.

  Its trips must be such that they can be cut in two stages (`stages.py`).
  """
  return _change_loops(module, _rotate)


def _rotate(loop: counted_loops.CountedLoop) -> Done | str:
  cut = stages.cut(loop)
  if isinstance(cut, str):
    return cut
  num_shared = _rotate_stages(loop, cut)
  return Done(
    "was rotated, so that the end of a trip runs beside the beginning of the"
    f" next, which keeps {cut.crossing.num_bytes} bytes for its own end;"
    f" {num_shared} pairs of inner loops became one."
  )


def pair_trips(module: ir.Module) -> Outcome:
  """Pairs the trips of the loop over micro-batches of a program.

  Args:
    module: the program; it is changed.
  """
  return _change_loops(module, _pair)


def _pair(loop: counted_loops.CountedLoop) -> Done | str:
  reason = _dependence(loop)
  if reason is not None:
    return reason
  num_pairs, num_alone = divmod(loop.num_trips, 2)
  old = loop.operation
  with old.location, ir.InsertionPoint(old):
    new, body = _create_loop(loop, num_pairs, list(old.operands), every=2)
    with ir.InsertionPoint(body):
      first = _write_whole_trip(loop, list(body.arguments))
      second = _write_whole_trip(loop, list(first.returned.values()))
      _end_loop(body, loop, list(second.returned.values()), every=2)
    results = list(new.results)
    if num_alone:
      last = _write_whole_trip(loop, results)
      results = list(last.returned.values())
    for result, value in zip(old.results, results, strict=True):
      result.replace_all_uses_with(value)
  old.erase()
  shared = merge.share(
    body, list(first.operations.values()), list(second.operations.values())
  )
  gather_ahead(shared)
  return Done(
    f"runs two trips at a time; {len(shared)} pairs of inner loops became one."
  )


def _dependence(loop: counted_loops.CountedLoop) -> str | None:
  """Why a trip's products cannot run beside those of the trip before."""
  body = stages.TripBody(loop)
  products = {
    position
    for position, operation in enumerate(body.operations)
    if counted_loops.flops(operation)
  }
  _, carries = body.with_all_needed(products)
  updates = [body.returned[number] for number in carries]
  updating = {item[0] for item in updates if item and item[0] != stages.CARRY}
  needed = mlir.BlockDependence(loop.body).needed_by(updating)
  if products & (updating | needed):
    return (
      "a trip's products need what those of the trip before computed, as where"
      " each micro-batch updates the parameters"
    )
  return None
