# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Edits of a copy of a scheduled module, to predict another schedule.

What comes out has the right kernels, collectives and dependences; it need not
compute the right thing, and XLA would not accept it: shapes of loop state are
not kept up to date, and copies of a fusion share its computation. It is only
scheduled and replayed. Copies of a loop have bodies of their own: each may be
edited in its turn.

Edits of one `while` of a module: its body, its state, its iterations.

A loop hands a tuple from one iteration to the next; its elements are the loop's
state. Iterations can be copied, whole or in part: what a copy does not need is
left out.

Surroundings of a loop: what its caller has before and after it.

There the loop gets the state that it starts with, there its results are used,
and there go iterations that are copied out of it, whole or in part.

Dependences between iterations of a loop: what could run in another one.

Early, if it follows from what the loop does not change and from its counter
alone; late, if its result is only handed on.

XLA's double buffering of loops: bodies that hold two iterations.

Two bodies are put one after the other and the trips halved; an odd iteration
goes before the loop. XLA does this before it fuses and schedules; here it is
done to the dependences of the scheduled loop.

XLA's collective pipeliner, on the loops of a scheduled module.

XLA pipelines before it fuses and schedules; here it is done to the dependences
of the scheduled loop.

An all-gather is run one iteration ahead where its operand depends on nothing
but what the loop does not change and its counter: the first one goes before
the loop, the body gathers for the next iteration, and the last iteration
follows the loop. An all-reduce or reduce-scatter is run one iteration behind
where what it returns is only written to what the loop hands on: the first
iteration goes before the loop without it, the body reduces what the one before
computed, and the last one's follows the loop
(xla/service/collective_pipeliner.cc).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
import json

from lagom_xla.passes import collectives as collectives_lib
from lagom_xla.passes import dependencies
from lagom_xla.passes import hlo

# What runs computations that have schedules of their own.
_RUNS_SCHEDULES = frozenset({"while", "call", "conditional"})


class Editor:
  """An editor of a copy of a module; the module itself stays as it is.

  Attributes:
    module: the module that it started from.
  """

  def __init__(self, module: hlo.Module):
    self.module = module
    self._proto = hlo.hlo_pb2.HloModuleProto()
    self._proto.CopyFrom(module.proto)
    self._edited: dict[int, list[hlo.Instruction]] = {}
    self._next_id = 1 + max(c.last_id for c in module.computations.values())

  def instructions(self, computation_id: int) -> list[hlo.Instruction]:
    """The schedule of a computation, to be edited in place."""
    if computation_id not in self._edited:
      proto = self._computation(computation_id)
      by_id = {i.id: i for i in proto.instructions}
      known = self._proto.schedule.sequences
      ids = known[computation_id].instruction_ids
      self._edited[computation_id] = [by_id[id_] for id_ in ids]
    return self._edited[computation_id]

  def _computation(self, id_: int) -> hlo.hlo_pb2.HloComputationProto:
    return next(c for c in self._proto.computations if c.id == id_)

  def copy(
    self,
    instruction: hlo.Instruction,
    suffix: str,
    *,
    replaced: Mapping[int, int] | None = None,
  ) -> hlo.Instruction:
    """A copy under a name and an id of its own.

    Args:
      instruction: what to copy.
      suffix: what to append to its name; with it, the name must be new.
      replaced: ids that the copy refers to others instead of.
    """
    new = hlo.Instruction()
    new.CopyFrom(instruction)
    new.id = self.new_id()
    new.name = instruction.name + suffix
    for ids in (new.operand_ids, new.control_predecessor_ids):
      ids[:] = [(replaced or {}).get(id_, id_) for id_ in ids]
    self._give_own_computations(new, suffix)
    return new

  def _give_own_computations(
    self, instruction: hlo.Instruction, suffix: str
  ) -> None:
    """Copies what an instruction runs of which a loop can be a part."""
    if instruction.opcode in _RUNS_SCHEDULES:
      instruction.called_computation_ids[:] = [
        self._copied(id_, suffix) for id_ in instruction.called_computation_ids
      ]

  def _copied(self, computation_id: int, suffix: str) -> int:
    """Copies a computation that is not edited; returns the copy's id."""
    new = hlo.hlo_pb2.HloComputationProto()
    new.CopyFrom(self._computation(computation_id))
    new.id, new.name = self.new_id(), new.name + suffix
    ids = {i.id: self.new_id() for i in new.instructions}
    new.root_id = ids[new.root_id]
    for instruction in new.instructions:
      instruction.id = ids[instruction.id]
      instruction.name += suffix
      for refers in (
        instruction.operand_ids,
        instruction.control_predecessor_ids,
      ):
        refers[:] = [ids[id_] for id_ in refers]
      self._give_own_computations(instruction, suffix)
    sequences = self._proto.schedule.sequences
    order = sequences[computation_id].instruction_ids
    sequences[new.id].instruction_ids[:] = [ids[id_] for id_ in order]
    self._proto.computations.append(new)
    return new.id

  def new_id(self) -> int:
    """An id that nothing in the module has."""
    self._next_id += 1
    return self._next_id - 1

  def make(
    self,
    opcode: str,
    name: str,
    operand_ids: Iterable[int],
    *,
    shape: hlo.Shape | None = None,
    tuple_index: int = 0,
  ) -> hlo.Instruction:
    """A new instruction."""
    return hlo.Instruction(
      id=self.new_id(),
      name=name,
      opcode=opcode,
      operand_ids=operand_ids,
      shape=shape,
      tuple_index=tuple_index,
    )

  def set_root(self, computation_id: int, instruction_id: int) -> None:
    """Says what a computation returns."""
    self._computation(computation_id).root_id = instruction_id

  def add_computation(self, proto: hlo.hlo_pb2.HloComputationProto) -> None:
    """Adds a computation that is not scheduled on its own."""
    self._proto.computations.append(proto)
    sequence = self._proto.schedule.sequences[proto.id]
    sequence.instruction_ids[:] = [i.id for i in proto.instructions]

  def set_trip_count(self, loop: hlo.Instruction, num_trips: int) -> None:
    """Says how often a loop of this module runs."""
    config = self.module.backend_config(loop)
    config["known_trip_count"] = {"n": str(num_trips)}
    self.set_config(loop, config)

  def set_config(
    self, instruction: hlo.Instruction, config: Mapping[str, object]
  ) -> None:
    """Gives an instruction a backend_config."""
    instruction.backend_config_payload.value = json.dumps(config).encode()

  def finish(self) -> hlo.Module:
    """The edited module; the editor is not to be used any more."""
    for proto in self._proto.computations:
      edited = self._edited.get(proto.id)
      if edited is None:
        continue
      sequence = self._proto.schedule.sequences[proto.id]
      sequence.instruction_ids[:] = [i.id for i in edited]
      kept = [i.SerializeToString() for i in edited]
      del proto.instructions[:]
      for serialized in kept:
        proto.instructions.add().MergeFromString(serialized)
    shared = {
      id_: computation
      for id_, computation in self.module.computations.items()
      if id_ not in self._edited
    }
    num_devices = collectives_lib.num_devices(self.module)
    return hlo.Module(self._proto, num_devices, shared)


GET = "get-tuple-element"  # Reads an element of a loop's state.


def each_loop(module: hlo.Module) -> list[tuple[int, int]]:
  """(caller, loop) ids of loops with collectives, inner ones first."""
  loops: list[tuple[int, int]] = []

  def visit(computation: hlo.Computation) -> None:
    for loop in computation.loops:
      body = module.computations[loop.called_computation_ids[0]]
      visit(body)
      if module.trip_count(loop) > 1 and computation.id in module.executions:
        loops.append((computation.id, loop.id))

  visit(module.entry)
  return list(dict.fromkeys(loops))


class Loop:
  """A loop that is edited.

  Attributes:
    editor: of its module.
    caller: the instructions of the computation that the loop stands in.
    instruction: the `while`.
    body: the instructions of its body, in schedule order.
    parameter: of the body.
    root: of the body, a tuple.
    num_trips: how often the body runs, while it is not changed.
  """

  def __init__(self, editor: Editor, caller: hlo.Computation, loop_id: int):
    module = editor.module
    body = module.computations[caller.by_id[loop_id].called_computation_ids[0]]
    self.editor = editor
    self.caller = editor.instructions(caller.id)
    self.instruction = next(i for i in self.caller if i.id == loop_id)
    self.body_id = body.id
    self.body = editor.instructions(body.id)
    self.root = next(i for i in self.body if i.id == body.proto.root_id)
    self.parameter = next(i for i in self.body if i.opcode == "parameter")
    self.num_trips = module.trip_count(self.instruction)

  @property
  def is_plain(self) -> bool:
    """Whether the state is used by its elements only, as XLA writes it."""
    whole = self.parameter.id
    return self.root.opcode == "tuple" and all(
      i.opcode == GET for i in self.body if whole in i.operand_ids
    )

  def element_of(self, instruction: hlo.Instruction) -> int | None:
    """The element of the state that an instruction of the body reads."""
    if instruction.opcode == GET and self.parameter.id in (
      instruction.operand_ids
    ):
      return instruction.tuple_index
    return None

  def collectives(self) -> list[collectives_lib.Collective]:
    """The collectives that the body starts and waits for, before any edit."""
    module = self.editor.module
    name = module.computations[self.body_id].name
    return [
      c
      for c in collectives_lib.find(module)
      if c.computation == name and c.done_id is not None
    ]

  def readers(self) -> list[hlo.Instruction]:
    """The instructions of the body that take elements of the state."""
    reads = {i.id for i in self.body if self.element_of(i) is not None}
    return [i for i in self.body if not reads.isdisjoint(i.operand_ids)]

  def add_element(self, value: hlo.Instruction, suffix: str) -> int:
    """Hands a value of the body on to the next iteration.

    The old value is in use until the new one is complete, so XLA copies it.

    Returns:
      the id of the instruction that reads it there.
    """
    name = f"{value.name}{suffix}"
    copy = self.editor.make(
      "copy", f"{name}.copy", [value.id], shape=value.shape
    )
    self.body.insert(position(self.body, self.root), copy)
    read = self.editor.make(
      GET,
      name,
      [self.parameter.id],
      tuple_index=len(self.root.operand_ids),
      shape=value.shape,
    )
    self.body.insert(position(self.body, self.parameter) + 1, read)
    self.root.operand_ids.append(copy.id)
    return read.id

  def add(self, instructions: Iterable[hlo.Instruction]) -> None:
    """Puts instructions at the end of the body, and hands on what they give."""
    added = list(instructions)
    used = {id_ for i in added for id_ in i.operand_ids}
    at = position(self.body, self.root)
    self.body[at:at] = added
    self.root.operand_ids.extend(i.id for i in added if i.id not in used)

  def append(
    self, instructions: Iterable[hlo.Instruction], returned: Sequence[int]
  ) -> None:
    """Puts instructions after the root, and returns other values instead."""
    root = self.editor.make(
      "tuple", f"{self.root.name}.both", returned, shape=self.root.shape
    )
    self.body += [*instructions, root]
    self.editor.set_root(self.body_id, root.id)
    self.root = root

  def drop_copies(self) -> None:
    """Has elements of the state read, and handed on, without a copy."""
    handed_on = [i for i in self.body if i.id in self.root.operand_ids]
    for instruction in (*self.readers(), *handed_on):
      if instruction.opcode == "copy":
        instruction.opcode = "bitcast"

  def needed_for(self, ids: Iterable[int]) -> list[hlo.Instruction]:
    """The instructions that some values of the body need, in order."""
    by_id = {i.id: i for i in self.body}
    needed: set[int] = set()
    stack = list(ids)
    while stack:
      id_ = stack.pop()
      if id_ not in needed:
        needed.add(id_)
        stack.extend(by_id[id_].operand_ids)
        stack.extend(by_id[id_].control_predecessor_ids)
    return [i for i in self.body if i.id in needed]

  def copies(
    self,
    instructions: Iterable[hlo.Instruction],
    state: Sequence[int],
    suffix: str,
  ) -> tuple[list[hlo.Instruction], dict[int, int]]:
    """Copies a part of an iteration.

    Args:
      instructions: of the body, in order; the root is left out.
      state: the values that stand for the elements of the state.
      suffix: for the copies' names.

    Returns:
      the copies, and ids in the body -> ids of what stands for them.
    """
    made: list[hlo.Instruction] = []
    stands: dict[int, int] = {}
    for instruction in instructions:
      element = self.element_of(instruction)
      if element is not None:
        stands[instruction.id] = state[element]
      elif instruction.id not in (self.parameter.id, self.root.id):
        copy = self.editor.copy(instruction, suffix, replaced=stands)
        controls = instruction.control_predecessor_ids
        copy.control_predecessor_ids[:] = [
          stands[id_] for id_ in controls if id_ in stands
        ]
        stands[instruction.id] = copy.id
        made.append(copy)
    return made, stands

  def set_trips(self, num_trips: int) -> None:
    """Says how often the body runs."""
    self.editor.set_trip_count(self.instruction, num_trips)


def position(
  instructions: Sequence[hlo.Instruction], wanted: hlo.Instruction
) -> int:
  """Where an instruction stands."""
  return next(at for at, i in enumerate(instructions) if i.id == wanted.id)


def state_ids(loop: Loop) -> list[int]:
  """The values in the caller that the loop starts with, by element."""
  operand_id = loop.instruction.operand_ids[0]
  operand = next(i for i in loop.caller if i.id == operand_id)
  if operand.opcode == "tuple":
    return list(operand.operand_ids)
  return _elements(loop, operand_id, at=_place(loop))


def start_with(loop: Loop, values: Sequence[int]) -> None:
  """Gives the loop other values to start with."""
  operand = loop.editor.make(
    "tuple", f"{loop.instruction.name}.state{len(loop.caller)}", values
  )
  loop.caller.insert(_place(loop), operand)
  loop.instruction.operand_ids[:] = [operand.id]


def result_ids(loop: Loop) -> list[int]:
  """Values in the caller that the loop ends with, by element."""
  return _elements(loop, loop.instruction.id, at=_place(loop) + 1)


def end_with(loop: Loop, values: Sequence[int], ended: Sequence[int]) -> None:
  """Has the caller use these values in place of the loop's results.

  Args:
    loop: which.
    values: by element of the loop.
    ended: what `results` returned, which keeps reading the loop.
  """
  loop_id = loop.instruction.id
  whole = None
  for instruction in list(loop.caller):
    if instruction.id in ended or loop_id not in instruction.operand_ids:
      continue
    if instruction.opcode == GET:
      instruction.opcode = "bitcast"
      instruction.operand_ids[:] = [values[instruction.tuple_index]]
      continue
    if whole is None:
      whole = loop.editor.make(
        "tuple", f"{loop.instruction.name}.end{len(loop.caller)}", values
      )
      loop.caller.insert(position(loop.caller, instruction), whole)
    instruction.operand_ids[:] = [
      whole.id if id_ == loop_id else id_ for id_ in instruction.operand_ids
    ]


def put_before(
  loop: Loop,
  instructions: Iterable[hlo.Instruction],
  elements: Sequence[int],
  suffix: str,
) -> dict[int, int]:
  """Copies a part of an iteration to the caller, before the loop.

  Returns:
    ids in the body -> ids of what stands for them.
  """
  made, copies = loop.copies(instructions, elements, suffix)
  at = _place(loop)
  loop.caller[at:at] = made
  return copies


def put_after(
  loop: Loop,
  instructions: Iterable[hlo.Instruction],
  elements: Sequence[int],
  suffix: str,
) -> dict[int, int]:
  """Copies a part of an iteration to the caller, after what reads it."""
  made, copies = loop.copies(instructions, elements, suffix)
  at = _place(loop) + 1
  while loop.caller[at].id in elements:
    at += 1
  loop.caller[at:at] = made
  return copies


def _elements(loop: Loop, whole_id: int, *, at: int) -> list[int]:
  """Takes a loop's state apart, in the caller."""
  shapes = {i.id: i.shape for i in loop.body}
  made = [
    loop.editor.make(
      GET,
      f"{loop.instruction.name}.{whole_id}.{index}.{at}",
      [whole_id],
      tuple_index=index,
      shape=shapes[id_],
    )
    for index, id_ in enumerate(loop.root.operand_ids)
  ]
  loop.caller[at:at] = made
  return [i.id for i in made]


def _place(loop: Loop) -> int:
  return position(loop.caller, loop.instruction)


def steady_ids(loop: Loop, graph: dependencies.Graph) -> set[int]:
  """What each iteration could compute before the previous one ends.

  That is what follows from elements of the state that the loop does not change,
  or that follow from such elements alone, such as its counter.
  """
  pairs = {id_ for c in loop.collectives() for id_ in (c.start_id, c.done_id)}
  returned = list(loop.root.operand_ids)
  moving: set[int] = set()
  while True:
    unsteady: set[int] = set()
    for instruction in graph.computation.instructions:
      element = loop.element_of(instruction)
      if (
        instruction.id in pairs
        or instruction.opcode in ("while", "conditional", "call")
        or (element is not None and element in moving)
        or not unsteady.isdisjoint(graph.predecessors[instruction.id])
      ):
        unsteady.add(instruction.id)
    now = {at for at, id_ in enumerate(returned) if id_ in unsteady}
    if now == moving:
      return {i.id for i in graph.computation.instructions} - unsteady
    moving = now


def handed_on(
  loop: Loop,
  graph: dependencies.Graph,
  found: Sequence[collectives_lib.Collective],
) -> dict[int, set[int]]:
  """Starts of reductions whose results the loop only hands on, unread.

  Returns:
    id of each start -> ids of it and of all that depends on it in the body.
  """
  known = steady_ids(loop, graph)
  after: dict[int, set[int]] = {}
  for collective in found:
    start_id = collective.start_id
    reached = graph.descendants(start_id) - {loop.root.id}
    if _is_only_handed_on(loop, graph, start_id, reached, known):
      after[start_id] = {start_id, *reached}
  return after


def _is_only_handed_on(
  loop: Loop,
  graph: dependencies.Graph,
  start_id: int,
  after: set[int],
  steady: set[int],
) -> bool:
  """Whether a reduction's result only goes to the next iteration, unread."""
  by_id = graph.computation.by_id
  written = {at for at, id_ in enumerate(loop.root.operand_ids) if id_ in after}
  for instruction in graph.computation.instructions:
    reads = loop.element_of(instruction)
    if reads in written and not after.issuperset(graph.users[instruction.id]):
      return False
  for id_ in after:
    for before in graph.predecessors[id_]:
      is_known = before in after or before == start_id or before in steady
      if not is_known and loop.element_of(by_id[before]) not in written:
        return False
  return bool(written)


def double_buffer(module: hlo.Module) -> hlo.Module:
  """Lets the loops that hold collectives run two iterations per body.

  Args:
    module: scheduled.
  """
  for caller_id, loop_id in each_loop(module):
    editor = Editor(module)
    loop = Loop(editor, module.computations[caller_id], loop_id)
    if not loop.is_plain or not loop.collectives():
      continue
    loop.drop_copies()
    if loop.num_trips % 2:
      copies = put_before(loop, loop.body, state_ids(loop), f".peeled{loop_id}")
      start_with(loop, [copies[id_] for id_ in loop.root.operand_ids])
    between = loop.root
    made, copies = loop.copies(
      loop.body, list(between.operand_ids), f".double{loop_id}"
    )
    # XLA has what reads the state wait for the whole iteration before it.
    waiting = {copies.get(i.id) for i in loop.readers()}
    for copy in made:
      if copy.id in waiting:
        copy.control_predecessor_ids.append(between.id)
    loop.append(made, [copies[id_] for id_ in between.operand_ids])
    loop.set_trips(loop.num_trips // 2)
    module = editor.finish()
  return module


# What XLA's option for a kind pipelines in a module compiled with the defaults.
# There the user's own reduce-scatters are pipelined already, and those that are
# left were still all-reduces when the pipeliner ran.
_BEHIND = {
  "all-reduce": ("all-reduce", "reduce-scatter"),
  "reduce-scatter": (),
}
_AHEAD = "all-gather"


def pipeline(module: hlo.Module, kinds: Collection[str]) -> hlo.Module:
  """Pipelines collectives of some kinds in the loops of a module.

  Args:
    module: scheduled.
    kinds: whose XLA option for pipelining is switched on.

  Raises:
    ValueError: a kind cannot be pipelined.
  """
  for kind in kinds:
    if kind != _AHEAD and kind not in _BEHIND:
      raise ValueError(
        f"XLA does not pipeline {kind}; it pipelines"
        f" {', '.join((_AHEAD, *_BEHIND))}."
      )
  if _AHEAD in kinds:
    module = _pipeline(module, [_AHEAD], _run_ahead)
  behind = {k for kind in kinds for k in _BEHIND.get(kind, ())}
  if behind:
    module = _pipeline(module, behind, _run_behind)
  return module


def _pipeline(
  module: hlo.Module,
  kinds: Collection[str],
  run: Callable[[Loop, Sequence[collectives_lib.Collective]], bool],
) -> hlo.Module:
  for caller_id, loop_id in each_loop(module):
    editor = Editor(module)
    loop = Loop(editor, module.computations[caller_id], loop_id)
    found = [c for c in loop.collectives() if c.kind in kinds]
    if loop.is_plain and found and run(loop, found):
      loop.set_trips(loop.num_trips - 1)
      module = editor.finish()
  return module


def _run_ahead(loop: Loop, found: Sequence[collectives_lib.Collective]) -> bool:
  """Pipelines all-gathers; says whether there were any to pipeline."""
  body = loop.editor.module.computations[loop.body_id]
  graph = dependencies.of(body)
  steady = steady_ids(loop, graph)
  pairs = {id_ for c in found for id_ in (c.start_id, c.done_id)}
  arrays: list[int] = []
  ahead: set[int] = set()
  for collective in found:
    needed = graph.ancestors(collective.start_id)
    if not steady.issuperset(needed) or not needed.isdisjoint(pairs):
      continue
    assert collective.done_id is not None
    _mark(loop, collective)
    ahead |= needed | {collective.start_id, collective.done_id}
    arrays += _arrays(graph, collective.done_id)
  if not arrays:
    return False
  ahead.update(arrays)
  state = state_ids(loop)
  before = [i for i in loop.body if i.id in ahead]
  first = put_before(loop, before, state, f".first{loop.instruction.id}")
  num_elements = len(loop.root.operand_ids)
  originals = [i for i in loop.body if i.id not in ahead]
  read_by = {id_: loop.add_element(body.by_id[id_], ".ahead") for id_ in arrays}
  for instruction in originals:
    ids = [read_by.get(id_, id_) for id_ in instruction.operand_ids]
    instruction.operand_ids[:] = ids
  start_with(loop, [*state, *(first[id_] for id_ in arrays)])
  results = result_ids(loop)
  wanted = list(loop.root.operand_ids)[:num_elements]
  last = put_after(
    loop, loop.needed_for(wanted), results, f".last{loop.instruction.id}"
  )
  end_with(loop, [last[id_] for id_ in wanted], results)
  return True


def _run_behind(
  loop: Loop, found: Sequence[collectives_lib.Collective]
) -> bool:
  """Pipelines reductions; says whether there were any to pipeline."""
  body = loop.editor.module.computations[loop.body_id]
  graph = dependencies.of(body)
  after = handed_on(loop, graph, found)
  if not after:
    return False
  for collective in found:
    if collective.start_id in after:
      _mark(loop, collective)
  # One that feeds another stays where it is, and is run behind once more.
  twice = {id_ for id_, tail in after.items() if len(tail & after.keys()) > 1}
  once = after.keys() - twice
  behind = set().union(*(after[id_] for id_ in once))
  ends = list(loop.root.operand_ids)
  late = [id_ for id_ in ends if id_ in behind]
  computed = [id_ for id_ in ends if id_ not in behind]
  sent = list(
    dict.fromkeys(id_ for at in after for id_ in body.by_id[at].operand_ids)
  )
  state = state_ids(loop)
  suffix = f".first{loop.instruction.id}"
  first = put_before(loop, loop.needed_for([*computed, *sent]), state, suffix)
  begun = [
    state[at] if id_ in behind else first[id_] for at, id_ in enumerate(ends)
  ]
  read_by = {id_: loop.add_element(body.by_id[id_], ".behind") for id_ in sent}
  starts = [i for i in loop.body if i.id in after]
  repeated = [i for i in loop.body if any(i.id in after[t] for t in twice)]
  again, _ = loop.copies(repeated, state, ".again")
  for start in [*(s for s in starts if s.id in once), *again]:
    ids = [read_by.get(id_, id_) for id_ in start.operand_ids]
    start.operand_ids[:] = ids
  loop.add(again)
  start_with(loop, [*begun, *(first[id_] for id_ in sent)])
  results = result_ids(loop)
  last = put_after(
    loop, loop.needed_for(late), results, f".last{loop.instruction.id}"
  )
  ended = [
    last[id_] if id_ in behind else results[at] for at, id_ in enumerate(ends)
  ]
  end_with(loop, ended, results)
  return True


def _arrays(graph: dependencies.Graph, done_id: int) -> list[int]:
  """The instructions that give what a done returns, array by array."""
  done = graph.computation.by_id[done_id]
  return list(graph.users[done_id]) if done.shape.tuple_shapes else [done_id]


def _mark(loop: Loop, collective: collectives_lib.Collective) -> None:
  """Says of a collective that it is pipelined, as XLA does."""
  start = next(i for i in loop.body if i.id == collective.start_id)
  config = loop.editor.module.backend_config(start)
  details = {
    **config.get("collective_backend_config", {}),
    "is_pipelined": True,
  }
  loop.editor.set_config(
    start, {**config, "collective_backend_config": details}
  )
