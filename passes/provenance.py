# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""What each array of a step is: a parameter, a gradient, an activation.

    arrays = provenance.of(module)
    arrays.moved(collective)  # (Array(kind="gradient", names=("p['w']",), …),)

JAX names the arguments of a step by their paths. This module follows arrays
from there to the results. Operations that move elements, or change them one by
one, *copy* an array: tuples, loops and calls, reshapes, slices, fusions,
converts, sums, collectives. Products, reductions, gathers and broadcasts *mix*:
the result depends on the operands but is another array. A sum over a stacked
dimension, such as over gradients of micro-batches, copies.

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

import collections
from collections.abc import Iterator, Mapping
import dataclasses
import functools
import itertools
import math
import re
from typing import Literal
import weakref

from lagom_xla.passes import collectives as collectives_lib
from lagom_xla.passes import hlo

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

# Opcodes that move elements, or make each element of a result from one element
# of each operand -> the number of operands that they copy. The other operands
# are indices.
_COPYING: Mapping[str, int] = {
  **dict.fromkeys(
    [
      *("abs", "add", "add-dependency", "and", "atan2", "bitcast"),
      *("bitcast-convert", "cbrt", "ceil", "clamp", "concatenate", "convert"),
      *("copy", "copy-start", "cosine", "divide", "domain", "erf"),
      *("exponential", "exponential-minus-one", "floor", "log"),
      *("log-plus-one", "logistic", "maximum", "minimum", "multiply"),
      *("negate", "not", "opt-barrier", "or", "power", "reduce-precision"),
      *("remainder", "reshape", "reverse", "round-nearest-afz"),
      *("round-nearest-even", "rsqrt", "select", "sign", "sine", "slice"),
      *("sqrt", "subtract", "tan", "tanh", "transpose", "xor"),
      *(kind + end for kind in collectives_lib.KINDS for end in ("", "-start")),
    ],
    1_000_000,
  ),
  **{"dynamic-slice": 1, "dynamic-update-slice": 2, "pad": 1, "scatter": 1},
  **{"ragged-all-to-all": 1, "collective-permute": 1},
}
# Starts whose shape also holds arrays other than results.
_IN_PLACE = frozenset(["collective-permute-start", "copy-start"])
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
_PLACES_STAY = frozenset(
  [
    *("add-dependency", "bitcast", "call", "convert", "copy", "copy-start"),
    *("fusion", "opt-barrier", "parameter", "reshape", "transpose"),
  ]
)
_PRODUCTS = frozenset(["convolution", "custom-call", "dot", "ragged-dot"])
_CALLS = frozenset(["async-start", "call", "fusion"])
_REDUCTIONS = frozenset(["all-reduce", "reduce-scatter"])
_SUMS = frozenset(["add", "reduce", "subtract"])
# Operations that may stand between a stack of parts and their sum.
_OF_STACKS = frozenset(
  [*_PLACES_STAY, "multiply", "slice", "while"]
  + [kind + end for kind in collectives_lib.KINDS for end in ("", "-start")]
)
# An argument's name, with which its paths begin.
_ROOT = re.compile(r"^\w+")
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

# The index of one array of a value.
_Node = int
_Nodes = tuple[_Node, ...]
_Edges = list[list[_Node]]


class _Flow:
  """The arrays from which each array of a module is made.

  A value is a tuple of nodes, one for each array in it. An instruction that
  only passes values on, such as a tuple, has its operands' nodes. Nodes come
  after their sources, except in loops.

  Attributes:
    copied: node -> nodes whose elements it copies.
    mixed: node -> other nodes that it depends on.
    made_by: node -> the instruction that makes it.
    values: id of an instruction -> its nodes.
    loops: id of a `while` -> the instruction, and the nodes of its state at the
      beginning and the end of a trip.
    arguments: number of a parameter of the entry -> its nodes.
    results: nodes that the entry returns.
  """

  def __init__(self, module: hlo.Module):
    self.copied: _Edges = []
    self.mixed: _Edges = []
    self.made_by: list[hlo.Instruction] = []
    self.values: dict[int, _Nodes] = {}
    self.loops: dict[int, tuple[hlo.Instruction, _Nodes, _Nodes]] = {}
    self._module = module
    computations = module.computations.values()
    self._shapes = {i.id: i.shape for c in computations for i in c.instructions}
    self._times_called = collections.Counter(
      called_id
      for computation in computations
      for instruction in computation.instructions
      if not instruction.opcode.endswith(("-done", "-update"))
      for called_id in instruction.called_computation_ids
    )
    self._parameters: dict[int, dict[int, _Nodes]] = {}
    self._sent: dict[int, list[_Node]] = collections.defaultdict(list)
    self.arguments = {
      i.parameter_number: self._fresh(i) for i in module.entry.parameters
    }
    self.results = self._computation(module.entry, self.arguments)

  def _fresh(
    self, instruction: hlo.Instruction, number: int | None = None
  ) -> _Nodes:
    """Makes nodes for the results of an instruction."""
    if number is None:
      number = len(leaves(instruction.shape))
    first = len(self.copied)
    for _ in range(number):
      self.copied.append([])
      self.mixed.append([])
      self.made_by.append(instruction)
    return tuple(range(first, first + number))

  def _computation(
    self, computation: hlo.Computation, given: Mapping[int, _Nodes]
  ) -> _Nodes:
    """The nodes that a computation returns."""
    own = self._parameters.get(computation.id)
    if own is None:
      # With several callers, parameters need their own nodes.
      is_shared = self._times_called[computation.id] > 1
      self._parameters[computation.id] = own = {}
      for parameter in computation.parameters:
        number = parameter.parameter_number
        if is_shared or number not in given:
          own[number] = self._fresh(parameter)
        else:
          own[number] = given[number]
        self.values[parameter.id] = own[number]
      for instruction in computation.instructions:
        if instruction.opcode != "parameter":
          self.values[instruction.id] = self._value(instruction)
    for number, nodes in given.items():
      if number in own:
        self._join(own[number], nodes)
    return self.values[computation.proto.root_id]

  def _join(self, nodes: _Nodes, others: _Nodes) -> None:
    """Marks arrays as copies of others."""
    if len(nodes) != len(others):
      for node in nodes:
        self.mixed[node] += others
      return
    for node, other in zip(nodes, others, strict=True):
      if node != other:
        self.copied[node].append(other)

  def _copy(self, instruction: hlo.Instruction, *of: _Nodes) -> _Nodes:
    made = self._fresh(instruction)
    for nodes in of:
      self._join(made, nodes)
    return made

  def _value(self, instruction: hlo.Instruction) -> _Nodes:
    opcode = instruction.opcode
    operands = [self.values[i] for i in instruction.operand_ids]
    called = [
      self._module.computations[i] for i in instruction.called_computation_ids
    ]
    if opcode == "tuple":
      return tuple(itertools.chain(*operands))
    if opcode == "get-tuple-element":
      return self._element(instruction, operands[0])
    if opcode.endswith(("-done", "-update")) and operands:
      return operands[0]
    if opcode == "while":
      begin = self._copy(instruction, operands[0])
      end = self._computation(called[0], {0: begin})
      self._join(begin, end)
      self.loops[instruction.id] = instruction, begin, end
      return self._copy(instruction, end)
    if opcode == "conditional":
      branches = zip(called, operands[1:], strict=False)
      made = [self._computation(one, {0: given}) for one, given in branches]
      return self._copy(instruction, *made)
    if opcode in _CALLS and len(called) == 1:
      result = self._computation(called[0], dict(enumerate(operands)))
      # An async-start also returns its operands; its done does not.
      is_start = opcode == "async-start"
      return result if is_start else self._copy(instruction, result)
    return self._made(instruction, operands)

  def _element(self, instruction: hlo.Instruction, nodes: _Nodes) -> _Nodes:
    """The nodes of one element of a tuple."""
    parts = self._shapes[instruction.operand_ids[0]].tuple_shapes
    ends = list(itertools.accumulate(len(leaves(part)) for part in parts))
    if not ends or ends[-1] != len(nodes):  # Of a start.
      return self._copy(instruction, nodes)
    end = ends[instruction.tuple_index]
    return nodes[end - len(leaves(instruction.shape)) : end]

  def _made(
    self, instruction: hlo.Instruction, operands: list[_Nodes]
  ) -> _Nodes:
    """The nodes of an instruction that computes or moves arrays."""
    opcode = instruction.opcode
    flat = list(itertools.chain(*operands))
    if opcode in ("send", "recv"):  # A recv gets what is sent on its channel.
      made = self._fresh(instruction, 1)
      sent = self._sent[instruction.channel_id]
      if opcode == "send":
        sent.append(flat[0])
      self.copied[made[0]] += sent
      return made
    is_start = opcode.endswith("-start")
    number = len(flat) if is_start and opcode not in _IN_PLACE else None
    made = self._fresh(instruction, 1 if opcode in _IN_PLACE else number)
    is_moved = collectives_lib.kind_of(instruction) or opcode == "opt-barrier"
    if is_moved and len(made) == len(flat) and not opcode.startswith("all-to"):
      self._join(made, tuple(flat))
      return made
    for operand, nodes in enumerate(operands):
      copies = self._copies(instruction, operand, nodes)
      ways = self.copied if copies else self.mixed
      for node in made:
        ways[node] += nodes
    return made

  def _copies(
    self, instruction: hlo.Instruction, operand: int, nodes: _Nodes
  ) -> bool:
    """Whether an instruction copies elements of an operand."""
    match instruction.opcode:
      case "broadcast":  # Adds dimensions of size 1, or repeats elements.
        may_copy = True
      case "custom-call":  # A library's product adds to its third operand.
        may_copy = len(instruction.operand_ids) == 1 or operand == 2
      case "reduce":
        return operand == 0 and self._adds_up_a_stack(instruction, nodes)
      case "select":
        return operand > 0
      case opcode:
        return operand < _COPYING.get(opcode, 0)
    given = self._shapes[instruction.operand_ids[operand]]
    size = hlo.num_elements(instruction.shape)
    return may_copy and hlo.num_elements(given) == size

  def _adds_up_a_stack(
    self, instruction: hlo.Instruction, nodes: _Nodes
  ) -> bool:
    """Whether a reduction sums the parts of a stack."""
    called = self._module.computations[instruction.called_computation_ids[0]]
    if called.root.opcode != "add" or len(nodes) != 1:
      return False
    given = self._shapes[instruction.operand_ids[0]]
    size = hlo.num_elements(instruction.shape)
    number = hlo.num_elements(given) // max(size, 1)
    return number > 1 and self._is_stack(nodes[0], number)

  def _is_stack(self, node: _Node, number: int, start: int = 0) -> bool:
    """Whether an array is a stack of `number` parts.

    If it is combined with other arrays for a collective, it begins at element
    `start`.
    """
    made_by, of = self.made_by[node], self.copied[node]
    if self._num_stacked(made_by) == number:
      return True
    if made_by.opcode == "slice" and len(made_by.slice_dimensions) == 1:
      start += made_by.slice_dimensions[0].start
    if made_by.opcode == "concatenate":
      for part, operand in zip(of, made_by.operand_ids, strict=False):
        size = hlo.num_elements(self._shapes[operand])
        if start < size:
          return self._is_stack(part, number, start)
        start -= size
    of = [n for n in of if n < node]
    return (
      made_by.opcode in _OF_STACKS
      and len(of) == 1
      and self._is_stack(of[0], number, start)
    )

  def _num_stacked(self, instruction: hlo.Instruction) -> int:
    """The number of parts that an instruction stacks; 0 if it stacks none."""
    shapes = [self._shapes[i] for i in instruction.operand_ids]
    match instruction.opcode:
      case "concatenate":
        return len(shapes)
      case "reduce":  # The first of two, with a collective in between.
        return next(iter(instruction.shape.dimensions), 0)
      case "dynamic-update-slice":
        part = hlo.num_elements(shapes[1])
        return hlo.num_elements(instruction.shape) // max(part, 1)
      case "dot":
        dims = instruction.dot_dimension_numbers.lhs_batch_dimensions
      case "custom-call":
        config = self._module.backend_config(instruction)
        product = config.get("gemm_backend_config", {})
        numbers = product.get("dot_dimension_numbers", {})
        dims = map(int, numbers.get("lhs_batch_dimensions", ()))
      case _:
        return 0
    return math.prod(shapes[0].dimensions[dim] for dim in dims)


def leaves(shape: hlo.Shape) -> list[hlo.Shape]:
  """The arrays of a shape."""
  if shape.element_type != hlo.TUPLE:
    return [shape]
  return [leaf for part in shape.tuple_shapes for leaf in leaves(part)]


def _reached(masks: list[int], *ways: _Edges) -> list[int]:
  """The bits of each node and all its sources."""
  has_changed = True
  while has_changed:
    has_changed = False
    for node, mask in enumerate(masks):
      new = mask
      for edges in ways:
        for other in edges[node]:
          new |= masks[other]
      if new != mask:
        masks[node], has_changed = new, True
  return masks


def _becoming(masks: list[int], edges: _Edges) -> list[int]:
  """The bits of each node and all nodes made from it."""
  has_changed = True
  while has_changed:
    has_changed = False
    for node in reversed(range(len(masks))):
      if mask := masks[node]:
        for other in edges[node]:
          if masks[other] | mask != masks[other]:
            masks[other] |= mask
            has_changed = True
  return masks


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
    self._module, self._flow = module, _Flow(module)
    flow = self._flow
    self._paths: list[str] = []
    self._shapes: list[hlo.Shape] = []
    nodes: list[_Node] = []
    for parameter in sorted(
      module.entry.parameters, key=lambda i: i.parameter_number
    ):
      shapes = leaves(parameter.shape)
      self._shapes += shapes
      self._paths += [parameter.metadata.op_name] * len(shapes)
      nodes += flow.arguments[parameter.parameter_number]
    own = [0] * len(flow.copied)
    for bit, node in enumerate(nodes):
      own[node] |= 1 << bit
    # Per node: the arguments that it copies, and all that it depends on.
    self._copies = _reached([*own], flow.copied)
    self._needs = _reached([*own], flow.copied, flow.mixed)
    # If XLA adds state before a reduction, a select makes one device do it.
    chosen = [
      [] if made_by.opcode == "select" and self._of_device[node] else copied
      for node, (made_by, copied) in enumerate(
        zip(flow.made_by, flow.copied, strict=True)
      )
    ]
    self._has = _reached(own, chosen)
    self._new = self._new_state()
    self._state = sum({1 << bit for bit in self._new.values()})
    becoming = [0] * len(flow.copied)
    for result, bit in self._new.items():
      becoming[flow.results[result]] |= 1 << bit
    # Per node: the arguments whose new values it is copied into.
    self._becomes = _becoming(becoming, flow.copied)
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
    shapes = leaves(module.entry.root.shape)
    found: dict[int, int] = {}
    if len(shapes) != len(results):
      return found
    is_donated = {
      tuple(entry.output_shape_index): entry.parameter_number
      for entry in module.proto.input_output_alias.entries
      if not entry.parameter_shape_index
    }
    if len(self._flow.arguments) == len(self._shapes):
      for index, number in is_donated.items():
        if len(index) < 2 and number < len(self._shapes):
          found[index[0] if index else 0] = number
    left = self._all & ~sum({1 << bit for bit in found.values()})
    # New state copies old state. Optimizer state copies only its own, so the
    # results that copy the fewest arguments come first.
    others = [i for i in range(len(results)) if i not in found]
    for result in sorted(
      others, key=lambda i: self._copies[results[i]].bit_count()
    ):
      for bit in _bits(self._copies[results[result]] & left):
        if _is_alike(self._shapes[bit], shapes[result]):
          found[result] = bit
          left &= ~(1 << bit)
          break
    if not found and self._differentiates:  # It returns gradients.
      for result, shape in enumerate(shapes):
        for bit in _bits(left):
          if _is_alike(self._shapes[bit], shape):
            found[result] = bit
            left &= ~(1 << bit)
            break
    return found

  @property
  def _differentiates(self) -> bool:
    return any(
      "transpose(" in instruction.metadata.op_name
      for computation in self._module.computations.values()
      for instruction in computation.instructions
    )

  def _groups(self) -> Mapping[str, int]:
    """Arguments by the first word of their paths; those without one alone."""
    groups: dict[str, int] = {}
    for bit, path in enumerate(self._paths):
      root = _ROOT.match(path)
      key = root[0] if root else str(bit)
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
    arrived, nodes = leaves(taken), self._nodes(operation)
    if len(given) != len(arrived):
      arrived = given
    return tuple(
      self._array(node, max(shapes, key=hlo.shape_bytes))
      for node, *shapes in zip(nodes, given, arrived, strict=False)
    )

  def _nodes(self, operation: hlo.Instruction) -> list[_Node]:
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

  def _array(self, node: _Node, shape: hlo.Shape) -> Array:
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

  def _what(self, node: _Node) -> tuple[Kind, int]:
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
    """Whether each device slices its own part out of a gathered array."""
    uses = self._uses_of_gathered(collective)
    return any(
      use.opcode == "dynamic-slice" and self._of_device[node]
      for use, node in uses
    )

  def _uses_of_gathered(
    self, collective: collectives_lib.Collective
  ) -> list[tuple[hlo.Instruction, _Node]]:
    """The uses of a gathered array, behind converts, reshapes and the like."""
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
        if made_by.opcode in _PLACES_STAY and node in flow.copied[user]:
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
    return _reached(own, flow.mixed, flow.copied)

  def times_added_up(self, collective: collectives_lib.Collective) -> int:
    """How many reductions one could replace, if their results are summed."""
    return max(
      self.trips_added_up(collective),
      self.num_added_up(collective),
      self.parts_added_up(collective),
    )

  def trips_added_up(self, collective: collectives_lib.Collective) -> int:
    """Trips of the longest loop that only sums a collective's results.

    1 if there is no such loop. Everything between the collective and the sum is
    linear, so one reduction after the loop gives the same result.
    """
    found = self._operation(collective)
    if found is None or collective.kind not in _REDUCTIONS:
      return 1
    nodes = self._flow.values.get(found[1].id, ())
    return min(map(self._trips_added_up, nodes), default=1)

  def _trips_added_up(self, node: _Node) -> int:
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
    nodes = set(self._flow.values.get(found[1].id, ())) & set(self._sums_of)
    return min(map(self._num_added_up, nodes), default=1)

  def _num_added_up(self, node: _Node) -> int:
    """The same for one array."""
    made_by, sums_of = self._flow.made_by, self._sums_of
    number = 1
    for other, sums in sums_of.items():
      common = sums & sums_of[node]
      if (
        other != node
        and common
        and made_by[other].opcode == made_by[node].opcode
        and _is_alike(made_by[other].shape, made_by[node].shape)
        and self._only_sums(node, other, min(common))
      ):
        number += 1
    return number

  @functools.cached_property
  def _sums_of(self) -> Mapping[_Node, set[_Node]]:
    """Array reduced over devices -> the sums in which it is a term."""
    made_by = self._flow.made_by
    return {
      node: {n for n in self._linear(node) if made_by[n].opcode in _SUMS}
      for node, instruction in enumerate(made_by)
      if collectives_lib.kind_of(instruction) in _REDUCTIONS
      and hlo.num_elements(instruction.shape) > _MOST_SCALARS
    }

  def _only_sums(self, one: _Node, other: _Node, last: _Node) -> bool:
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
  def _used(self) -> _Edges:
    """Node -> nodes made from it, except in the next trip of a loop."""
    flow = self._flow
    used: _Edges = [[] for _ in flow.copied]
    for edges in (flow.copied, flow.mixed):
      for node, others in enumerate(edges):
        for other in others:
          if other < node:
            used[other].append(node)
    return used

  def _linear(self, node: _Node, last: _Node | None = None) -> set[_Node]:
    """Arrays that are linear in one, including itself, up to `last`."""
    todo, seen = [node], {node}
    while todo:
      node = todo.pop()
      for user in self._used[node] if node != last else ():
        if user not in seen and node in self._linear_in(user):
          seen.add(user)
          todo.append(user)
    return seen

  def _linear_in(self, node: _Node) -> list[_Node]:
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
