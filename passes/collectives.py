# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Collectives of a module, in any form that XLA writes.

XLA writes a collective as a plain instruction (`all-gather`), as its own pair
(`all-gather-start` / `all-gather-done`), or inside another instruction: an
`async-start` / `async-done` pair around a computation with one collective, or
with a group that NCCL launches at once; a fusion, such as one that slices the
gathered array; or calls and pairs inside these. Collectives are recognized by
opcode, never by name. `find` raises if it does not know how a module runs one
of them.

*Streams* (ExecutionStreamAssignment in XLA's
xla/service/gpu/execution_stream_assignment.cc). Asynchronous collectives run
one after another on a communication stream. From JAX 0.12 on, those that XLA
assigned to the scale-up fabric (the NVLink domain) have a stream of their own
(xla/backends/gpu/transforms/collectives/collective_domain_assigner.cc), and so
have XLA's own kernels for collectives, which are fusions in an async-start.
Synchronous collectives run on the compute stream, which waits for none of
these.
"""

from __future__ import annotations

import collections
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
import dataclasses
import itertools
from typing import Literal
import weakref

from lagom_xla import errors
from lagom_xla.passes import dependencies
from lagom_xla.passes import hlo
from lagom_xla.passes import replica_groups

# On sends and receives that XLA pipelined: which of two streams they use.
_PIPELINE = "_xla_send_recv_pipeline"

# Kinds that combine elements of different devices.
REDUCTIONS = ("all-reduce", "reduce-scatter")


Form = Literal["async", "sync"]

# Streams of collectives; all names begin with COMMUNICATION.
COMMUNICATION = "communication"
SCALE_UP = f"{COMMUNICATION}, scale-up"
# XLA's own collective kernels, which are fusions.
FUSED = f"{COMMUNICATION}, fused"
# The compute stream, which runs no other kernel meanwhile.
SYNC = f"{COMMUNICATION}, sync"


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Collective:
  """One collective of a module.

  Attributes:
    name: name of the instruction that starts it.
    kind: HLO opcode of the operation, one of `collectives.KINDS`.
    form: "async" where XLA runs it beside kernels; "sync" where it is a plain
      instruction, is marked is_sync, or will be (`_awaited_at_once`).
    computation: name of the computation that holds it.
    start_id: id of the instruction that starts it.
    done_id: id of the instruction that waits for it; None for plain ones, and
      where the wait is in another computation.
    num_operands: number of arrays that it moves.
    operand_bytes: bytes of all operands, per device.
    result_bytes: bytes of all results, per device.
    array_bytes: bytes of each array as NCCL counts them (see `nccl_bytes`).
    element_type: HLO element type of the first operand.
    reduction: opcode that combines two elements; "" for other kinds.
    groups: device ids of each group; () where they cannot be known.
    pairs: (source, target) devices of a collective-permute, send or recv, else
      ().
    executions: times it runs per step.
    is_pipelined: whether XLA pipelined it over loop iterations.
    xla_strategy: XLA's name for its own kernel that runs it instead of NCCL; ""
      if XLA names none.
    memory: "symmetric" if XLA marked it to put data into other ranks' windows,
      "peer" to copy into their memory; "" otherwise.
    num_elements: elements of all operands.
    num_updates: parts that a ragged-all-to-all sends, each to its own offset.
    stream: COMMUNICATION, SCALE_UP, FUSED or SYNC, followed by a number if XLA
      has several of these streams.
    channel_id: XLA's channel, which distinguishes collectives of one form in
      any schedule; 0 for none.
    grouped_bytes: `array_bytes` of all collectives in its group with its kind,
      element type and devices, which NCCL schedules together; () if it is in no
      group.
  """

  name: str
  kind: str
  form: Form
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
  reduction: str = ""
  xla_strategy: str = ""
  memory: str = ""
  num_elements: int = 0
  num_updates: int = 0
  stream: str = COMMUNICATION
  channel_id: int = 0
  grouped_bytes: tuple[int, ...] = ()

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
    """Bytes as NCCL counts them: the larger of input and output.

    For all-gather and reduce-scatter that is the whole buffer, ranks times the
    per-rank count (ncclInfo.nBytes, NCCL src/enqueue.cc). For a
    ragged-all-to-all it is the smaller of the two (`_moved_bytes`).
    """
    return _moved_bytes(self.kind, self.operand_bytes, self.result_bytes)


def _moved_bytes(kind: str, given_bytes: int, taken_bytes: int) -> int:
  """Bytes that a rank moves, given the bytes of its input and output.

  The rows that a ragged-all-to-all sends are only known at run time: XLA's
  thunk posts a send of `send_sizes` and a receive of `recv_sizes` rows for each
  rank (xla/backends/gpu/runtime/ragged_all_to_all_thunk.cc). One of the two
  buffers may have room for all ranks to send to one. If all rows are used and
  ranks are alike, a rank moves the bytes of the smaller buffer.
  """
  if kind == "ragged-all-to-all":
    return min(given_bytes, taken_bytes)
  return max(given_bytes, taken_bytes)


KINDS = frozenset([
  "all-gather", "all-reduce", "all-to-all", "collective-broadcast",
  "collective-permute", "ragged-all-to-all", "recv", "reduce-scatter", "send",
])  # fmt: skip

_OPCODES = KINDS | {f"{kind}-start" for kind in KINDS}

# Instructions whose computations run as sequences of their own.
_SEQUENCES = frozenset(["call", "conditional", "while"])

# Instructions that take no time on the GPU.
NOPS = frozenset([
  "add-dependency", "after-all", "bitcast", "constant", "domain",
  "get-tuple-element", "opt-barrier", "parameter", "partition-id", "replica-id",
  "tuple",
])  # fmt: skip


def kind_of(instruction: hlo.Instruction) -> str | None:
  """The kind of collective that an instruction is or starts, if any."""
  kind = instruction.opcode.removesuffix("-start")
  return kind if kind in KINDS else None


Operation = tuple[hlo.Computation, hlo.Instruction]


def payloads(
  module: hlo.Module, instruction: hlo.Instruction
) -> tuple[Operation, ...]:
  """The collectives that an instruction runs as one, if any.

  Excludes those in computations that run as sequences: calls, loops, and work
  on a stream that the program names, if it also launches kernels.
  """
  opcode = instruction.opcode
  if not instruction.called_computation_ids or opcode in _SEQUENCES:
    return ()
  if opcode.endswith(("-done", "-update")):  # These repeat the start's.
    return ()
  held = _held(module)
  inside = tuple(o for i in instruction.called_computation_ids for o in held[i])
  if inside and opcode == "async-start":
    (called_id,) = instruction.called_computation_ids
    if called_id not in module.wrapped and not _only_communicates(
      module, module.computations[called_id]
    ):
      return ()
  return inside


def _held(module: hlo.Module) -> Mapping[int, tuple[Operation, ...]]:
  """The collectives in each computation and its callees, by its id."""
  if module in _held_by:
    return _held_by[module]
  held: dict[int, tuple[Operation, ...]] = {}

  def visit(computation: hlo.Computation) -> tuple[Operation, ...]:
    if computation.id not in held:
      inside: list[Operation] = []
      for instruction in computation.instructions:
        if kind_of(instruction):
          inside.append((computation, instruction))
        elif not instruction.opcode.endswith(("-done", "-update")):
          for called_id in instruction.called_computation_ids:
            inside += visit(module.computations[called_id])
      held[computation.id] = tuple(inside)
    return held[computation.id]

  for computation in module.computations.values():
    visit(computation)
  return _held_by.setdefault(module, held)


_held_by: weakref.WeakKeyDictionary[
  hlo.Module, Mapping[int, tuple[Operation, ...]]
] = weakref.WeakKeyDictionary()


def _only_communicates(
  module: hlo.Module, computation: hlo.Computation
) -> bool:
  """Whether a computation and its callees only communicate."""
  return all(
    instruction.opcode in NOPS
    or kind_of(instruction)
    or instruction.opcode.endswith(("-done", "-update"))
    or payloads(module, instruction)
    or (
      instruction.opcode == "call"
      and all(
        _only_communicates(module, module.computations[called_id])
        for called_id in instruction.called_computation_ids
      )
    )
    for instruction in computation.instructions
  )


def find(module: hlo.Module) -> tuple[Collective, ...]:
  """The collectives that a module runs, in schedule order.

  Raises:
    HloError: the module has a collective in an unknown form.
  """
  if module not in _found:
    devices = num_devices(module)
    found: list[Collective] = []
    met: set[tuple[int, int]] = set()
    as_one: set[int] = set()  # Computations that an async-start runs as one.
    for computation in module.sequences:
      if computation.id in as_one:
        continue
      dones = dependencies.awaiting_of(computation)
      at_once = _awaited_at_once(module, computation)
      for start in computation.instructions:
        inside = payloads(module, start)
        if inside and start.opcode == "async-start":
          as_one.update(_reached(module, start.called_computation_ids))
        if kind_of(start):
          inside = ((computation, start),)
        if inside:
          met.update(map(_id_of, inside))
          found += _started(
            module,
            computation,
            start,
            dones.get(start.id),
            inside,
            devices,
            is_awaited_at_once=start.id in at_once,
          )
    _check_all_met(module, met)
    _found[module] = tuple(found)
  return _found[module]


def _id_of(operation: Operation) -> tuple[int, int]:
  computation, instruction = operation
  return computation.id, instruction.id


def _reached(
  module: hlo.Module, called_ids: Iterable[int]
) -> Mapping[int, hlo.Instruction | None]:
  """Ids of computations and all their callees -> the caller of each."""
  reached: dict[int, hlo.Instruction | None] = dict.fromkeys(called_ids)
  left = list(reached)
  while left:
    for instruction in module.computations[left.pop()].instructions:
      for called_id in instruction.called_computation_ids:
        if called_id not in reached:
          reached[called_id] = instruction
          left.append(called_id)
  return reached


def _check_all_met(module: hlo.Module, met: Set[tuple[int, int]]) -> None:
  """Checks that every reachable collective was met.

  Raises:
    HloError: one was not.
  """
  for computation_id, caller in _reached(module, [module.entry.id]).items():
    computation = module.computations[computation_id]
    for instruction in computation.instructions:
      if kind_of(instruction) and (computation.id, instruction.id) not in met:
        by = f"{caller.opcode} {caller.name}" if caller else "the entry"
        raise errors.HloError(
          f"{module.name}: lagom_xla does not know how {by} runs"
          f" {instruction.name}, an {kind_of(instruction)} in"
          f" {computation.name}; please report the module."
        )


# A cache, because every prediction asks for the same module's collectives.
_found: weakref.WeakKeyDictionary[hlo.Module, tuple[Collective, ...]] = (
  weakref.WeakKeyDictionary()
)


def _started(
  module: hlo.Module,
  computation: hlo.Computation,
  start: hlo.Instruction,
  done: hlo.Instruction | None,
  inside: Sequence[Operation],
  num_devices: int | None,
  *,
  is_awaited_at_once: bool,
) -> Iterator[Collective]:
  """The collectives that one instruction starts."""
  config = module.backend_config(start).get("collective_backend_config", {})
  is_sync = config.get("is_sync") or is_awaited_at_once
  is_async = dependencies.is_start(start) and not is_sync
  form: Form = "async" if is_async else "sync"
  started: list[Collective] = []
  for home, operation in inside:
    kind = kind_of(operation)
    assert kind is not None
    operands, result = arrays(home, operation, kind)
    started.append(
      Collective(
        name=f"{start.name}/{operation.name}" if inside[1:] else start.name,
        kind=kind,
        form=form,
        computation=computation.name,
        start_id=start.id,
        done_id=done.id if done is not None else None,
        num_operands=len(operands),
        operand_bytes=sum(map(hlo.shape_bytes, operands)),
        result_bytes=hlo.shape_bytes(result),
        array_bytes=_array_bytes(kind, operands, result),
        element_type=hlo.element_type(operands[0]) if operands else "",
        groups=replica_groups.of(operation, num_devices, module.num_replicas),
        pairs=replica_groups.pairs_of(
          operation, num_devices, module.num_replicas
        ),
        executions=module.executions[computation.id],
        is_pipelined=bool(config.get("is_pipelined")),
        reduction=_reduction(module, operation),
        xla_strategy=_xla_strategy(module, start, operation),
        memory=_memory(module, start, operation),
        num_elements=sum(map(hlo.num_elements, operands)),
        num_updates=_num_updates(home, operation),
        stream=SYNC
        if form == "sync"
        else _stream(module, start, home, operation),
        channel_id=operation.channel_id,
      )
    )
  # XLA's groups hold their collectives in the computation itself.
  is_group = start.opcode == "async-start" and (
    start.called_computation_ids[0] in module.wrapped
  )
  for each in started:
    if is_group and started[1:]:
      alike = [o for o in started if _taken_by(o) == _taken_by(each)]
      grouped = tuple(n for other in alike for n in other.array_bytes)
      each = dataclasses.replace(each, grouped_bytes=grouped)
    yield each


def _reduction(module: hlo.Module, operation: hlo.Instruction) -> str:
  """The opcode with which a collective combines elements."""
  if (
    kind_of(operation) not in REDUCTIONS or not operation.called_computation_ids
  ):
    return ""
  joins = module.computations[operation.called_computation_ids[0]]
  return joins.behind(joins.root, ("convert",)).opcode


def _taken_by(one: Collective) -> tuple[object, ...]:
  """A key that is equal for collectives that NCCL schedules together.

  These have the same function, type and communicator (ncclPrepareTasks in
  NCCL's src/enqueue.cc).
  """
  return one.kind, one.element_type, one.groups, one.xla_strategy


def on_streams(
  module: hlo.Module, collectives: Sequence[Collective], num_streams: int
) -> tuple[Collective, ...]:
  """Assigns collectives to XLA's `num_streams` streams per domain.

  XLA assigns streams in rotation: computation by computation from the entry,
  and within each in the module's order of instructions, which is not the
  schedule's. Pipelined sends and receives are not in the rotation; they are on
  the second or third stream. With one stream per domain, all collectives share
  it.
  """
  if num_streams == 1:
    return tuple(collectives)
  started: dict[int, list[Collective]] = {}
  for collective in collectives:
    if collective.form == "async":
      started.setdefault(collective.start_id, []).append(collective)
  turns: dict[str, Iterator[int]] = {}
  streams: dict[str, str] = {}
  waiting, seen = collections.deque([module.entry]), {module.entry.id}
  while waiting:
    computation = waiting.popleft()
    for instruction in computation.proto.instructions:
      if members := started.get(instruction.id):
        stream = members[0].stream
        pipeline = instruction.frontend_attributes.map.get(_PIPELINE)
        if pipeline is not None and members[0].kind in ("recv", "send"):
          turn = 2 if pipeline == "1" else 1
        else:
          turn = next(
            turns.setdefault(stream, itertools.cycle(range(num_streams)))
          )
        name = f"{stream} {turn + 1}" if turn else stream
        streams.update((member.name, name) for member in members)
      for callee, _ in module.callees(instruction):
        if callee.id not in seen:
          seen.add(callee.id)
          waiting.append(callee)
  return tuple(
    dataclasses.replace(c, stream=streams.get(c.name, c.stream))
    for c in collectives
  )


# XLA's name for the domain in a backend config.
_SCALE_UP_DOMAIN = b"COLLECTIVE_COMMUNICATION_DOMAIN_SCALE_UP_FABRIC"


def _stream(
  module: hlo.Module,
  start: hlo.Instruction,
  home: hlo.Computation,
  operation: hlo.Instruction,
) -> str:
  """The stream of an asynchronous collective."""
  # A fusion's collective is one computation deeper than the start's own.
  is_own = kind_of(start) or home.id in start.called_computation_ids
  if not is_own and _xla_strategy(module, start, operation):
    return FUSED
  configs = map(module.raw_backend_config, (start, operation))
  return (
    SCALE_UP if any(_SCALE_UP_DOMAIN in c for c in configs) else COMMUNICATION
  )


# XLA's marks for xla_gpu_all_gather_mode and the like.
_MODES = {
  "symmetric": b"COLLECTIVES_SYMMETRIC_MEMORY",
  "peer": b"COLLECTIVES_PEER_MEMORY",
}


def _memory(
  module: hlo.Module, start: hlo.Instruction, operation: hlo.Instruction
) -> str:
  configs = [module.raw_backend_config(i) for i in (start, operation)]
  for memory, mode in _MODES.items():
    if any(mode in config for config in configs):
      return memory
  return ""


# The fusion kind of such a kernel, whether it has a strategy or not.
FUSED_KERNEL = "__triton_collective"


def _xla_strategy(
  module: hlo.Module, start: hlo.Instruction, operation: hlo.Instruction
) -> str:
  """The strategy of XLA's own kernel for a collective; "" for none.

  XLA uses one for all-reduces of up to a few MiB within a host. It writes the
  strategy (such as KERNEL_STRATEGY_TRITON_ONE_SHOT) into the all-reduce, which
  JAX 0.12 then puts in a fusion.
  """
  if b"kernel_strategy" in module.raw_backend_config(operation):
    config = module.backend_config(operation)
    chosen = config.get("collective_backend_config", {})
    strategy = chosen.get("kernel_strategy", "")
    if strategy and strategy not in _OF_NCCL:
      return strategy
  is_kernel = FUSED_KERNEL.encode() in module.raw_backend_config(start)
  return FUSED_KERNEL if is_kernel else ""


# Values for no strategy, and for NCCL.
_OF_NCCL = frozenset(["KERNEL_STRATEGY_INVALID", "KERNEL_STRATEGY_DEFAULT"])


def _num_updates(
  computation: hlo.Computation, operation: hlo.Instruction
) -> int:
  """The updates of a ragged-all-to-all: one for each of its offsets."""
  if operation.opcode != "ragged-all-to-all":
    return 0
  offsets = list(computation.operands(operation))[2]
  return hlo.num_elements(offsets.shape)


def _awaited_at_once(
  module: hlo.Module, computation: hlo.Computation
) -> Set[int]:
  """Ids of the starts that XLA makes synchronous after scheduling.

  Between such a start and its done are only starts and dones of collectives,
  and instructions that count as no-ops there (ConvertAsyncCollectivesToSync in
  xla/hlo/transforms/collectives/convert_async_collectives_to_sync.cc). Sends,
  receives and groups of several collectives never become synchronous.
  """
  in_flight: set[int] = set()
  starts: set[int] = set()
  at_once: set[int] = set()
  for instruction in computation.instructions:
    if _is_pair_of_one(module, instruction):
      in_flight.add(instruction.id)
      starts.add(instruction.id)
    elif instruction.opcode.endswith("-done") and (
      (awaited := instruction.operand_ids[0]) in starts
    ):
      if awaited in in_flight:
        in_flight.remove(awaited)
        at_once.add(awaited)
    elif instruction.opcode not in _NOPS_BETWEEN:
      in_flight.clear()
  return at_once


# RunPostSchedulingPipelines in xla/service/gpu/gpu_compiler.cc.
_NOPS_BETWEEN = frozenset([
  "bitcast", "constant", "get-tuple-element", "parameter",
])  # fmt: skip


def _is_pair_of_one(module: hlo.Module, start: hlo.Instruction) -> bool:
  """Whether an instruction starts a pair of exactly one collective."""
  if start.opcode == "async-start":
    (called_id,) = start.called_computation_ids
    return bool(kind_of(module.computations[called_id].root))
  return start.opcode.endswith("-start") and kind_of(start) is not None


def arrays(
  computation: hlo.Computation, operation: hlo.Instruction, kind: str
) -> tuple[list[hlo.Shape], hlo.Shape]:
  """The operands, without offsets, sizes and tokens, and the results."""
  given = [operand.shape for operand in computation.operands(operation)]
  taken = operation.shape
  match operation.opcode:
    case "all-gather-start" | "collective-permute-start":
      taken = taken.tuple_shapes[1]  # The first are the operands.
    case "all-reduce-start" if _is_nested(taken):
      taken = taken.tuple_shapes[1]  # The same, as in any async-start.
    case "send" | "recv":
      taken = taken.tuple_shapes[0]
  # An in-place permute also takes the output and offsets.
  is_in_place = kind == "collective-permute" and operation.dynamic_slice_sizes
  if kind == "recv":
    given = []
  elif is_in_place or kind in ("ragged-all-to-all", "send"):
    given = given[:1]
  return given, taken


def _is_nested(shape: hlo.Shape) -> bool:
  return bool(shape.tuple_shapes and shape.tuple_shapes[0].tuple_shapes)


def _array_bytes(
  kind: str, given: Sequence[hlo.Shape], taken: hlo.Shape
) -> tuple[int, ...]:
  """Bytes of each array as NCCL counts them."""
  given_bytes = [hlo.shape_bytes(shape) for shape in given]
  taken_bytes = [hlo.shape_bytes(s) for s in taken.tuple_shapes or [taken]]
  if len(given) != len(
    taken_bytes
  ):  # A recv, or a permute of a tuple in place.
    given_bytes, taken_bytes = [sum(given_bytes)], [sum(taken_bytes)]
  return tuple(
    _moved_bytes(kind, *pair)
    for pair in zip(given_bytes, taken_bytes, strict=True)
  )


def num_devices(module: hlo.Module) -> int | None:
  """The devices of a module: as declared, or as named by its collectives.

  None if neither exists.
  """
  if module.num_partitions is not None:
    return module.num_partitions
  named = [
    device
    for computation in module.computations.values()
    if not computation.opcodes.isdisjoint(_OPCODES)
    for instruction in computation.instructions
    if kind_of(instruction)
    for group in replica_groups.of(instruction, None)
    for device in group
  ]
  return max(named) + 1 if named else None
