# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""The source line of an instruction, and its layer of the model.

    lines = source_lines.SourceLines(module)
    str(lines.of(computation, start))   # "train.py:88, layer_0/attention"

JAX gives XLA the Python frames in which it traced an operation, and the names
of the scopes and modules around it. A module has a table of frames, and an
instruction has the id of its innermost frame; older XLA wrote a file and a
line. Instructions that XLA adds, such as the reduce-scatter of a gradient, have
neither; they get those of the nearest instruction among their operands, or else
among their users.
"""

from __future__ import annotations

import collections
from collections.abc import Sequence
import dataclasses
import functools
import itertools
import pathlib
import re

from lagom_xla.passes import collectives
from lagom_xla.passes import dependencies
from lagom_xla.passes import hlo

# Folders of installed packages, and of Python's own modules.
_INSTALLED = frozenset(["site-packages", "dist-packages"])
_PYTHON = re.compile(r"/lib(?:64)?/python3[.\d]*/|^<frozen ")
# Packages whose lines do not identify a part of a model.
_FRAMEWORKS = frozenset(
  [
    *("jax", "jaxlib", "flax", "equinox", "haiku", "optax", "chex", "einops"),
    *("beartype", "jaxtyping", "typeguard", "lagom_xla", "python", "script"),
  ]
)
# Folders and files in which packages wrap these for their own layers. Keras's
# layers call keras/src/ops, which calls keras/src/backend, which calls JAX.
_WRAPPERS = frozenset(
  ["activations", "backend", "backends", "_backends", "ops"]
)
_OWN_PACKAGE = pathlib.Path(__file__).parent.parent / "lagom_xla"
# How far to look for a line, and at how many instructions in total.
_REACH = 4
_MOST_LOOKED_AT = 64
# A line that so many others call is a helper's, and says little about where.
_CALLERS_OF_HELPER = 3
# The most frames to keep, because a recursion may have very many.
_MOST_FRAMES = 24

# Parts of an op_name that come from JAX's transformations and control flow.
_OWN_PARTS = frozenset(
  [
    *("while", "body", "cond", "scan", "closed_call", "core_call", "shard_map"),
    *("checkpoint", "rematted_computation", "remat", "pjit", "custom_vjp_call"),
    *("custom_jvp_call", "custom_partitioning", "branch_0_fun", "branch_1_fun"),
    "eval_jaxpr",
  ]
)
_TRANSFORM = re.compile(r"^(jit|jvp|transpose|vmap|pmap|remat)\((.*)\)$")


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Frame:
  """A place in a Python program.

  `file` is its path in the process that traced it. `function` is the enclosing
  function; "" if unknown.
  """

  file: str
  line: int
  function: str

  def __str__(self) -> str:
    return f"{pathlib.PurePath(self.file).name}:{self.line}"


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class SourceLine:
  """Where an instruction comes from.

  Attributes:
    frames: frames of the user's own files within the step, innermost first; if
      there are none, those of an installed trainer, or else of any library.
      The first one calls helpers, if there are any.
    layer: scopes and modules around it, such as "layers_0/attention"; "" if the
      program names none.
    is_backward: whether it belongs to the backward pass.
  """

  frames: tuple[Frame, ...] = ()
  layer: str = ""
  is_backward: bool = False

  def __bool__(self) -> bool:
    """Whether anything is known."""
    return bool(self.frames or self.layer)

  def __str__(self) -> str:
    at = str(self.frames[0]) if self.frames else ""
    words = ", ".join(filter(None, (at, self.layer)))
    return f"{words} (backward)" if words and self.is_backward else words


class SourceLines:
  """The source lines of a module's instructions."""

  def __init__(self, module: hlo.Module):
    self._module = module
    # Many instructions have the same frames and names around them.
    self._frames = functools.cache(self._read_frames)
    self._layer = functools.cache(layer_of)
    self._graph = functools.cache(dependencies.of)

  def of(
    self, computation: hlo.Computation, instruction: hlo.Instruction
  ) -> SourceLine:
    """Where an instruction comes from; empty if there is no metadata."""
    own = self.of_own(instruction)
    if own.frames or not self._has_any:
      return own
    graph = self._graph(computation)
    for neighbors in (graph.operands, graph.users):
      if found := self._nearest(computation, instruction, neighbors):
        layer = own.layer or found.layer
        return dataclasses.replace(found, layer=layer)
    return own

  def of_own(self, instruction: hlo.Instruction) -> SourceLine:
    """The line in the metadata of an instruction or of one that it wraps."""
    found = self._read(instruction)
    if not found:
      inside = collectives.payloads(self._module, instruction)
      lines = (self._read(operation) for _, operation in inside)
      found = next(filter(None, lines), found)
    return found

  @functools.cached_property
  def _has_any(self) -> bool:
    """Whether the module has any lines; tools that write HLO may drop them."""
    return any(
      instruction.metadata.stack_frame_id or instruction.metadata.source_file
      for instruction in self._module.instructions
    )

  def _read(self, instruction: hlo.Instruction) -> SourceLine:
    metadata = instruction.metadata
    frames = self._frames(metadata.stack_frame_id)
    if not frames and metadata.source_file:
      file, line = metadata.source_file, metadata.source_line
      frames = (Frame(file=file, line=line, function=""),)
    return SourceLine(
      frames=frames,
      layer=self._layer(metadata.op_name),
      is_backward="transpose(" in metadata.op_name,
    )

  def _read_frames(self, frame_id: int) -> tuple[Frame, ...]:
    """The frames from one outward, only the user's if there are any.

    They begin with the caller of the outermost helper.
    """
    kept = self._kept(frame_id)
    callers = (
      n for n, callee in enumerate(kept[:-1], 1) if callee in self._helpers
    )
    first = max(callers, default=0)
    return tuple(kept[first : first + _MOST_FRAMES])

  def _kept(self, frame_id: int) -> Sequence[Frame]:
    """The frames from one outward, without those of frameworks."""
    chain = self._chain(frame_id)
    frames = [frame for _, frame in chain]
    within = [frame for id_, frame in chain if id_ not in self._around]
    others = [f for f in frames if _package(f.file) not in _FRAMEWORKS]
    return (
      [frame for frame in within if _is_users(frame.file)]
      or [frame for frame in others if not _is_wrapper(frame.file)]
      or others
      or frames
    )

  @functools.cached_property
  def _helpers(self) -> frozenset[Frame]:
    """Lines that many others call."""
    callers: dict[Frame, set[Frame]] = collections.defaultdict(set)
    for frame_id in self._used:
      # JAX puts one stack on another, so a line may be there again further out.
      outermost = dict(itertools.pairwise([*self._kept(frame_id), None]))
      for callee, caller in outermost.items():
        if callee and caller:
          callers[callee].add(caller)
    return frozenset(
      callee
      for callee, found in callers.items()
      if len(found) >= _CALLERS_OF_HELPER
    )

  @functools.cached_property
  def _used(self) -> frozenset[int]:
    """The innermost frames of all instructions."""
    return frozenset(
      instruction.metadata.stack_frame_id
      for instruction in self._module.instructions
    )

  @functools.cached_property
  def _around(self) -> frozenset[int]:
    """Frames around the whole step: its call, and that call's callers.

    They are the same for every instruction.
    """
    frames = self._module.proto.stack_frame_index.stack_frames
    used = self._used
    callees: dict[int, set[int]] = {}
    seen = {0}
    for frame_id in used:
      while frame_id not in seen and 0 < frame_id <= len(frames):
        seen.add(frame_id)
        caller = frames[frame_id - 1].parent_frame_id
        callees.setdefault(caller, set()).add(frame_id)
        frame_id = caller
    around: set[int] = set()
    # A jitted helper has the stack under which it was first traced.
    outermost = list(callees.get(0, ()))
    while outermost:
      frame_id = outermost.pop()
      around.add(frame_id)
      below = callees.get(frame_id, set())
      if len(below) == 1 and frame_id not in used:
        outermost += below
    return frozenset(around)

  def _chain(self, frame_id: int) -> list[tuple[int, Frame]]:
    """All frames from one outward, with their ids."""
    index = self._module.proto.stack_frame_index
    chain: dict[int, Frame] = {}
    while 0 < frame_id <= len(index.stack_frames) and frame_id not in chain:
      frame = index.stack_frames[frame_id - 1]
      location = index.file_locations[frame.file_location_id - 1]
      chain[frame_id] = Frame(
        file=index.file_names[location.file_name_id - 1],
        line=location.line,
        function=index.function_names[location.function_name_id - 1],
      )
      frame_id = frame.parent_frame_id
    return list(chain.items())

  def _nearest(
    self,
    computation: hlo.Computation,
    instruction: hlo.Instruction,
    neighbors: dependencies.Edges,
  ) -> SourceLine:
    """The line of the nearest instruction that has one, in one direction."""
    seen, here = {instruction.id}, [instruction.id]
    for _ in range(_REACH):
      here = [
        other
        for known in here
        for other in neighbors[known]
        if other not in seen
      ][: _MOST_LOOKED_AT - len(seen)]
      seen.update(here)
      for other in here:
        found = self.of_own(computation.by_id[other])
        if found.frames:
          return found
    return SourceLine()


def _is_users(file: str) -> bool:
  return not _package(file)


def _is_wrapper(file: str) -> bool:
  """Whether an installed file only wraps a framework, without layers."""
  parts = pathlib.PurePath(file).with_suffix("").parts
  inside = itertools.dropwhile(lambda part: part not in _INSTALLED, parts)
  return not _WRAPPERS.isdisjoint(inside)


def _package(file: str) -> str:
  """The package of a file, or "script"; "" for a user's file."""
  path = pathlib.PurePath(file)
  for folder, package in itertools.pairwise(path.parts):
    if folder in _INSTALLED:
      return package
  if path.is_relative_to(_OWN_PACKAGE):
    return "lagom_xla"
  if _PYTHON.search(file):
    return "python"
  # pip writes such scripts for a package's console commands.
  return "script" if path.parent.name == "bin" and not path.suffix else ""


def layer_of(op_name: str) -> str:
  """The scopes and modules that an instruction's op_name names.

  Examples: "jit(step)/jvp(Net)/layer_0/dot_general"; for an instruction that
  XLA combined, "prefix/(one:another)" or, without a common prefix,
  "(one:another)".
  """
  prefix, _, combined = f"/{op_name}".partition("/(")
  parts = prefix.split("/")
  if not combined:
    parts = parts[:-1]  # The primitive.
  named = []
  for part in parts:
    while match := _TRANSFORM.match(part):
      # jit names this part after a function, not a layer.
      part = "" if match[1] in ("jit", "pmap") else match[2]
    # An einsum's scope is its formula.
    if part and part not in _OWN_PARTS and "->" not in part:
      named.append(part)
  return "/".join(named)
