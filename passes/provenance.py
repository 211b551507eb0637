# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""What each array of a step is: a parameter, a gradient, an activation.

    arrays = provenance.of(module)
    arrays.moved(collective)  # (Array(kind="gradient", names=("p['w']",), …),)

JAX names the arguments of a step by their paths. This module follows arrays
from there to the results (array_flow.py).

- Arguments that a step returns changed are its *state*. The others are *data*,
  except for frozen parameters: arguments that are no integers and that no
  product multiplies by state alone.
- An array that depends on no data is a *parameter*, or *optimizer state* if it
  is combined only with gradients, never with an activation.
- An array that is copied into new state is a *gradient*; after old state is
  added to it, it is that state.
- Any other array that depends on data is an *activation*, which grows with the
  batch; so are gradients of activations. A few numbers, such as a loss, are
  *scalars*.

In a step that returns no changed parameter, the data are the integers and the
changed arguments, such as caches. Without integers every array is unknown.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
import dataclasses
import functools
import itertools
import math
import re
from typing import Any, Literal
import weakref

from lagom_xla.passes import array_flow
from lagom_xla.passes import collectives as collectives_lib
from lagom_xla.passes import hlo
from lagom_xla.passes import replica_groups

Kind = Literal[
  "parameter",
  "optimizer state",
  "gradient",
  "activation",
  "scalars",
  "unknown",
]
# Kinds whose bytes do not depend on the batch.
OF_ANY_BATCH: frozenset[str] = frozenset(
  ["parameter", "optimizer state", "gradient"]
)

# Linear operations: a sum before one equals a sum after it.
_LINEAR = frozenset(
  [
    *("add", "add-dependency", "bitcast", "concatenate", "convert", "copy"),
    *("copy-start", "dynamic-slice", "dynamic-update-slice", "fusion", "call"),
    *("negate", "opt-barrier", "pad", "reduce-precision", "reshape"),
    *("reduce", "reverse", "slice", "subtract", "transpose", "while"),
    "parameter",
    *(kind + end for kind in collectives_lib.KINDS for end in ("", "-start")),
  ]
)
# Operations between a gathered array and its uses.
_PASSED_ON = array_flow.PLACES_STAY | {"pad", "slice"}
_PRODUCTS = frozenset(["convolution", "custom-call", "dot", "ragged-dot"])
_REDUCTIONS = frozenset(["all-reduce", "reduce-scatter"])
_SUMS = frozenset(["add", "reduce", "subtract"])
# Scalars that these compute from equal ones are equal.
_OF_INDICES = frozenset(
  [
    *("add", "and", "clamp", "compare", "maximum", "minimum", "multiply"),
    *("select", "subtract"),
  ]
)
# The parts of a path: an argument's name, then keys and attributes.
_PART = re.compile(r"\w+|\[[^]]*\]|\.")
_INTEGERS = ("s", "u", "pred")
# Arrays of at most this many elements, such as norms and keys, count as
# scalars.
_MOST_SCALARS = 16


_ARTICLES: Mapping[str, str] = {
  **dict.fromkeys(["activation", "optimizer state"], "an "),
  **dict.fromkeys(["parameter", "gradient"], "a "),
  **dict.fromkeys(["scalars", "unknown"], ""),
}


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Array:
  """An array that a collective moves.

  Attributes:
    kind: such as "gradient".
    names: paths of the arguments that it contains, or whose gradient it is; ()
      for other kinds and for arguments without paths.
    shape: of the whole array, gathered or not yet scattered, such as
      "bf16[8,4096]".
  """

  kind: Kind
  names: tuple[str, ...]
  shape: str

  def __str__(self) -> str:
    if self.kind == "unknown":
      return self.shape
    return f"{self.kind}{self._of} {self.shape}"

  @property
  def _of(self) -> str:
    if not self.names:
      return ""
    of = " of" * (self.kind == "gradient")
    more = f" and {len(self.names) - 1} more" if self.names[1:] else ""
    return f"{of} {self.names[0]}{more}"

  @property
  def in_words(self) -> str:
    """The array as a noun phrase, with its article."""
    article = _ARTICLES[self.kind]
    if self.names and article:
      article = "the "
    return f"{article}{self.kind}{self._of}, {self.shape}"


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Argument:
  """An argument of a step.

  Attributes:
    name: its path; "" if the module has none.
    kind: such as "parameter"; "activation" for data.
    shape: per device.
  """

  name: str
  kind: Kind
  shape: hlo.Shape


def of(module: hlo.Module) -> Arrays:
  """The arrays of a module, analyzed only once."""
  if module not in _known:
    _known[module] = Arrays(module)
  return _known[module]


_known: weakref.WeakKeyDictionary[hlo.Module, Arrays] = (
  weakref.WeakKeyDictionary()
)


def _bits(mask: int) -> Iterator[int]:
  while mask:
    low = mask & -mask
    yield low.bit_length() - 1
    mask ^= low


class Arrays:
  """What each array of a module is.

  Attributes:
    arguments: arguments of the step, in order.
  """

  def __init__(self, module: hlo.Module):
    self._module, self._flow = module, array_flow.Flow(module)
    # Results of _linear and _held, which many pairs of reductions ask for.
    self._known_linear: dict[tuple[int, int | None], set[int]] = {}
    self._known_held: dict[int, list[tuple[int, Any]]] = {}
    flow = self._flow
    self._paths: list[str] = []
    self._shapes: list[hlo.Shape] = []
    nodes: list[array_flow.Node] = []
    for parameter in sorted(
      module.entry.parameters, key=lambda i: i.parameter_number
    ):
      shapes = array_flow.leaves(parameter.shape)
      self._shapes += shapes
      self._paths += [parameter.metadata.op_name] * len(shapes)
      nodes += flow.arguments[parameter.parameter_number]
    own = [0] * len(flow.copied)
    for bit, node in enumerate(nodes):
      own[node] |= 1 << bit
    # Per node: the arguments that it copies, and all that it depends on.
    self._copies = array_flow.reached([*own], flow.copied)
    self._needs = array_flow.reached([*own], flow.copied, flow.mixed)
    # If XLA adds state before a reduction, a select makes one device do it.
    chosen = [
      [] if made_by.opcode == "select" and self._of_device[node] else copied
      for node, (made_by, copied) in enumerate(
        zip(flow.made_by, flow.copied, strict=True)
      )
    ]
    self._has = array_flow.reached(own, chosen)
    self._new = self._new_state()
    self._state = sum({1 << bit for bit in self._new.values()})
    becoming = [0] * len(flow.copied)
    for result, bit in self._new.items():
      becoming[flow.results[result]] |= 1 << bit
    # Per node: the arguments whose new values it is copied into.
    self._becomes = array_flow.becoming(becoming, flow.copied)
    integers = self._integers()
    self._data = self._data_beside(integers)
    self._parameters = self._met_by_data()
    if not self._parameters & self._state:
      # This step trains nothing; the arguments that it changes are caches.
      self._data = (integers | self._state) if integers else 0
      self._parameters = self._all & ~self._data
      self._becomes = [0] * len(flow.copied)

  @functools.cached_property
  def _all(self) -> int:
    return (1 << len(self._shapes)) - 1

  def _new_state(self) -> Mapping[int, int]:
    """Result -> the argument whose new value it is."""
    module, results = self._module, self._flow.results
    shapes = array_flow.leaves(module.entry.root.shape)
    argument_of: dict[int, int] = {}
    if len(shapes) != len(results):
      return argument_of
    is_donated = {
      tuple(entry.output_shape_index): entry.parameter_number
      for entry in module.proto.input_output_alias.entries
      if not entry.parameter_shape_index
    }
    if len(self._flow.arguments) == len(self._shapes):
      for index, number in is_donated.items():
        if len(index) < 2 and number < len(self._shapes):
          argument_of[index[0] if index else 0] = number
    unmatched = self._all & ~sum({1 << bit for bit in argument_of.values()})
    # New state copies old state. Optimizer state copies only its own, so the
    # results that copy the fewest arguments come first.
    results_left = [i for i in range(len(results)) if i not in argument_of]
    for result in sorted(
      results_left, key=lambda i: self._copies[results[i]].bit_count()
    ):
      for bit in _bits(self._copies[results[result]] & unmatched):
        if _is_alike(self._shapes[bit], shapes[result]):
          argument_of[result] = bit
          unmatched &= ~(1 << bit)
          break
    if not argument_of and self._differentiates:  # It returns gradients.
      for result, shape in enumerate(shapes):
        for bit in _bits(unmatched):
          if _is_alike(self._shapes[bit], shape):
            argument_of[result] = bit
            unmatched &= ~(1 << bit)
            break
    return argument_of

  @property
  def _differentiates(self) -> bool:
    return any(
      "transpose(" in instruction.metadata.op_name
      for instruction in self._module.instructions
    )

  def _groups(self) -> Mapping[str, int]:
    """Arguments by the first part of their paths in which some differ.

    This is usually an argument's name; a step of `*args` has only one. Those
    without a path are alone.
    """
    paths = [_PART.findall(path) for path in self._paths]
    num_shared = 0
    for parts in zip(*filter(None, paths), strict=False):
      if len({*parts}) > 1:
        break
      num_shared += 1
    groups: dict[str, int] = {}
    for bit, path in enumerate(paths):
      key = "".join(path[: num_shared + 1]) or str(bit)
      groups[key] = groups.get(key, 0) | 1 << bit
    return groups

  def _integers(self) -> int:
    """Integer arguments, such as tokens and labels, without state and keys."""
    return sum(
      1 << bit
      for bit, shape in enumerate(self._shapes)
      if not self._state >> bit & 1
      and hlo.element_type(shape).startswith(_INTEGERS)
      and hlo.num_elements(shape) > _MOST_SCALARS
    )

  def _data_beside(self, integers: int) -> int:
    """The data arguments of a step with state."""
    data = integers
    flow = self._flow
    in_products = [
      [self._needs[operand] for operand in flow.mixed[node]]
      for node, made_by in enumerate(flow.made_by)
      if made_by.opcode in _PRODUCTS
    ]
    for group in self._groups().values():
      if group & self._state:
        continue
      if group & integers or not integers:
        data |= group
      elif any(
        any(n and not n & ~group for n in needs)
        and any(n and not n & ~self._state for n in needs)
        for needs in in_products
      ):
        data |= group
    return data

  def _met_by_data(self) -> int:
    """Parameters: frozen ones, and those combined with data in activations."""
    found = self._all & ~self._data & ~self._state
    flow, needs = self._flow, self._needs
    for node, mask in enumerate(needs):
      if mask & self._data and not self._becomes[node]:
        for operand in itertools.chain(flow.copied[node], flow.mixed[node]):
          if not needs[operand] & self._data:
            found |= needs[operand]
    return found

  def _kind_of(self, bit: int) -> Kind:
    """The kind of an argument."""
    if not self._data:
      return "unknown"
    if self._data >> bit & 1:
      return "activation"
    return "parameter" if self._parameters >> bit & 1 else "optimizer state"

  @functools.cached_property
  def arguments(self) -> tuple[Argument, ...]:
    """The arguments of the step, in order."""
    named = zip(self._paths, self._shapes, strict=True)
    return tuple(
      Argument(name=name, kind=self._kind_of(bit), shape=shape)
      for bit, (name, shape) in enumerate(named)
    )

  def moved(self, collective: collectives_lib.Collective) -> tuple[Array, ...]:
    """The arrays that a collective moves, in order."""
    found = self._operation(collective)
    if found is None:
      return ()
    home, operation = found
    given, taken = collectives_lib.arrays(home, operation, collective.kind)
    arrived, nodes = array_flow.leaves(taken), self._nodes(operation)
    if len(given) != len(arrived):
      arrived = given
    return tuple(
      self._array(node, max(shapes, key=hlo.shape_bytes))
      for node, *shapes in zip(nodes, given, arrived, strict=False)
    )

  def _nodes(self, operation: hlo.Instruction) -> list[array_flow.Node]:
    """The nodes of an operation's operands; for a recv, of its results."""
    values = self._flow.values
    if operation.opcode == "recv":
      return [*values.get(operation.id, ())]
    given = (values.get(i, ()) for i in operation.operand_ids)
    return [*itertools.chain.from_iterable(given)]

  def _operation(
    self, collective: collectives_lib.Collective
  ) -> collectives_lib.Operation | None:
    """The communicating instruction, which a start may wrap."""
    home, start = self._starts[collective.start_id]
    if collectives_lib.kind_of(start):
      return home, start
    inside = [
      (computation, operation)
      for computation, operation in collectives_lib.payloads(
        self._module, start
      )
      if collectives_lib.kind_of(operation) == collective.kind
    ]
    for one in inside:
      if one[1].channel_id == collective.channel_id:
        return one
    return inside[0] if inside else None

  @functools.cached_property
  def _starts(self) -> Mapping[int, collectives_lib.Operation]:
    return {
      i.id: (c, i) for c in self._module.sequences for i in c.instructions
    }

  def _array(self, node: array_flow.Node, shape: hlo.Shape) -> Array:
    kind, mask = self._what(node)
    if kind == "activation" and hlo.num_elements(shape) <= _MOST_SCALARS:
      kind = "scalars"
    dimensions = ",".join(str(d) for d in shape.dimensions if d > 1)
    names = dict.fromkeys(self._paths[bit] for bit in _bits(mask))
    return Array(
      kind=kind,
      names=tuple(filter(None, names)),
      shape=f"{hlo.element_type(shape)}[{dimensions}]",
    )

  def _what(self, node: array_flow.Node) -> tuple[Kind, int]:
    """The kind of an array, and its arguments."""
    copies, becomes = self._has[node], self._becomes[node]
    if not self._data or not self._needs[node]:
      return "unknown", copies
    if self._needs[node] & self._data:
      if not becomes:
        return "activation", 0
      # Parameters are updated from optimizer state, never the reverse.
      of = becomes & self._parameters or becomes
      if not copies & self._state:
        return "gradient", of
    else:
      of = copies or self._needs[node]
      of = of & self._parameters or of
    is_parameter = of & self._parameters
    return "parameter" if is_parameter else "optimizer state", of

  def is_only_looked_up(self, collective: collectives_lib.Collective) -> bool:
    """Whether a gathered array is only used to look up rows."""
    uses = self._uses_of_gathered(collective)
    return bool(uses) and all(use.opcode == "gather" for use, _ in uses)

  def is_cut_again(self, collective: collectives_lib.Collective) -> bool:
    """Whether devices only slice their own part out of a gathered array."""
    uses = self._uses_of_gathered(collective)
    return bool(uses) and all(
      use.opcode == "dynamic-slice" and self._of_device[node]
      for use, node in uses
    )

  def _uses_of_gathered(
    self, collective: collectives_lib.Collective
  ) -> list[tuple[hlo.Instruction, array_flow.Node]]:
    """The uses of a gathered array, behind converts, slices and the like."""
    found = self._operation(collective)
    if found is None or collective.kind != "all-gather":
      return []
    flow, uses = self._flow, []
    todo = [*flow.values.get(found[1].id, ())]
    seen = set(todo)
    while todo:
      node = todo.pop()
      for user in self._used[node]:
        made_by = flow.made_by[user]
        if made_by.opcode in _PASSED_ON and node in flow.copied[user]:
          if user not in seen:
            seen.add(user)
            todo.append(user)
        else:
          uses.append((made_by, user))
    return uses

  @functools.cached_property
  def _of_device(self) -> list[int]:
    """Node -> 1 if it depends on which device runs it."""
    flow = self._flow
    own = [
      int(i.opcode in ("partition-id", "replica-id")) for i in flow.made_by
    ]
    return array_flow.reached(own, flow.mixed, flow.copied)

  def times_added_up(self, collective: collectives_lib.Collective) -> int:
    """How many reductions one could replace, if their results are summed.

    A loop that sums them counts in all its trips.
    """
    found = self._operation(collective)
    if found is None or collective.kind not in _REDUCTIONS:
      return 1
    times = (
      sum(map(self._trips_added_up, self._added_up(node)))
      for node, _ in self._reduced(found[1])
    )
    return max(min(times, default=1), self.parts_added_up(collective))

  def trips_added_up(self, collective: collectives_lib.Collective) -> int:
    """Trips of the longest loop that only sums a collective's results.

    1 if there is no such loop. Everything between the collective and the sum is
    linear, so one reduction after the loop gives the same result.
    """
    found = self._operation(collective)
    if found is None or collective.kind not in _REDUCTIONS:
      return 1
    nodes = (node for node, _ in self._reduced(found[1]))
    return min(map(self._trips_added_up, nodes), default=1)

  def _reduced(
    self, instruction: hlo.Instruction
  ) -> Iterator[tuple[array_flow.Node, hlo.Shape]]:
    """The arrays that a reduction returns, each of those that XLA combined."""
    made_by = self._flow.made_by
    nodes = self._flow.values.get(instruction.id, ())
    shapes = array_flow.leaves(instruction.shape)[-len(nodes) :]
    for node, shape in zip(nodes, shapes, strict=False):
      users = self._used[node]
      if users and all(made_by[n].opcode == "slice" for n in users):
        yield from ((user, made_by[user].shape) for user in users)
      else:
        yield node, shape

  def _trips_added_up(self, node: array_flow.Node) -> int:
    trips, reduced = [1], self._linear(node)
    for loop, begin, end in self._flow.loops.values():
      for first, last in zip(begin, end, strict=True):
        if last in reduced and first not in reduced:
          # Nothing else may use the sum that the next trip takes.
          users = (self._flow.made_by[user] for user in self._used[last])
          if all(user is loop for user in users) and self._only_sums(
            node, first, last
          ):
            trips.append(self._module.trip_count(loop))
    return max(trips)

  def bytes_if_summed_first(
    self, collective: collectives_lib.Collective
  ) -> int:
    """Bytes that a GPU needs more to sum results before they are reduced.

    Sums of a reduce-scatter's operands are larger than those of its results;
    those of an all-reduce are not.
    """
    found = self._operation(collective)
    nodes = self._flow.values.get(found[1].id, ()) if found else ()
    made_by = self._flow.made_by
    sums = [
      node
      for one in nodes
      for node in self._linear(one)
      if made_by[node].opcode in _SUMS
    ]
    bits = given_bits = hlo.element_bits(collective.element_type)
    if sums:
      bits = hlo.element_bits(hlo.element_type(made_by[min(sums)].shape))
    more_bytes = collective.operand_bytes - collective.result_bytes
    runs = collective.executions / self.times_added_up(collective)
    return math.ceil(runs * more_bytes * bits / given_bits)

  def parts_added_up(self, collective: collectives_lib.Collective) -> int:
    """The number of reduced parts of a stack that are then only summed.

    1 if a collective's results are used in any other way.
    """
    found = self._operation(collective)
    if found is None or collective.kind not in _REDUCTIONS:
      return 1
    flow, numbers = self._flow, []
    todo = [*flow.values.get(found[1].id, ())]
    seen = set(todo)
    while todo:
      node = todo.pop()
      for user in self._used[node] or (node,):
        if node not in self._linear_in(user):
          return 1
        if flow.made_by[user].opcode == "reduce":
          size = hlo.num_elements(flow.made_by[user].shape)
          stack = flow.made_by[flow.copied[user][0]].shape
          numbers.append(hlo.num_elements(stack) // size)
        elif user not in seen:
          seen.add(user)
          todo.append(user)
    return min(numbers, default=1)

  def num_added_up(self, collective: collectives_lib.Collective) -> int:
    """Collectives, including this one, whose results are only summed."""
    found = self._operation(collective)
    if found is None:
      return 1
    nodes = self._sums_of.keys() & {n for n, _ in self._reduced(found[1])}
    return min((len(self._added_up(node)) for node in nodes), default=1)

  def _added_up(self, node: array_flow.Node) -> list[array_flow.Node]:
    """A reduced array, and those to which it is only added."""
    sums_of = self._sums_of
    form, sums = sums_of.get(node, (None, set()))
    return [node] + [
      other
      for other, (other_form, other_sums) in sums_of.items()
      if other != node
      and other_form == form
      and (common := sums & other_sums)
      and self._only_sums(node, other, min(common))
      and self._places(node, other) == self._places(other, node)
    ]

  def _places(self, node: array_flow.Node, other: array_flow.Node) -> set[Any]:
    """Where larger arrays hold one array, before it meets another."""
    met = min(self._linear(node) & self._linear(other))
    return {place for user, place in self._held(node) if user <= met}

  def _held(self, node: array_flow.Node) -> list[tuple[array_flow.Node, Any]]:
    """Larger arrays that hold an array, and where.

    Gradients of stacked layers are padded to the stack's size and added up.
    """
    found = self._known_held.get(node)
    if found is not None:
      return found
    self._known_held[node] = found = []
    flow, linear = self._flow, self._linear(node)
    for user in linear:
      made_by = flow.made_by[user]
      match made_by.opcode:
        case "pad":
          found.append((user, made_by.padding_config.SerializeToString()))
        case "concatenate":
          parts = enumerate(flow.copied[user])
          found += ((user, (user, i)) for i, part in parts if part in linear)
        case "dynamic-update-slice":
          indices = tuple(self._numbers[n] for n in flow.mixed[user])
          found.append((user, indices))
    return found

  @functools.cached_property
  def _numbers(self) -> list[int]:
    """Node -> a number, the same for scalars that are computed alike.

    Counters of loops with the same first value and trips are alike.
    """
    flow, numbers = self._flow, list[int]()
    known: dict[Any, int] = {}
    for node, made_by in enumerate(flow.made_by):
      sources = [n for n in flow.copied[node] + flow.mixed[node] if n < node]
      given = [numbers[n] for n in sources]
      key: Any = node
      if made_by.opcode == "while":
        key = self._module.trip_count(made_by), *given
      elif hlo.num_elements(made_by.shape) > 1:
        pass
      elif made_by.opcode == "constant":
        key = made_by.literal.SerializeToString(deterministic=True)
      elif made_by.opcode in array_flow.PLACES_STAY and len(given) == 1:
        numbers += given
        continue
      elif made_by.opcode in _OF_INDICES:
        key = made_by.opcode, made_by.comparison_direction, *given
      numbers.append(known.setdefault(key, node))
    return numbers

  @functools.cached_property
  def _sums_of(
    self,
  ) -> Mapping[array_flow.Node, tuple[Any, set[array_flow.Node]]]:
    """Array reduced over devices -> how, and the sums in which it is a term.

    Shapes do not matter, because XLA flattens arrays to combine them.
    """
    made_by = self._flow.made_by
    reductions = {
      instruction.id: instruction
      for instruction in made_by
      if collectives_lib.kind_of(instruction) in _REDUCTIONS
      and hlo.num_elements(instruction.shape) > _MOST_SCALARS
    }
    found = {}
    for instruction in reductions.values():
      kind = collectives_lib.kind_of(instruction)
      groups = replica_groups.of(instruction, None)
      for node, shape in self._reduced(instruction):
        form = kind, groups, shape.element_type, hlo.num_elements(shape)
        linear = self._linear(node)
        sums = {n for n in linear if made_by[n].opcode in _SUMS}
        found[node] = form, sums
    return found

  def _only_sums(
    self, one: array_flow.Node, other: array_flow.Node, last: array_flow.Node
  ) -> bool:
    """Whether two arrays are only added to each other, up to `last`."""
    flow, used = self._flow, self._used
    mine, others = (self._linear(node, last) for node in (one, other))
    if last not in others:
      return False
    return all(
      (mine | others).issuperset(used[node])
      for node in mine | others
      if node != last
    ) and any(flow.made_by[node].opcode in _SUMS for node in mine & others)

  @functools.cached_property
  def _used(self) -> array_flow.Edges:
    """Node -> nodes made from it, except in the next trip of a loop."""
    flow = self._flow
    used: array_flow.Edges = [[] for _ in flow.copied]
    for edges in (flow.copied, flow.mixed):
      for node, others in enumerate(edges):
        for other in others:
          if other < node:
            used[other].append(node)
    return used

  def _linear(
    self, node: array_flow.Node, last: array_flow.Node | None = None
  ) -> set[array_flow.Node]:
    """Arrays that are linear in one, including itself, up to `last`."""
    found = self._known_linear.get((node, last))
    if found is not None:
      return found
    todo, seen = [node], {node}
    self._known_linear[node, last] = seen
    while todo:
      node = todo.pop()
      for user in self._used[node] if node != last else ():
        if user not in seen and node in self._linear_in(user):
          seen.add(user)
          todo.append(user)
    return seen

  def _linear_in(self, node: array_flow.Node) -> list[array_flow.Node]:
    """The arrays in which an array is linear, of those it is made from."""
    copied, opcode = self._flow.copied[node], self._flow.made_by[node].opcode
    if opcode in ("multiply", "divide"):  # By a constant.
      needed = [n for n in copied if self._needs[n]]
      return needed if len(needed) == 1 else []
    return copied if opcode in _LINEAR else []


def _is_alike(one: hlo.Shape, other: hlo.Shape) -> bool:
  return (
    one.element_type == other.element_type
    and one.dimensions == other.dimensions
  )
