# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""The arrays from which each array of a module is made.

Operations that move elements, or change them one by one, *copy* an array:
tuples, loops and calls, reshapes, slices, fusions, converts, sums, collectives.
Products, reductions, gathers and broadcasts *mix*: the result depends on the
operands but is another array. A sum over a stacked dimension, such as over
gradients of micro-batches, copies.
"""

from __future__ import annotations

import collections
from collections.abc import Mapping
import itertools
import math

from lagom_xla.passes import collectives as collectives_lib
from lagom_xla.passes import hlo

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
# Operations that keep the place of each element, up to a reshape or transpose.
PLACES_STAY = frozenset(
  [
    *("add-dependency", "bitcast", "call", "convert", "copy", "copy-start"),
    *("fusion", "opt-barrier", "parameter", "reshape", "transpose"),
  ]
)
_CALLS = frozenset(["async-start", "call", "fusion"])
# Operations that may stand between a stack of parts and their sum.
_OF_STACKS = frozenset(
  [*PLACES_STAY, "multiply", "slice", "while"]
  + [kind + end for kind in collectives_lib.KINDS for end in ("", "-start")]
)

# The index of one array of a value.
Node = int
Nodes = tuple[Node, ...]
Edges = list[list[Node]]


class Flow:
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
    self.copied: Edges = []
    self.mixed: Edges = []
    self.made_by: list[hlo.Instruction] = []
    self.values: dict[int, Nodes] = {}
    self.loops: dict[int, tuple[hlo.Instruction, Nodes, Nodes]] = {}
    self._module = module
    self._shapes = {i.id: i.shape for i in module.instructions}
    self._times_called = collections.Counter(
      called_id
      for instruction in module.instructions
      if not instruction.opcode.endswith(("-done", "-update"))
      for called_id in instruction.called_computation_ids
    )
    self._parameters: dict[int, dict[int, Nodes]] = {}
    self._sent: dict[int, list[Node]] = collections.defaultdict(list)
    self.arguments = {
      i.parameter_number: self._fresh(i) for i in module.entry.parameters
    }
    self.results = self._computation(module.entry, self.arguments)

  def _fresh(
    self, instruction: hlo.Instruction, number: int | None = None
  ) -> Nodes:
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
    self, computation: hlo.Computation, given: Mapping[int, Nodes]
  ) -> Nodes:
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

  def _join(self, nodes: Nodes, others: Nodes) -> None:
    """Marks arrays as copies of others."""
    if len(nodes) != len(others):
      for node in nodes:
        self.mixed[node] += others
      return
    for node, other in zip(nodes, others, strict=True):
      if node != other:
        self.copied[node].append(other)

  def _copy(self, instruction: hlo.Instruction, *of: Nodes) -> Nodes:
    made = self._fresh(instruction)
    for nodes in of:
      self._join(made, nodes)
    return made

  def _value(self, instruction: hlo.Instruction) -> Nodes:
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

  def _element(self, instruction: hlo.Instruction, nodes: Nodes) -> Nodes:
    """The nodes of one element of a tuple."""
    parts = self._shapes[instruction.operand_ids[0]].tuple_shapes
    ends = list(itertools.accumulate(len(leaves(part)) for part in parts))
    if not ends or ends[-1] != len(nodes):  # Of a start.
      return self._copy(instruction, nodes)
    end = ends[instruction.tuple_index]
    return nodes[end - len(leaves(instruction.shape)) : end]

  def _made(self, instruction: hlo.Instruction, operands: list[Nodes]) -> Nodes:
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
    self, instruction: hlo.Instruction, operand: int, nodes: Nodes
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
    self, instruction: hlo.Instruction, nodes: Nodes
  ) -> bool:
    """Whether a reduction sums the parts of a stack."""
    called = self._module.computations[instruction.called_computation_ids[0]]
    if called.root.opcode != "add" or len(nodes) != 1:
      return False
    given = self._shapes[instruction.operand_ids[0]]
    size = hlo.num_elements(instruction.shape)
    number = hlo.num_elements(given) // max(size, 1)
    return number > 1 and self._is_stack(nodes[0], number)

  def _is_stack(self, node: Node, number: int, start: int = 0) -> bool:
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


def reached(masks: list[int], *ways: Edges) -> list[int]:
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


def becoming(masks: list[int], edges: Edges) -> list[int]:
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
