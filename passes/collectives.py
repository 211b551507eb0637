# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Collectives of a module, whatever form XLA printed them in.

XLA writes a collective as a plain instruction (`all-gather`), as a pair of its
own (`all-gather-start` / `all-gather-done`), or as an `async-start` /
`async-done` pair around a computation that holds the plain instruction, which
the text form abbreviates to `reduce-scatter-start` and the like. Collectives
are told apart by opcode, never by name.
"""

from __future__ import annotations

from collections.abc import Iterator
import weakref

from lagom_xla.passes import collective as collective_lib
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


# What others know it by.
Collective = collective_lib.Collective


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
  found: list[Collective] = []
  for computation_id, executions in module.executions.items():
    if computation_id in module.wrapped:
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
  operands = collective_lib.data_operands(home, operation, kind)
  result = collective_lib.result_shape(operation)
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
    array_bytes=collective_lib.array_bytes(
      kind, [o.shape for o in operands], result
    ),
    element_type=hlo.element_type(operands[0].shape) if operands else "",
    groups=replica_groups.of_instruction(operation, num_devices),
    pairs=pairs,
    executions=executions,
    is_pipelined=bool(config.get("is_pipelined")),
  )


def _form(
  computation: hlo.Computation,
  start: hlo.Instruction,
  done: hlo.Instruction | None,
  is_sync: bool,
) -> collective_lib.Form:
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
