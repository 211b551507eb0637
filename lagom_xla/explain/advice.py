# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Advice: changes to a program that may gain more than options.

    for one in advice.of_step(step, target):
      print(f"{one.about}: {one.sentence}")

All advice is about shardings: what XLA makes of them, and a better one. If the
target is a program, a copy is changed and compiled. The advice then has the
predicted step time, and is left out without a gain. For an HLO module, the
replay gives today's loss.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
import dataclasses
import math
from typing import Any

from lagom_xla import errors
from lagom_xla.compile import config as config_lib
from lagom_xla.compile import target as target_lib
from lagom_xla.costs import in_words
from lagom_xla.costs import step as step_lib
from lagom_xla.explain import explanation as explanation_lib
from lagom_xla.passes import collectives as collectives_lib
from lagom_xla.passes import hlo
from lagom_xla.passes import provenance
from lagom_xla.passes import source_lines
from lagom_xla.passes.program import mlir
from lagom_xla.passes.program import pins as pins_lib
from lagom_xla.search.xla import evaluation

_ms = in_words.milliseconds
# Least gain of a change, or cost of its cause, as a share of the step.
_LEAST = 0.01
# Least replicated optimizer state, as a share of a GPU's memory.
_LEAST_MEMORY = 0.02
_MOST_LINES = 3
# Least cost of an examined reduction, as a share of the step.
_LEAST_OF_EACH = 0.001
# Most memory for unreduced gradient sums, as a share of a GPU's memory.
_MOST_MEMORY_OF_SUMS = 0.25
_Advice = explanation_lib.Advice
# Last parts of op_names of collectives that the program has itself.
_WRITTEN = (
  *("all_gather", "all_gather_invariant", "all_to_all", "ppermute", "psum"),
  *("psum2", "psum_invariant", "psum_scatter", "reduce_scatter"),
)
_CONSTRAINT = "sharding_constraint"


def of_step(
  step: step_lib.Step, target: target_lib.Target | None = None
) -> tuple[explanation_lib.Advice, ...]:
  """Advice on a step's program, the largest gain first."""
  found = _Found(step)
  if not found.arrays.arguments or not step.analysis.collectives:
    return ()
  told: list[explanation_lib.Advice] = []
  if isinstance(target, target_lib.StepTarget) and mlir.is_partitioned(
    target.lowered.stablehlo
  ):
    told += _Changes(found, target).advice()
  else:
    told += found.unpinned()
  told += found.accumulated()
  # Missing pins also make XLA gather and cut arrays, so pins come first.
  if not any(one.about in ("Activations", "Micro-batches") for one in told):
    told += found.cut_again()
  return tuple(sorted(told, key=lambda one: -one.gain_us))


class _Found:
  """A step, with the arrays and costs of its collectives."""

  def __init__(self, step: step_lib.Step):
    # Compare without measured costs: a changed program has none.
    step = dataclasses.replace(step, measured=None) if step.measured else step
    self.step = step
    self.arrays = provenance.of(step.analysis.module)
    self._lines = source_lines.SourceLines(step.analysis.module)
    self.timeline = step.timeline(step.default)
    self.homes = {c.name: c for c in step.analysis.sequences}
    self._slows_us: dict[str, float] = {}
    for (_, name), us in self.timeline.slowdown_us.items():
      self._slows_us[name] = self._slows_us.get(name, 0.0) + us

  @property
  def step_us(self) -> float:
    """Today's step time."""
    return self.timeline.step_time_us

  def lost_us(self, some: Sequence[collectives_lib.Collective]) -> float:
    """The time that kernels wait for collectives and lose to them."""
    exposed_us = self.timeline.exposed_us
    return sum(
      exposed_us.get(c.name, 0.0) + self._slows_us.get(c.name, 0.0)
      for c in some
    )

  def moving(self, kind: provenance.Kind) -> list[collectives_lib.Collective]:
    """The collectives that move arrays of a kind, costliest first."""
    found = [
      one
      for one in self.step.analysis.collectives
      if any(array.kind == kind for array in self.arrays.moved(one))
    ]
    return sorted(found, key=lambda one: -self.lost_us([one]))

  def made_by_partitioner(self) -> list[collectives_lib.Collective]:
    """The partitioner's collectives of activations."""
    return [
      one
      for one in self.moving("activation")
      if self.op_name(one).rpartition("/")[2] not in _WRITTEN
    ]

  def signature(self, one: collectives_lib.Collective) -> tuple[Any, ...]:
    """A key that identifies a collective across compiles."""
    return one.kind, self.op_name(one), self.arrays.moved(one)

  def op_name(self, one: collectives_lib.Collective) -> str:
    """JAX's name of a collective's operation."""
    home = self.homes[one.computation]
    start = home.by_id[one.start_id]
    inside = collectives_lib.payloads(self.step.analysis.module, start)
    return next(
      filter(None, (i.metadata.op_name for _, i in ((home, start), *inside))),
      "",
    )

  def lines(self, some: Sequence[collectives_lib.Collective]) -> str:
    """The source lines of collectives, without repeats."""
    found = []
    for one in some:
      home = self.homes[one.computation]
      line = self._lines.of(home, home.by_id[one.start_id])
      found += map(str, line.frames[:1])
    return in_words.some(list(dict.fromkeys(found)), _MOST_LINES)

  def told(self, some: Sequence[collectives_lib.Collective]) -> str:
    """Collectives that move activations, in words."""
    first = some[0]
    (array, *_) = (
      a for a in self.arrays.moved(first) if a.kind == "activation"
    )
    at = self.lines([first])
    more = len(some) - 1
    return (
      f"{first.name} moves an activation, {array.shape}"
      f"{f', at {at}' if at else ''}, because XLA chose its sharding"
      f"{_so_do(more)}"
    )

  def unpinned(self) -> Iterator[explanation_lib.Advice]:
    """Advice on activations of a module without sharding constraints.

    It covers collectives in the groups that all-gather parameters (FSDP).
    """
    names = {
      instruction.metadata.op_name.rpartition("/")[2]
      for instruction in self.step.analysis.module.instructions
    }
    gathered = {
      one.groups for one in self.moving("parameter") if one.kind == "all-gather"
    }
    some = [
      one
      for one in self.made_by_partitioner()
      if one.groups in gathered
      and self.op_name(one)
      # Rings of attention are the program's own.
      and one.kind != "collective-permute"
    ]
    lost_us = self.lost_us(some)
    if _CONSTRAINT in names or lost_us < _LEAST * self.step_us:
      return
    yield _Advice(
      about="Activations",
      gain_us=lost_us,
      sentence=(
        f"{self.told(some)}. They cost kernels {_ms(lost_us)}."
        " Pin the input of each layer with jax.lax.with_sharding_constraint,"
        " sharded like the batch."
      ),
    )

  def accumulated(self) -> Iterator[explanation_lib.Advice]:
    """Advice on gradients that are reduced per micro-batch and then summed."""
    least_us = _LEAST_OF_EACH * self.step_us
    parts = {
      one: number
      for one in self.moving("gradient")
      if one.kind in ("all-reduce", "reduce-scatter")
      and self.lost_us([one]) > least_us
      and (number := self.arrays.times_added_up(one)) > 1
    }
    saved_us = sum(self.lost_us([c]) * (1 - 1 / n) for c, n in parts.items())
    num_bytes = sum(map(self.arrays.bytes_if_summed_first, parts))
    hbm_bytes = self.step.cluster.gpu.hbm_bytes
    if (
      saved_us < _LEAST * self.step_us
      or num_bytes > _MOST_MEMORY_OF_SUMS * hbm_bytes
    ):
      return
    first = next(iter(parts))
    (array, *_) = self.arrays.moved(first)
    at = self.lines([first])
    # Tied weights are reduced more than once in each micro-batch.
    more, micro_batches = len(parts) - 1, min(parts.values())
    takes = ""
    if num_bytes:
      of = f" of all {more + 1}" * bool(more)
      takes = (
        f" and takes {in_words.gigabytes(num_bytes)} for unreduced sums{of}"
      )
    yield _Advice(
      about="Accumulation",
      gain_us=saved_us,
      sentence=(
        f"{first.name} reduces {array.in_words}{f' ({at})' if at else ''} in"
        f" each of {micro_batches:,} micro-batches, only to add up the results"
        f"{_so_do(more)}. Sum on each GPU first"
        " and reduce once: jax.shard_map around the micro-batches, psum or"
        f" psum_scatter after it. That saves up to {_ms(saved_us)}{takes}."
      ),
    )

  def cut_again(self) -> Iterator[explanation_lib.Advice]:
    """Advice on arrays that are gathered completely to be resharded."""
    some = [
      one
      for one in self.step.analysis.collectives
      if self.arrays.is_cut_again(one)
    ]
    some.sort(key=lambda one: -self.lost_us([one]))
    lost_us = self.lost_us(some)
    if lost_us < _LEAST * self.step_us:
      return
    first = some[0]
    (array, *_) = self.arrays.moved(first)
    lines = self.lines(some)
    at = f" ({lines})" if lines else ""
    yield _Advice(
      about="Rematerialization",
      gain_us=lost_us,
      sentence=(
        f"{first.name} fully gathers {array.in_words}, and each GPU only slices"
        f" its part from it{at}. This costs kernels {_ms(lost_us)}. Drop a"
        " constraint that asks for the whole array there. If there is none, XLA"
        " cannot convert one sharding directly to another (involuntary full"
        " rematerialization): shard both sides over the same mesh axes in the"
        " same order, or use an intermediate sharding."
      ),
    )


class _Changes:
  """Changes to a program, each compiled."""

  def __init__(self, found: _Found, target: target_lib.StepTarget):
    self._found, self._target = found, target
    self._program = target.lowered.stablehlo
    self._arguments = found.arrays.arguments
    self._data = [
      number
      for number, argument in enumerate(self._arguments)
      if argument.kind == "activation"
    ]

  def advice(self) -> Iterator[explanation_lib.Advice]:
    """The changes with a gain."""
    if not self._data:
      return
    yield from self._unused_axes()
    # Activations are examined after micro-batches are sharded correctly.
    before, us = self._program, self._found.step_us
    for one, program in self._splits(before, us):
      yield one
      before, us = program, us - one.gain_us
    yield from self._activations(before, us)
    yield from self._optimizer_state()
    yield from self._tables()

  def _step(self, program: Any) -> step_lib.Step | None:
    """The step of another program; None if XLA refuses it."""
    target = self._target.with_program(program)
    try:
      scheduled = evaluation.scheduled_step(target)
      return evaluation.run_of(target, config_lib.DEFAULT, scheduled).step
    except errors.LagomError:
      return None

  def _time_us(self, program: Any) -> float | None:
    """The step time of another program; None if XLA refuses it."""
    step = self._step(program)
    return None if step is None else _Found(step).step_us

  def _splits(
    self, program: Any, before_us: float
  ) -> Iterator[tuple[explanation_lib.Advice, Any]]:
    changed, pins = pins_lib.pin_splits(program, self._data)
    us = self._time_us(changed) if pins else None
    if us is None or us > (1 - _LEAST) * before_us:
      return
    (pin, *_) = pins
    advice = _Advice(
      about="Micro-batches",
      gain_us=before_us - us,
      sentence=(
        f"a reshape at {pin.place} splits the sharded dimension of the batch"
        f" into {pin.shape}, so each micro-batch is on only some GPUs, and XLA"
        " moves data to the others. Pin the micro-batches:"
        f" {_constraint('batch', pin.spec)}; or split with"
        f" lagom_xla.micro_batches, which moves no data."
        f" {_takes(us, before_us)}"
      ),
    )
    yield advice, changed

  def _activations(
    self, program: Any, before_us: float
  ) -> Iterator[explanation_lib.Advice]:
    some = self._found.made_by_partitioner()
    if self._found.lost_us(some) < _LEAST * self._found.step_us:
      return
    us, changes, after = before_us, [], self._found
    for pin_all, pinned, name in (
      (pins_lib.pin_activations, "the input of each layer", "x"),
      (pins_lib.pin_products, "the matmul", "y"),
    ):
      changed, pins = pin_all(program, self._data)
      step = self._step(changed) if pins else None
      with_pins = step and _Found(step)
      if not with_pins or with_pins.step_us > (1 - _LEAST) * us:
        continue
      us, program, after = with_pins.step_us, changed, with_pins
      (pin, *_) = pins
      at = f" at {pin.place}" if pin.place else ""
      changes.append(
        f"{pinned}{at}, {pin.shape}: {_constraint(name, pin.spec)}"
      )
    if not changes:
      return
    # Collectives for tensor parallelism remain with pins.
    left = set(map(after.signature, after.made_by_partitioner()))
    some = [c for c in some if self._found.signature(c) not in left] or some
    yield _Advice(
      about="Activations",
      gain_us=before_us - us,
      sentence=(
        f"{self._found.told(some)}. Pin {'; then '.join(changes)}."
        f" {_takes(us, before_us)}"
      ),
    )

  def _unused_axes(self) -> Iterator[explanation_lib.Advice]:
    unused = pins_lib.axes_without_arrays(self._program)
    if not unused:
      return
    dims_of: dict[int, dict[int, Sequence[str]]] = {}
    spec = ""
    for number in self._data:
      axes = pins_lib.axes_of(self._program, number)
      sizes = pins_lib.sizes_of(self._program, number)
      dim = next((d for d, of_dim in enumerate(axes) if of_dim), None)
      if dim is None:
        continue
      parts = self._parts(axes[dim]) * math.prod(unused.values())
      if sizes[dim] % parts == 0:
        dims_of[number] = {dim: (*axes[dim], *unused)}
        spec = pins_lib.spec([()] * dim + [dims_of[number][dim]])
    named = in_words.some([f"'{axis}' ({n})" for axis, n in unused.items()])
    step_us = self._found.step_us
    sentence = (
      f"no array is sharded over {named}, so GPUs along it repeat all work."
    )
    us = None
    if dims_of:
      us = self._time_us(pins_lib.shard_batch(self._program, dims_of))
    if us is None:
      gain_us = step_us * (1 - 1 / math.prod(unused.values()))
      sentence += " Shard the batch over it, too, or remove it from the mesh."
    else:
      gain_us = step_us - us
      sentence += (
        f" Shard the batch, and what is pinned like it, over it, too: {spec}."
        f" {_takes(us, step_us)}"
      )
    if gain_us >= _LEAST * step_us:
      yield _Advice(about="Mesh axis", gain_us=gain_us, sentence=sentence)

  def _parts(self, axes: Sequence[str]) -> int:
    sizes = pins_lib.axis_sizes(self._program)
    return math.prod(sizes[axis] for axis in axes)

  def _optimizer_state(self) -> Iterator[explanation_lib.Advice]:
    """Advice on optimizer state that is replicated over the batch's axes."""
    rows = self._batch_axes()
    whole: dict[int, dict[int, Sequence[str]]] = {}
    num_bytes = 0
    for number, argument in enumerate(self._arguments):
      if argument.kind != "optimizer state":
        continue
      axes = pins_lib.axes_of(self._program, number)
      if rows & {axis for of_dim in axes for axis in of_dim}:
        continue
      dim = self._dim_to_shard(number, axes, tuple(rows))
      if dim is not None:
        whole[number] = {dim: (*axes[dim], *sorted(rows))}
        num_bytes += hlo.shape_bytes(argument.shape)
    hbm_bytes = self._target.cluster.gpu.hbm_bytes
    if num_bytes < _LEAST_MEMORY * hbm_bytes:
      return
    us = self._time_us(pins_lib.shard_arguments(self._program, whole))
    if us is None:
      return
    parts, step_us = self._parts(tuple(rows)), self._found.step_us
    largest = max(
      whole, key=lambda n: hlo.shape_bytes(self._arguments[n].shape)
    )
    yield _Advice(
      about="Optimizer state",
      gain_us=step_us - us,
      sentence=(
        f"{in_words.gigabytes(num_bytes)} per GPU are replicated on {parts}"
        f" GPUs, such as {self._arguments[largest].name}. Sharded over"
        f" {in_words.some(sorted(map(repr, rows)))} in in_shardings and"
        " out_shardings (ZeRO-1), they take"
        f" {in_words.gigabytes(num_bytes / parts)}. {_takes(us, step_us)}"
      ),
    )

  def _batch_axes(self) -> set[str]:
    return {
      axis
      for number in self._data
      for of_dim in pins_lib.axes_of(self._program, number)
      for axis in of_dim
    }

  def _dim_to_shard(
    self,
    number: int,
    axes: Sequence[Sequence[str]],
    more: Sequence[str],
  ) -> int | None:
    """The largest dimension that `more` axes can also shard; None if none."""
    sizes = pins_lib.sizes_of(self._program, number)
    fitting = [
      dim
      for dim, size in enumerate(sizes)
      if size % self._parts((*axes[dim], *more)) == 0
    ]
    return max(fitting, key=lambda dim: sizes[dim], default=None)

  def _tables(self) -> Iterator[explanation_lib.Advice]:
    """Advice on tables whose rows are sharded, but are only looked up."""
    today, program = self._found, self._program
    least_us = _LEAST * today.step_us
    tables: dict[str, str] = {}
    for gather in today.moving("parameter"):
      if today.arrays.is_only_looked_up(gather):
        (array, *_) = today.arrays.moved(gather)
        key = today.step.key_of[gather.name]
        lone_us = today.step.cost_of(gather, today.step.default[key]).time_us
        if gather.executions * lone_us >= least_us:
          at = today.lines([gather])
          what = (
            f"{gather.name} fully gathers {array.in_words} to look up rows"
            f"{f' at {at}' if at else ''}"
          )
          tables.update(dict.fromkeys(array.names[:1], what))
    if today.lost_us(today.made_by_partitioner()) >= least_us:
      for number, at in pins_lib.looked_up(program).items():
        name = self._arguments[number].name
        tables.setdefault(
          name,
          f"each GPU looks up its rows of {name} for all GPUs"
          f"{f' at {at}' if at else ''}, and XLA adds up the results",
        )
    for name, what in tables.items():
      dims_of = self._by_columns([name])
      if not dims_of:
        continue
      us = self._time_us(pins_lib.shard_arguments(program, dims_of))
      if us is None or us > today.step_us - least_us:
        continue
      dims = next(iter(dims_of.values()))
      spec = pins_lib.spec([dims.get(dim, ()) for dim in range(max(dims) + 1)])
      yield _Advice(
        about="Embedding",
        gain_us=today.step_us - us,
        sentence=(
          f"{what}. Shard its columns, {spec}, so that each GPU gets only rows"
          f" that it needs. {_takes(us, today.step_us)}"
        ),
      )

  def _by_columns(
    self, names: Sequence[str]
  ) -> dict[int, dict[int, Sequence[str]]]:
    """Axes that shard a table and its optimizer state by columns instead."""
    wanted: dict[int, dict[int, Sequence[str]]] = {}
    for number in self._like(names):
      axes = pins_lib.axes_of(self._program, number)
      taken = tuple(axis for of_dim in axes for axis in of_dim)
      columns = pins_lib.sizes_of(self._program, number)[-1]
      if axes[-1] or not taken or columns % self._parts(taken):
        return {}
      dims: dict[int, Sequence[str]] = {
        dim: () for dim, of_dim in enumerate(axes) if of_dim
      }
      wanted[number] = {**dims, len(axes) - 1: taken}
    return wanted

  def _like(self, names: Sequence[str]) -> list[int]:
    """Arguments of a name, and optimizer state of equal shape and sharding."""
    named = [n for n, a in enumerate(self._arguments) if a.name in names]
    if not named:
      return []
    sizes = pins_lib.sizes_of(self._program, named[0])
    axes = pins_lib.axes_of(self._program, named[0])
    return [
      number
      for number, argument in enumerate(self._arguments)
      if number in named
      or (
        argument.kind == "optimizer state"
        and pins_lib.sizes_of(self._program, number) == sizes
        and pins_lib.axes_of(self._program, number) == axes
      )
    ]


def _constraint(value: str, spec: str) -> str:
  return (
    f"{value} = jax.lax.with_sharding_constraint({value}, NamedSharding(mesh,"
    f" {spec}))"
  )


def _takes(us: float, before_us: float) -> str:
  if _ms(us) == _ms(before_us):
    return f"The step is predicted to still take {_ms(us)} with this change."
  return (
    f"With this change, the step is predicted to take {_ms(us)} instead of"
    f" {_ms(before_us)}."
  )


def _so_do(more: int) -> str:
  """Says that others do the same; "" for none."""
  does = "does" if more == 1 else "do"
  return f", and {more:,} more {does}" * bool(more)
