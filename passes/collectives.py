# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Collectives as one record each, whatever form XLA printed them in.

XLA writes a collective as a plain instruction (`all-gather`), as a pair of its
own (`all-gather-start` / `all-gather-done`), or as an `async-start` /
`async-done` pair around a computation that holds the plain instruction, which
the text form abbreviates to `reduce-scatter-start` and the like. Collectives
are told apart by opcode, never by name.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
import dataclasses
import weakref

from lagom_xla.passes import dependencies
from lagom_xla.passes import hlo
from lagom_xla.passes import replica_groups

KINDS = frozenset(
  [
    "all-gather",
    "all-reduce",
    "all-to-all",
    "collective-broadcast",
    "collective-permute",
    "ragged-all-to-all",
    "recv",
    "reduce-scatter",
    "send",
  ]
)

_OPCODES = KINDS | {f"{kind}-start" for kind in KINDS}

# Instructions whose computation may hold the collective that they run.
_HOLDERS = frozenset(["async-start", "call", "fusion"])

# Instructions that take no time on the GPU.
NOPS = frozenset(
  [
    "add-dependency",
    "after-all",
    "bitcast",
    "constant",
    "domain",
    "get-tuple-element",
    "opt-barrier",
    "parameter",
    "partition-id",
    "replica-id",
    "tuple",
  ]
)


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Collective:
  """One collective of a module.

  Attributes:
    name: name of the instruction that starts it.
    kind: HLO opcode of the operation, one of KINDS.
    form: "async" where XLA may run it beside kernels; "sync" where it is a
      plain instruction, is marked is_sync, or has nothing but no-ops between
      its start and its done.
    computation: name of the computation that it stands in.
    start_id: id of the instruction that starts it.
    done_id: id of the instruction that waits for it; None for plain ones, and
      where the wait is in another computation.
    num_operands: arrays that it moves.
    operand_bytes: bytes of all operands, per device.
    result_bytes: bytes of all results, per device.
    array_bytes: bytes of each array as NCCL counts them (see `nccl_bytes`).
    element_type: HLO element type of the first operand.
    groups: device ids of each group; () where they cannot be known.
    pairs: (source, target) devices of a collective-permute, send or recv, else
      ().
    executions: times it runs per step.
    is_pipelined: whether XLA pipelined it over loop iterations.
  """

  name: str
  kind: str
  form: str
  computation: str
  start_id: int
  done_id: int | None
  num_operands: int
  operand_bytes: int
  result_bytes: int
  array_bytes: tuple[int, ...]
  element_type: str
  groups: replica_groups.Groups
  pairs: tuple[tuple[int, int], ...]
  executions: int
  is_pipelined: bool

  @property
  def group_size(self) -> int:
    """Devices in its largest group; 0 where groups are unknown."""
    return max(map(len, self.groups), default=0)

  @property
  def num_groups(self) -> int:
    """Groups that run it at the same time; 0 where they are unknown."""
    return len(self.groups)

  @property
  def nccl_bytes(self) -> int:
    """Bytes as NCCL counts them: the larger of what goes in and comes out.

    For all-gather and reduce-scatter that is the whole buffer, ranks times the
    per-rank count (ncclInfo.nBytes, NCCL src/enqueue.cc). A ragged-all-to-all
    sends the rows that its sizes say, which only the running step knows; the
    buffer that they arrive in or come from may be large enough for all ranks to
    send to one. With all rows in use and ranks alike, a rank sends and receives
    the smaller of its two buffers.
    """
    return _moved_bytes(self.kind, self.operand_bytes, self.result_bytes)


def kind_of(instruction: hlo.Instruction) -> str | None:
  """The collective that an instruction is or starts by itself, if any."""
  kind = instruction.opcode.removesuffix("-start")
  return kind if kind in KINDS else None


def payloads(
  module: hlo.Module, instruction: hlo.Instruction
) -> list[tuple[hlo.Computation, hlo.Instruction]]:
  """The plain collectives inside an async-start or a fusion, if any."""
  if instruction.opcode not in _HOLDERS:
    return []
  found = []
  for callee_id in instruction.called_computation_ids:
    callee = module.computations[callee_id]
    if callee.opcodes.isdisjoint(KINDS | _HOLDERS):
      continue
    for inner in callee.instructions:
      if inner.opcode in KINDS:
        found.append((callee, inner))
      else:
        found += payloads(module, inner)
  return found


def find(module: hlo.Module) -> tuple[Collective, ...]:
  """All collectives of a module that run, in schedule order; found once."""
  if module not in _found:
    _found[module] = _find(module)
  return _found[module]


# Every prediction begins with the same module, and asks for what it has.
_found: weakref.WeakKeyDictionary[hlo.Module, tuple[Collective, ...]] = (
  weakref.WeakKeyDictionary()
)
# Most of what it ends with has the same computations, and all the devices:
# (executions, devices) of a computation, and what was found in it.
_found_in: weakref.WeakKeyDictionary[
  hlo.Computation, tuple[tuple[int, int | None], tuple[Collective, ...]]
] = weakref.WeakKeyDictionary()


def _find(module: hlo.Module) -> tuple[Collective, ...]:
  devices = num_devices(module)
  wrapped = _wrapped(module)
  found: list[Collective] = []
  for computation_id, executions in module.executions.items():
    if computation_id in wrapped:
      continue
    computation = module.computations[computation_id]
    key = executions, devices
    known_key, known = _found_in.get(computation, (None, ()))
    if known_key != key:
      known = tuple(_in_computation(module, computation, executions, devices))
      _found_in[computation] = key, known
    found += known
  return tuple(found)


def _in_computation(
  module: hlo.Module,
  computation: hlo.Computation,
  executions: int,
  num_devices: int | None,
) -> Iterator[Collective]:
  dones = dependencies.awaiting_of(computation)
  for instruction in computation.instructions:
    if kind_of(instruction):
      inside = [(computation, instruction)]
    elif instruction.opcode == "call":
      inside = []  # Its computation is visited on its own.
    else:
      inside = payloads(module, instruction)
    for home, operation in inside:
      name = instruction.name
      if len(inside) > 1:
        name = f"{instruction.name}/{operation.name}"
      yield _record(
          module, computation, instruction, dones, home, operation,
          name=name, executions=executions, num_devices=num_devices,
      )  # fmt: skip


def _wrapped(module: hlo.Module) -> frozenset[int]:
  """Computations that are the body of an async collective."""
  return frozenset(
    callee
    for computation in module.computations.values()
    if "async-start" in computation.opcodes
    for instruction in computation.instructions
    if instruction.opcode == "async-start" and payloads(module, instruction)
    for callee in instruction.called_computation_ids
  )


def _record(
  module: hlo.Module,
  computation: hlo.Computation,
  start: hlo.Instruction,
  dones: dict[int, hlo.Instruction],
  home: hlo.Computation,
  operation: hlo.Instruction,
  *,
  name: str,
  executions: int,
  num_devices: int | None,
) -> Collective:
  kind = kind_of(operation)
  assert kind is not None
  done = dones.get(start.id)
  config = module.backend_config(start)
  config = config.get("collective_backend_config", {})
  operands = _data_operands(home, operation, kind)
  result = _result_shape(operation)
  pairs = replica_groups.pairs_of(operation)
  return Collective(
    name=name,
    kind=kind,
    form=_form(computation, start, done, bool(config.get("is_sync"))),
    computation=computation.name,
    start_id=start.id,
    done_id=done.id if done is not None else None,
    num_operands=len(operands),
    operand_bytes=sum(hlo.shape_bytes(o.shape) for o in operands),
    result_bytes=hlo.shape_bytes(result),
    array_bytes=_array_bytes(kind, [o.shape for o in operands], result),
    element_type=hlo.element_type(operands[0].shape) if operands else "",
    groups=replica_groups.of_instruction(operation, num_devices),
    pairs=pairs,
    executions=executions,
    is_pipelined=bool(config.get("is_pipelined")),
  )


def _data_operands(
  computation: hlo.Computation, operation: hlo.Instruction, kind: str
) -> list[hlo.Instruction]:
  """The operands that are sent, without offsets, sizes and tokens."""
  operands = computation.operands(operation)
  if kind in ("ragged-all-to-all", "send"):
    return operands[:1]
  if kind == "recv":
    return []
  if kind == "collective-permute" and operation.dynamic_slice_sizes:
    return operands[:1]  # In place: the others are the output and offsets.
  return operands


def _result_shape(operation: hlo.Instruction) -> hlo.Shape:
  """The shape of what arrives, without the operands that starts repeat."""
  shape = operation.shape
  match operation.opcode:
    case "all-gather-start" | "collective-permute-start":
      return shape.tuple_shapes[1]
    case "send" | "recv":
      return shape.tuple_shapes[0]
  return shape


def _array_bytes(
  kind: str, operands: Sequence[hlo.Shape], result: hlo.Shape
) -> tuple[int, ...]:
  given = [hlo.shape_bytes(shape) for shape in operands]
  taken = [hlo.shape_bytes(s) for s in result.tuple_shapes or [result]]
  if len(given) != len(taken):  # A recv, or an in-place permute of a tuple.
    given, taken = [sum(given)], [sum(taken)]
  return tuple(
    _moved_bytes(kind, *pair) for pair in zip(given, taken, strict=True)
  )


def _moved_bytes(kind: str, given_bytes: int, taken_bytes: int) -> int:
  """What a rank sends and receives of a buffer that it gives and one it takes.

  XLA's thunk posts a send and a receive of `send_sizes` and `recv_sizes` rows
  to each rank (xla/backends/gpu/runtime/ragged_all_to_all_thunk.cc).
  """
  if kind == "ragged-all-to-all":
    return min(given_bytes, taken_bytes)
  return max(given_bytes, taken_bytes)


def _form(
  computation: hlo.Computation,
  start: hlo.Instruction,
  done: hlo.Instruction | None,
  is_sync: bool,
) -> str:
  is_start = start.opcode.endswith("-start") or start.opcode in ("send", "recv")
  if is_sync or not is_start:
    return "sync"
  if done is None:
    return "async"
  begin = computation.position[start.id] + 1
  between = computation.instructions[begin : computation.position[done.id]]
  return "async" if any(i.opcode not in NOPS for i in between) else "sync"


def num_devices(module: hlo.Module) -> int | None:
  """Devices that a module is for: as declared, else as its collectives name.

  None where nothing is declared and there are no collectives.
  """
  if module.num_partitions is not None:
    return module.num_partitions
  named = [
    device
    for computation in module.computations.values()
    if not computation.opcodes.isdisjoint(_OPCODES)
    for instruction in computation.instructions
    if kind_of(instruction)
    for group in replica_groups.of_instruction(instruction, None)
    for device in group
  ]
  return max(named) + 1 if named else None
