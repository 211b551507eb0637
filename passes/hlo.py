# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""An HLO module: its computations, their schedule, and how often each runs.

All of it comes from the HloModuleProto (`hlo.proto`), which every jaxlib writes
and a rewriting pass can return. `hlo_source.py` gets it from files, text and
executables.

    module = hlo.load("step.hlo.xz")       # text or proto, .xz and .gz too
    module = hlo.load(compiled)            # jax.stages.Compiled
    for instruction in module.entry.instructions:   # in schedule order
      ...

Instructions are the protos themselves, so a rewrite pass edits them directly.
"""

from __future__ import annotations

import collections
from collections.abc import Container, Iterator, Mapping, Sequence
import dataclasses
import functools
import json
import math
import pathlib
from typing import Any

from lagom_xla.passes import hlo_pb2
from lagom_xla.passes import hlo_source

Instruction = hlo_pb2.HloInstructionProto
Shape = hlo_pb2.ShapeProto

# xla_data.proto, enum PrimitiveType: number -> (HLO name, bits).
_ELEMENT_TYPES: Mapping[int, tuple[str, int]] = {
    1: ("pred", 8), 2: ("s8", 8), 3: ("s16", 16), 4: ("s32", 32),
    5: ("s64", 64), 6: ("u8", 8), 7: ("u16", 16), 8: ("u32", 32),
    9: ("u64", 64), 10: ("f16", 16), 11: ("f32", 32), 12: ("f64", 64),
    15: ("c64", 64), 16: ("bf16", 16), 18: ("c128", 128), 19: ("f8e5m2", 8),
    20: ("f8e4m3fn", 8), 21: ("s4", 4), 22: ("u4", 4),
    23: ("f8e4m3b11fnuz", 8), 24: ("f8e5m2fnuz", 8), 25: ("f8e4m3fnuz", 8),
    26: ("s2", 2), 27: ("u2", 2), 28: ("f8e4m3", 8), 29: ("f8e3m4", 8),
    30: ("s1", 1), 31: ("u1", 1), 32: ("f4e2m1fn", 4), 33: ("f8e8m0fnu", 8),
    35: ("f6e2m3fn", 6), 36: ("f6e3m2fn", 6),
}  # fmt: skip
TUPLE = 13  # In the same enum.

# Computations that these call run as sequences of their own. Computations that
# other instructions call (fusion, reduce, sort, ...) are part of a kernel.
_CALLS = frozenset(["while", "conditional", "call"])
_CONTROL_FLOW = _CALLS | {"async-start"}


@dataclasses.dataclass(frozen=True, eq=False)
class Computation:
  """One computation; instructions are in schedule order if scheduled."""

  proto: hlo_pb2.HloComputationProto
  instructions: tuple[Instruction, ...]

  @property
  def id(self) -> int:
    """Unique among the computations of a module."""
    return self.proto.id

  @property
  def name(self) -> str:
    """The name that XLA prints."""
    return self.proto.name

  @functools.cached_property
  def by_id(self) -> Mapping[int, Instruction]:
    """The instructions, by id."""
    return {i.id: i for i in self.instructions}

  @functools.cached_property
  def position(self) -> Mapping[int, int]:
    """Index in `instructions`, by instruction id."""
    return {i.id: index for index, i in enumerate(self.instructions)}

  @functools.cached_property
  def opcodes(self) -> frozenset[str]:
    """Opcodes of the instructions, to skip a computation quickly."""
    return frozenset(i.opcode for i in self.instructions)

  @property
  def root(self) -> Instruction:
    """The instruction whose value the computation returns."""
    return self.by_id[self.proto.root_id]

  @property
  def parameters(self) -> list[Instruction]:
    """The parameters, in schedule order."""
    return [i for i in self.instructions if i.opcode == "parameter"]

  @property
  def loops(self) -> Iterator[Instruction]:
    """The `while` instructions."""
    if "while" in self.opcodes:
      yield from (i for i in self.instructions if i.opcode == "while")

  def operands(self, instruction: Instruction) -> list[Instruction]:
    """The instructions whose values an instruction takes."""
    return [self.by_id[i] for i in instruction.operand_ids]

  def behind(
    self, instruction: Instruction, opcodes: Container[str]
  ) -> Instruction:
    """Follows a value back through instructions of these opcodes.

    Stops at an instruction with several operands.
    """
    while instruction.opcode in opcodes and len(instruction.operand_ids) == 1:
      instruction = self.by_id[instruction.operand_ids[0]]
    return instruction


@dataclasses.dataclass(frozen=True, eq=False)
class Module:
  """An HLO module.

  Attributes:
    proto: the module as XLA serialized it.
    num_partitions: devices that the module was partitioned for, if known (text
      headers and compiled objects say so, protos do not).
    num_replicas: how many of those are replicas, if known.
  """

  proto: hlo_pb2.HloModuleProto
  num_partitions: int | None = None
  num_replicas: int | None = None

  @property
  def name(self) -> str:
    """The name of the compiled function, such as jit_step."""
    return self.proto.name

  @property
  def is_scheduled(self) -> bool:
    """Whether XLA fixed the order in which instructions run."""
    return bool(self.proto.schedule.sequences)

  @functools.cached_property
  def num_instructions(self) -> int:
    """The number of instructions in all computations, including fusions."""
    return sum(len(c.instructions) for c in self.proto.computations)

  @functools.cached_property
  def computations(self) -> Mapping[int, Computation]:
    """All computations, by id."""
    sequences = self.proto.schedule.sequences
    computations = {}
    for proto in self.proto.computations:
      instructions = tuple(proto.instructions)
      if proto.id in sequences:
        by_id = {i.id: i for i in instructions}
        instructions = tuple(
          by_id[i] for i in sequences[proto.id].instruction_ids
        )
      computations[proto.id] = Computation(proto, instructions)
    return computations

  @property
  def instructions(self) -> Iterator[Instruction]:
    """The instructions of all computations, not in the order of a schedule."""
    return (i for c in self.proto.computations for i in c.instructions)

  @property
  def entry(self) -> Computation:
    """The computation that runs once per step."""
    return self.computations[self.proto.entry_computation_id]

  def copy(self) -> Module:
    """A copy with a proto of its own, to edit."""
    proto = hlo_pb2.HloModuleProto()
    proto.CopyFrom(self.proto)
    return Module(proto, self.num_partitions, self.num_replicas)

  @functools.cached_property
  def executions(self) -> Mapping[int, int]:
    """Times that each reachable computation runs per step, by computation id.

    Loop bodies count all trips. Every branch of a conditional counts as taken,
    because the choice is known only at run time.
    """
    counts: collections.Counter[int] = collections.Counter()

    def visit(computation: Computation, times: int) -> None:
      counts[computation.id] += times
      for callee, repeats in calls_of(computation):
        visit(callee, times * repeats)

    @functools.cache
    def calls_of(computation: Computation) -> list[tuple[Computation, int]]:
      return [c for i in computation.instructions for c in self.callees(i)]

    visit(self.entry, 1)
    return dict(counts)

  @functools.cached_property
  def wrapped(self) -> frozenset[int]:
    """Ids of the computations that an `async-start` runs as one.

    A computation that calls others is a sequence instead, on its own stream.
    """
    return frozenset(
      callee_id
      for computation in self.computations.values()
      if "async-start" in computation.opcodes
      for instruction in computation.instructions
      if instruction.opcode == "async-start"
      for callee_id in instruction.called_computation_ids
      if self.computations[callee_id].opcodes.isdisjoint(_CALLS)
    )

  @functools.cached_property
  def sequences(self) -> tuple[Computation, ...]:
    """The computations that run as sequences of kernels."""
    return tuple(
      self.computations[computation_id]
      for computation_id in self.executions
      if computation_id not in self.wrapped
    )

  def callees(
    self, instruction: Instruction
  ) -> Iterator[tuple[Computation, int]]:
    """Computations that run as sequences of their own, and how often each."""
    if instruction.opcode not in _CONTROL_FLOW:
      return
    called = [self.computations[i] for i in instruction.called_computation_ids]
    if instruction.opcode == "while":
      trips = self.trip_count(instruction)
      body, condition = called
      yield body, trips
      # A loop whose trip count XLA recorded never runs its condition
      # (WhileThunk, on GPUs and CPUs).
      is_written = self._written_trips(instruction) is not None
      yield condition, 0 if is_written else trips + 1
      return
    for computation in called:
      yield computation, 1

  def trip_count(self, loop: Instruction) -> int:
    """Iterations of a `while`; 1 if unknown."""
    trips = self._trip_counts[loop.id]
    return 1 if trips is None else trips

  @functools.cached_property
  def loops_of_unknown_length(self) -> tuple[str, ...]:
    """Names of the loops whose trip count is unknown, which count once."""
    return tuple(
      i.name
      for c in self.computations.values()
      for i in c.loops
      if self._trip_counts[i.id] is None
    )

  @functools.cached_property
  def _trip_counts(self) -> Mapping[int, int | None]:
    """Trip counts by id of the `while`; None if unknown.

    XLA writes a loop's trip count into its backend_config, and updates it when
    it double-buffers, pipelines or peels the loop. Older modules lack it, and
    pipelining loses the count of a loop around pipelined loops; then the count
    is derived from the loop itself.
    """
    counts = {}
    for computation in self.computations.values():
      for loop in computation.loops:
        trips = self._written_trips(loop)
        if trips is None:
          trips = self._counted_trips(computation, loop)
        counts[loop.id] = trips
    return counts

  def _written_trips(self, loop: Instruction) -> int | None:
    known = self.backend_config(loop).get("known_trip_count", {}).get("n")
    return None if known is None else int(known)

  def _counted_trips(
    self, computation: Computation, loop: Instruction
  ) -> int | None:
    """Recognizes `for (i = init; i < bound; i += step)` over constants.

    That is what `lax.scan` and `lax.fori_loop` lower to.
    """
    body, condition = (
      self.computations[i] for i in loop.called_computation_ids
    )
    carried = computation.by_id[loop.operand_ids[0]]
    match _term(condition, condition.root, self.computations):
      case ("compare", ("element", int(counter)), ("constant", int(bound))):
        pass
      case _:
        return None
    if body.root.opcode != "tuple" or carried.opcode != "tuple":
      return None
    first = computation.by_id[carried.operand_ids[counter]]
    next_ = body.by_id[body.root.operand_ids[counter]]
    match _term(computation, first, {}), _term(body, next_, self.computations):
      case (
        ("constant", int(start)),
        ("add", ("element", added_to), ("constant", int(step)))
        | ("add", ("constant", int(step)), ("element", added_to)),
      ) if added_to == counter and step > 0:
        return max(math.ceil((bound - start) / step), 0)
    return None

  def raw_backend_config(self, instruction: Instruction) -> bytes:
    """The instruction's backend_config as XLA wrote it."""
    payload = instruction.backend_config_payload
    match payload.WhichOneof("payload_source"):
      case "value":
        return payload.value
      case "id":
        return self.proto.payloads[payload.id]
    return instruction.backend_config

  def backend_config(self, instruction: Instruction) -> dict[str, Any]:
    """The instruction's GpuBackendConfig as JSON; {} if it has none."""
    raw = self.raw_backend_config(instruction)
    if not raw.startswith(b"{"):
      return {}
    try:
      config = json.loads(raw)
    except ValueError:  # Attributes of a custom call, in MLIR syntax.
      return {}
    return config if isinstance(config, dict) else {}


# A value in `_counted_trips`: ("constant", value), ("element", index in the
# loop's state), or an opcode with the terms of its operands.
_Term = tuple[Any, ...]
_UNKNOWN: _Term = ("unknown",)


def _term(
  computation: Computation,
  instruction: Instruction,
  computations: Mapping[int, Computation],
  parameters: Sequence[_Term] = (),
) -> _Term:
  """A value as a term; looks into fusions of `computations` and copies."""
  operands = (
    _term(computation, operand, computations, parameters)
    for operand in computation.operands(instruction)
  )
  match instruction.opcode:
    case "constant":
      literal = instruction.literal
      for values in (literal.s32s, literal.s64s, literal.u32s, literal.u64s):
        if len(values) == 1:
          return "constant", int(values[0])
    case "get-tuple-element":
      return "element", instruction.tuple_index
    case "copy" | "bitcast":
      return next(operands)
    case "parameter" if parameters:
      return parameters[instruction.parameter_number]
    case "compare" if instruction.comparison_direction != "LT":
      return _UNKNOWN
    case "add" | "compare":
      return instruction.opcode, *operands
    case "fusion":
      (callee_id,) = instruction.called_computation_ids
      if callee := computations.get(callee_id):
        return _term(callee, callee.root, computations, tuple(operands))
  return _UNKNOWN


def element_type(shape: Shape) -> str:
  """HLO's name of an array's element type, such as "bf16"."""
  return _ELEMENT_TYPES.get(shape.element_type, ("tuple", 0))[0]


def element_bits(name: str) -> int:
  """Bits of an element, by HLO's name of its type; 0 for an unknown name."""
  return dict(_ELEMENT_TYPES.values()).get(name, 0)


def first_array(shape: Shape) -> Shape:
  """The array itself, or the first one of a tuple."""
  while shape.tuple_shapes:
    shape = shape.tuple_shapes[0]
  return shape


def num_elements(shape: Shape) -> int:
  """Elements of an array, or of the largest array of a tuple."""
  if shape.tuple_shapes:
    return max(map(num_elements, shape.tuple_shapes))
  return math.prod(shape.dimensions)


def shape_bytes(shape: Shape) -> int:
  """Bytes of an array, or of all arrays in a tuple."""
  if shape.tuple_shapes:
    return sum(map(shape_bytes, shape.tuple_shapes))
  bits = _ELEMENT_TYPES.get(shape.element_type, ("", 0))[1]
  return math.ceil(math.prod(shape.dimensions) * bits / 8)


def load_apart(path: pathlib.Path) -> Module:
  """Reads a module from a user's file, which may make XLA abort.

  Raises:
    HloError: XLA would abort the process, or as for `load`.
  """
  return Module(*hlo_source.read_apart(path))


def load(source: Any) -> Module:
  """Reads a module.

  Args:
    source: a path to HLO text or to a serialized HloProto or HloModuleProto,
      plain or compressed (.xz, .gz); HLO text; the bytes of any of these; or
      a `jax.stages.Compiled`.

  Raises:
    HloError: the source is none of these, or is damaged.
  """
  return Module(*hlo_source.read(source))
